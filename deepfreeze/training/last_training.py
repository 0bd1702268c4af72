"""The training that this process has done last in each run. The next one in the same run goes on from it, or ends with an error before it
moves away a checkpoint.

The training that begins moves away the checkpoints that are newer than the step at which its model stands. Where the user has restored an
older step, that is what the user wants. Where the program has merely gone on, with a new optimizer that counts from 0, it would lose
checkpoints for nothing, and a job that is started again would give its first phase the checkpoints of its second one.
"""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Callable

from deepfreeze.errors import RunError
from deepfreeze.frameworks.framework import StepCounter
from deepfreeze.process_state import PROCESS
from deepfreeze.state import lineage
from deepfreeze.state.training_state import WEIGHT, TrainingState
from deepfreeze.wording import near


class LastTraining:
    """One training of a model, from the moment when its run is open. Keeps neither the model nor the optimizer alive.

    ``ended`` makes it the last one of its run; it is compared with the next one by ``require_going_on``."""

    def __init__(self, steps: StepCounter, state: TrainingState) -> None:
        """``state``: the model's full training state; ``steps``: counts its steps."""
        self._counter = weakref.ref(steps.counter)
        self._trained = [weakref.ref(state.key(tensor.variable)) for tensor in state.of_kind(WEIGHT)]
        self._step = 0
        self._since = lineage.count()  # what the user restores from now on is known by a greater number

    def ended(self, run_id: str, step: int) -> None:
        """The training has ended at ``step``, in whatever way. Asks nothing of TensorFlow: the garbage collector may end a training."""
        if step > 0:  # else the run has nothing of it
            self._step = step
            PROCESS.last_trainings[run_id] = self

    @classmethod
    def require_going_on(
        cls, run: str, run_id: str, steps: StepCounter | None, state: Callable[[], TrainingState], who: str
    ) -> None:
        """``RunError`` if a training that is about to begin would throw away what the last one of this process has saved in the run: its
        optimizer is another one, over the same variables, or its count of steps was set back. To be called if no checkpoint was restored.

        ``steps``: None for a model that is not compiled; ``state``: makes the model's training state; ``who``: the function that the user
        has called. What ``restore`` or ``open`` has taken from the run since the last training began goes on from there, whatever its
        step."""
        last: LastTraining | None = PROCESS.last_trainings.get(run_id)
        if last is None:
            return
        same = steps is not None and steps.counter is last._counter()
        if same and steps is not None and steps.now() >= last._step:
            return
        now_has = state()
        if not last._is_over(now_has):
            return
        if lineage.came_from(run_id, [one.variable for one in now_has.tensors if one.optimizer], last._since):
            return
        now = None if steps is None else steps.now()
        raise set_back(run, last._step, now, who) if same else _another_optimizer(run, last._step, now, who)

    @classmethod
    def another_phase(
        cls, run: str, run_id: str, steps: StepCounter | None, state: Callable[[], TrainingState], who: str
    ) -> RunError | None:
        """The error for a checkpoint of the run that does not fit the model, if the last training of this process there has trained the
        same variables by another optimizer: the program has begun its next phase. None if that is not the cause. The arguments are those
        of ``require_going_on``."""
        last: LastTraining | None = PROCESS.last_trainings.get(run_id)
        if last is None or steps is None or steps.counter is last._counter() or not last._is_over(state()):
            return None
        return _another_optimizer(run, last._step, steps.now(), who)

    def _is_over(self, state: TrainingState) -> bool:
        """Whether the model of ``state`` has a variable that was trained."""
        return any(state.find(one) is not None for one in (alive() for alive in self._trained) if one is not None)


def _another_optimizer(run: str, step: int, now: int | None, who: str) -> RunError:
    """``now``: where the other optimizer's count stands, None without an optimizer."""
    counts = "none" if now is None else f"another one, which stands at step {now}"
    return RunError(
        where=run,
        expected=f"the optimizer that has trained these weights here, up to step {step}",
        found=f"{counts}; nothing was moved to abandoned/, and nothing was trained",
        todo=f"give each phase of a training, which has a compile of its own, a run of its own: {another_run(run, who)}",
    )


def set_back(run: str, before: int, now: int | None, who: str) -> RunError:
    """The error for a count of steps that is lower than ``before``, though nothing was restored. ``who``: as for ``require_going_on``."""
    restore = _call("deepfreeze.restore", "model", _text(near(run)), "step=N")
    return RunError(
        where=run,
        expected=f"a count of steps that goes on from {before}",
        found=f"{now}: the optimizer's iterations were set back, by load_weights for example, and checkpoints are named by them",
        todo=f"leave iterations as they are; to go on from an older step, call {restore} before the training begins; give a training that "
        f"counts anew a run of its own: {another_run(run, who)}",
    )


def another_run(run: str, who: str = "deepfreeze.Checkpoint") -> str:
    """The line that trains into another run, beside ``run``. ``who``: the function that it calls."""
    phase = re.fullmatch(r"(.+-phase-)(\d+)", run, re.DOTALL)
    beside = near(f"{phase[1]}{int(phase[2]) + 1}" if phase else f"{run}-phase-2")
    return _call(who, *([] if who == "deepfreeze.Checkpoint" else ["optimizer", "model"]), _text(beside))


def _call(function: str, *arguments: str) -> str:
    return f"{function}({', '.join(arguments)})"


def _text(path: str) -> str:
    return json.dumps(path, ensure_ascii=False)
