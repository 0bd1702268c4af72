"""A training whose checkpoints follow a plan of its step, beside the same training without checkpoints and with today's, for
``benchmarks.checkflow``. One rank. Imports TensorFlow."""

from __future__ import annotations

import functools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import jobs, workloads
from benchmarks.checkflow_parts import CHUNK, FilePart, PartWriter, Room, rate, rates
from benchmarks.checkflow_planned_step import NamedStep, PlannedStep, file_parts
from benchmarks.checkflow_plans import Seen, reachable, seconds_seen
from benchmarks.checkflow_training import checkpoint, fit
from benchmarks.step_clock import StepClock
from deepfreeze.errors import OptionError
from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.plan.step.simulate import Played
from deepfreeze.plan.step.step_plan import StepPlan
from deepfreeze.state.training_state import TrainingState
from deepfreeze.store import step_plans
from deepfreeze.store.run import Run

PROFILED, WARM = 60, 5  # steps of a training that is profiled; of each other one before those that count
PLAIN, TODAY, COPIES, DIRECT = "without checkpoints", "today", "late copies in parts", "direct writes"
WRITERS = 4
ROOM = 0.25  # of the checkpoint, for copies: as much as may be held if execution is to pay


class PlannedClock(StepClock):
    """Tells a planned step which step begins."""

    def __init__(self, steps: PlannedStep, room: Room) -> None:
        super().__init__()
        self._steps, self._room = steps, room

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begins a step."""
        self._steps.step += 1
        self._steps.begun[self._steps.step, 0] = time.perf_counter()
        self._room.step_begins()
        super().on_train_batch_begin(batch, logs)


class Planned:
    """A way to follow a plan. ``function``: the train function that follows it; ``parts``, ``room``, ``writer``: of its checkpoints."""

    def __init__(
        self, name: str, train: Any, profile: StepProfile, named: NamedStep, folder: Path, direct: bool
    ) -> None:
        self.name = name
        self._reachable = reachable(profile, 1, direct)
        self.plan: StepPlan = self._reachable.plan
        self.parts: list[FilePart] = file_parts(profile, self.plan)
        # The store is late at times, and a gate then copies what it has not taken. The plan knows nothing of that.
        self._memory = max(self.plan.extra, round(ROOM * profile.nbytes))
        self.room = Room(self._memory, max(part.nbytes for part in self.parts))
        folder.mkdir()
        self.writer = PartWriter(folder, self.parts, self.room, WRITERS)
        model = train.model
        by_name = {tensor.spec.name: tensor.variable for tensor in TrainingState.of(model, "full").tensors}
        variables = [by_name[tensor.name] for tensor in profile.tensors]
        self.step = PlannedStep(model, model.optimizer, variables, profile, self.plan, self.parts, named, self.writer)
        train(2, PlannedClock(self.step, self.room))
        self.function = model.train_function
        self.step.close()
        self._played: Played | None = None
        self._held: list[int] = []
        self._turns: list[range] = []  # steps

    def turn(self, train: Callable[[StepClock], None]) -> None:
        """A turn of this way: calls ``train`` with the clock that tells the planned step when a step begins."""
        first = self.step.step + 1
        train(PlannedClock(self.step, self.room))
        self._turns.append(range(first, self.step.step + 1))

    def ends(self, more: float) -> None:
        """The rounds are over: plays the plan with the rates that copies and the store have had in them. ``more``: seconds of a core that
        a step has used beyond those of today's."""
        cost = max(0.0, more) / self.plan.question.nbytes
        copies = self.writer.copies
        seen = Seen(*rates(self.writer.written, copies), WRITERS, rate(copies), cost)
        self._played = self._reachable.played(seen=seen, room=self._memory)
        self._held = self._reachable.held_by_step(self._steps(), seen, self._memory)

    def _steps(self) -> list[list[float]]:
        """(windows,) seconds of each step of the turns. The end of the last step of a turn is not known."""
        begun: dict[int, dict[int, float]] = defaultdict(dict)
        for (step, window), at in self.step.begun.items():
            begun[step][window] = at
        windows = self._reachable.asked.windows
        counted = [step for turn in self._turns for step in turn[WARM:-1]]
        return [seconds_seen(windows, {**begun[step], len(windows): begun[step + 1][0]}).tolist() for step in counted]

    def found(self, steps: int) -> dict[str, Any]:
        """The figures of its first ``steps`` steps."""
        self.writer.close()
        assert self._played is not None
        return {
            "profiled": sum(window.seconds for window in self._reachable.asked.windows),
            "played": self._played.seconds,
            "played_extra": statistics.median(self._held),
            "faster": self._reachable.faster,
            "extra": self.plan.extra,
            "bound": max(0.0, self.plan.fine_bound - self.plan.question.base),
            "forecast": self._reachable.played().seconds,
            "held": self.room.most,
            "held_by_step": statistics.median(self.room.by_step),
            "mapped": self.room.mapped,
            "waited": self.room.waited,
            "exceeded": self.room.exceeded,
            "gated": self.writer.gated,
            "committed": sum(step < steps for step in self.writer.committed),
            "due": steps - 1,  # what the last step has left is copied in the next one
            "parts": len(self.parts),
        }


