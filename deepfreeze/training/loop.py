"""Checkpoints of hand-written training loops."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn

from deepfreeze import arguments
from deepfreeze.engine.options import Engine
from deepfreeze.errors import OptionError, RunError
from deepfreeze.events.stats import Stats
from deepfreeze.format.names import MAX_STEP
from deepfreeze.freeze.settings import Replicas
from deepfreeze.plan.chosen_policy import chosen_policy
from deepfreeze.plan.policy import Policy
from deepfreeze.state.keras_objects import is_optimizer, optimizers
from deepfreeze.store.retention import Wants
from deepfreeze.training.options import Capture, Options
from deepfreeze.training.run_path import RunPath
from deepfreeze.training.training import Training


def capture(
    optimizer: Any,
    model: Any,
    run: str | os.PathLike,
    every: int | str | Policy = 15,
    *,
    resume: str = "auto",
    keep: int | Wants = 2,
    keep_pending: int = 4,
    storage: int | str | None = None,
    memory: int | str | None = None,
    wait_for: str = "captured",
    local: str | os.PathLike | None = "auto",
    on_error: str = "raise",
    final: bool = True,
    state: str = "full",
    extra: Mapping[str, Any] | None = None,
    rng: str | None = None,
    data: Any = None,
    metadata: Mapping[str, Any] | None = None,
    save_config: bool = True,
    signals: Sequence[Any] = ("SIGTERM",),
    ends_at: float | str | None = "auto",
    verbose: int = 1,
    timeout: float = 600.0,
    engine: Engine = Engine(),
    replicas: Replicas = Replicas(),
    capture: Capture = Capture(),
    listeners: Sequence[Any] = (),
    world: Any = None,
    **unknown: NoReturn,
) -> Loop:
    """Saves a training that has no ``fit``. Restores ``model`` and ``optimizer`` in this call, and saves them while the loop goes on. To be
    called by every rank.

        with deepfreeze.capture(optimizer, model, "runs/mine", every=15) as checkpoint:
            for batch in data.skip(checkpoint.start):
                train_step(batch)  # a tf.function or not, compiled by XLA or not
                if not checkpoint.step():
                    break

    Args:
        optimizer: of Keras 3 or tf_keras; its updates are the steps. It becomes the model's attribute ``optimizer`` if the model has
            none. Where it is not built, it is built for ``model.trainable_variables``. A second optimizer is saved if it is an attribute
            of the model too.
        model: a built Keras model; or a ``tf.Module``, whose variables are saved under the names of their attributes.
        run, every and the other options: as for ``deepfreeze.Checkpoint``. Captures are taken between two steps, when nothing writes
            to the variables, so a step may do anything. Training waits while this rank's share is copied.

    Raises what ``deepfreeze.Checkpoint`` raises when training begins.
    """
    options = Options.of(
        resume=resume,
        keep=keep,
        keep_pending=keep_pending,
        storage=storage,
        memory=memory,
        wait_for=wait_for,
        local=local,
        on_error=on_error,
        final=final,
        state=state,
        extra=extra,
        rng=rng,
        data=data,
        metadata=metadata,
        save_config=save_config,
        signals=signals,
        ends_at=ends_at,
        verbose=verbose,
        timeout=timeout,
        engine=engine,
        replicas=replicas,
        capture=capture,
        listeners=listeners,
        world=world,
        **unknown,
    )
    return Loop(optimizer, model, run, every, options)


class Loop:
    """One training by a hand-written loop, from ``deepfreeze.capture`` until the ``with`` block is left. ``start``: the step to go on from,
    0 in a fresh run. Every rank calls the methods, in the same order, from one thread."""

    def __init__(
        self, optimizer: Any, model: Any, run: str | os.PathLike, every: int | str | Policy, options: Options
    ) -> None:
        if not is_optimizer(optimizer):
            todo = "pass the optimizer, then the model, then the run"
            raise OptionError(where="optimizer", expected="a Keras optimizer", found=repr(optimizer)[:100], todo=todo)
        if getattr(model, "optimizer", None) is None:
            model.optimizer = optimizer
        if optimizer is not optimizers(model).get("optimizer"):
            options = options.with_optimizer(optimizer)
        self._training = Training(
            RunPath(run),
            chosen_policy(every, options.signals, loop=True),
            options,
            who="deepfreeze.capture",
            loop=True,
        )
        self._training.hold.by_loop(self)
        self._model = model
        self.start = self._training.open(model)
        self._training.begin(model, "its loop is written by hand")

    @property
    def stats(self) -> Stats:
        """Figures of what has been done so far on this rank."""
        return self._training.stats

    def step(self, batches: int = 1) -> bool:
        """To be called by every rank after each step, outside of any ``tf.function``. ``batches``: how many batches of ``data=`` the step
        was trained on. Returns False if training should end now, because a signal came, or the job's end is near: the step is committed
        then. Raises ``EngineError``, ``WaitError``, and ``RunError`` after ``finish`` or ``close``."""
        self._require_underway("step()")
        self._training.trained(batches)
        return self._training.executed()

    def log(self, step: int, **values: float) -> None:
        """Tells retention (``keep=``) the values of metrics at ``step``: ``checkpoint.log(40, val_loss=0.31)``. They belong to the newest
        checkpoint up to that step, and may come after later steps, or before the first ``step()``: those of ``start`` belong to the
        checkpoint that was restored. Rank 0's values count; other ranks may call it too. ``OptionError`` for a step that is no whole
        number, or a value that is no number; ``RunError`` after ``finish`` or ``close``."""
        step = arguments.whole_number("log(step)", step, 0, MAX_STEP)
        for name, value in values.items():
            arguments.require(f"log({name}=)", value, hasattr(value, "__float__"), "a number")
        self._require_underway("log()")
        self._training.measured(values, step)

    def _require_underway(self, call: str) -> None:
        if not self._training.underway:
            self._training.hold.require()
            raise RunError(
                where=call,
                expected="a training that was neither finished nor closed",
                found="one that was: its steps are not saved any more",
                todo="call deepfreeze.capture again, which goes on from the newest checkpoint",
            )

    def finish(self) -> None:
        """Saves the last step, waits until every checkpoint is committed or failed, and gives the run back. Raises ``EngineError``,
        ``WaitError``."""
        self._training.end()

    def close(self) -> None:
        """Gives the run back without saving the last step. Safe to call twice."""
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
