"""Checkpoints of hand-written training loops. Imports TensorFlow."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

from deepfreeze.errors import OptionError, RunError
from deepfreeze.plan.policy import Policy, as_policy
from deepfreeze.state.keras_objects import is_optimizer, optimizers
from deepfreeze.training.options import Options
from deepfreeze.training.stats import Stats
from deepfreeze.training.training import Training, absolute


def capture(
    optimizer: Any, model: Any, run: str | os.PathLike, every: int | Policy = 15, *, final: bool = True, **options: Any
) -> Loop:
    """Saves a training that has no ``fit``: restores ``model`` and ``optimizer`` now, and saves them as it goes on.

        with deepfreeze.capture(optimizer, model, "runs/mine", every=15) as checkpoint:
            for batch in data.skip(checkpoint.start):
                train_step(batch)  # a tf.function or not, compiled by XLA or not
                if not checkpoint.step():
                    break

    Args:
        optimizer: of Keras 3 or tf_keras; its updates are the steps. If the model has no attribute ``optimizer`` it becomes
            that, as by ``compile``; a second optimizer should be an attribute of the model too, to be saved with it.
        model: a built Keras model, or a ``tf.Module``, whose variables are saved under their attributes' names.
        run, every, final, options: as for ``deepfreeze.Checkpoint``. Captures are taken between two steps, when nothing writes
            to the variables, so that the loop may do what it likes; training waits for the copy of this rank's share.

    Raises what ``deepfreeze.Checkpoint`` raises when training begins.
    """
    return Loop(optimizer, model, run, every, Options.of(final=final, **options))


class Loop:
    """One training, from ``deepfreeze.capture`` until it is left. ``start``: the step to go on from, 0 in a fresh run."""

    def __init__(
        self, optimizer: Any, model: Any, run: str | os.PathLike, every: int | Policy, options: Options
    ) -> None:
        if not is_optimizer(optimizer):
            todo = "pass the optimizer, then the model, then the run"
            raise OptionError(where="optimizer", expected="a Keras optimizer", found=repr(optimizer)[:100], todo=todo)
        if getattr(model, "optimizer", None) is None:
            model.optimizer = optimizer
        if optimizer is not optimizers(model).get("optimizer"):
            options = options.with_optimizer(optimizer)
        self._training = Training(absolute(run), as_policy(every), options, "deepfreeze.capture")
        self._model = model
        self.start = self._training.open(model)
        self._training.begin(model, in_graph=False)

    @property
    def stats(self) -> Stats:
        """What it has done so far."""
        return self._training.stats

    def step(self) -> bool:
        """To be called by every rank after each step, outside of any ``tf.function``. False if training should end now: a
        SIGTERM came, and the step is committed. ``RunError`` after ``finish`` or ``close``."""
        if not self._training.underway:
            raise RunError(
                where="step()",
                expected="a training that was neither finished nor closed",
                found="one that was: its steps are not saved any more",
                todo="call deepfreeze.capture again, which goes on from the newest checkpoint",
            )
        return self._training.executed()

    def finish(self) -> None:
        """Saves the last step and returns when everything in flight is committed."""
        self._training.end()

    def close(self) -> None:
        """Stops without a last checkpoint. Safe to call twice."""
        self._training.close()

    def __enter__(self) -> Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()