class Trainer:
    """Trains a workload's model on one batch."""

    def __init__(self, workload: str) -> None:
        self.model, self._x, self._y = workloads.model(workload, distributed=False)

    def __call__(self, steps: int, *callbacks: Any) -> None:
        fit(self.model, self._x, self._y, steps, *callbacks)


@dataclass(frozen=True)
class _Turn:
    """A turn of one way: ``WARM`` steps and ``count`` that count. ``seconds``, ``used``: by the name of the way, of each turn the seconds
    of each step, and the seconds of a core that a step has used on average."""

    train: Trainer
    count: int
    seconds: dict[str, list[list[float]]]
    used: dict[str, list[float]]

    def __call__(self, name: str, clock: StepClock, *callbacks: Any) -> None:
        """Trains. The model has the train function of the way."""
        self.train(WARM + self.count, clock, *callbacks)
        self.used[name].append(statistics.mean(clock.used[WARM:]))
        self.seconds[name].append(clock.seconds[WARM:])


def _named(train: Trainer) -> NamedStep:
    """The step with the places of its marks."""
    model = train.model
    named = NamedStep(model, model.optimizer, TrainingState.of(model, "full").tensors)
    try:
        train(2)
        return named
    finally:
        named.close()


def measure(params: dict[str, Any]) -> dict[str, Any]:
    """The profile; the seconds of steps of each way, round by round, and those of a core; and the figures of each way. See
    ``jobs.serve``."""
    folder, rounds, count = Path(params["folder"]), params["rounds"], params["steps"]
    train = Trainer(params["workload"])
    train(WARM)
    jobs.progress("profile ...")
    train(PROFILED, checkpoint(folder / "profiled", 1, profile=True))
    found = step_plans.read_profile(Run.open(folder / "profiled"))
    assert found is not None, "the step was not profiled"
    profile = StepProfile.from_json(found.profile)
    train.model.train_function = None
    named = _named(train)
    ways: list[Planned] = []
    impossible = {}
    for name, direct in ((COPIES, False), (DIRECT, True)):
        jobs.progress(f"plan: {name} ...")
        try:
            ways.append(Planned(name, train, profile, named, folder / name.replace(" ", "-"), direct))
        except OptionError as error:
            impossible[name] = str(error)
    train(2)
    plain = train.model.train_function
    seconds: dict[str, list[list[float]]] = {PLAIN: [], TODAY: [], **{way.name: [] for way in ways}}
    used: dict[str, list[float]] = {name: [] for name in seconds}
    committed = taken = 0
    for number in range(rounds):
        jobs.progress(f"round {number + 1} of {rounds} ...")
        train.model.train_function = plain
        turn = _Turn(train, count, seconds, used)
        turn(PLAIN, StepClock())
        for way in ways:
            train.model.train_function = way.function
            way.turn(functools.partial(turn, way.name))
        train.model.train_function = None
        today = checkpoint(folder / f"today-{number}", 1)
        turn(TODAY, StepClock(), today)
        committed, taken = committed + len(today.stats.committed), taken + WARM + count
    for way in ways:
        more = [one - other for one, other in zip(used[way.name], used[TODAY], strict=True)]
        way.ends(statistics.median(more))
    if params["last"] and ways:
        jobs.progress(f"{params['last']} steps of {ways[-1].name} ...")
        before = len(ways[-1].writer.committed)
        train.model.train_function = ways[-1].function
        train(params["last"], clock := PlannedClock(ways[-1].step, ways[-1].room))
        ways[-1].writer.close()
        last = {"seconds": clock.seconds, "committed": len(ways[-1].writer.committed) - before}
    else:
        last = None
    # Each way has had two steps for its trace.
    steps = 2 + rounds * (WARM + count)
    return {
        "profile": profile.to_json(),
        "seconds": seconds,
        "used": used,
        "ways": {way.name: way.found(steps) for way in ways},
        "impossible": impossible,
        "today": {"committed": committed, "steps": taken},
        "last": last,
        "nbytes": profile.nbytes,
        "blocks": WRITERS * CHUNK,
    }


if __name__ == "__main__":
    jobs.serve(measure)
