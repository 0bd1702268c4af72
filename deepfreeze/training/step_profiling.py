"""The profile of a training's step, and the plan that follows from it (``Capture(profile=True)``). Imports TensorFlow.

Marks are in the train function until three checkpoints were captured and 30 more steps are done. Then the ranks agree on one profile, which
has every window and rate of the slowest rank. Rank 0 keeps it in the run's ``plan.json``, works the plan out in a thread of its own, and
keeps the plan in ``RUN/plans``. Training goes on as before: nothing follows from the plan yet.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deepfreeze.errors import Error
from deepfreeze.events.events import Events
from deepfreeze.format.tensors import REPLICATED
from deepfreeze.frameworks.tensorflow.step_marks import MarkedStep
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.step import marks, planning
from deepfreeze.plan.step.highs import Stopped
from deepfreeze.plan.step.marks import MarkNotes, MarkPlace
from deepfreeze.plan.step.parts import joined
from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.ranks.world import each
from deepfreeze.state.keras_objects import tf_variable
from deepfreeze.state.training_state import StateTensor
from deepfreeze.store import step_plans
from deepfreeze.store.run import Run
from deepfreeze.store.step_plans import StepSection
from deepfreeze.training.installation import Installation
from deepfreeze.training.open_run import OpenRun
from deepfreeze.training.options import Options
from deepfreeze.wording import size
from veloc_bindings import StepMark

WARM = 5  # steps before the marks: the first ones are untypical
STEPS, CHECKPOINTS = 30, 3
_MOST_STEPS = 3000  # that are marked, for three checkpoints
_MOST_TENSORS = 2000  # of a profile; of more the small ones are joined
_AT_END = 5.0  # seconds that the end of a training waits for the solver to stop, or for the store to take the plan


class StepProfiling:
    """Profiles the step of one training, from construction until the profile stands or the run is closed. The training thread of every
    rank calls all methods in the same order."""

    def __init__(
        self,
        open_run: OpenRun,
        installation: Installation,
        model: Any,
        optimizer: Any,
        options: Options,
        events: Events,
    ) -> None:
        self._open_run, self._installation, self._events = open_run, installation, events
        self._model, self._optimizer, self._options = model, optimizer, options
        self._warm = 0
        self._marked: MarkedStep | None = None
        self._steps: list[list[StepMark]] = []
        self._captured: list[int] = []  # marked steps that were captured
        self._over = False
        self._planner: _Planner | None = None
        open_run.closing.callback(self._close)

    @classmethod
    def of(
        cls,
        open_run: OpenRun,
        installation: Installation,
        model: Any,
        options: Options,
        events: Events,
        against: str,
        steps_per_execution: int,
    ) -> StepProfiling | None:
        """The profiling of a training that asks for it; None if it does not, or if its step can't be profiled, which is said. ``against``:
        the reason why captures are taken between two executions, "" if they are not."""
        if not options.capture.profile:
            return None
        if not against and steps_per_execution > 1:
            against = f"an execution has {steps_per_execution} steps (steps_per_execution)"
        if not against and getattr(model, "run_eagerly", False):
            against = "it runs eagerly"
        if not against and open_run.steps.batches_per_step > 1:
            against = f"an update takes {open_run.steps.batches_per_step} batches (gradient accumulation)"
        if not against and installation.capture.engine_memory is None:
            against = "captures are taken by TensorFlow's own ops"
        if not against and getattr(model, "train_function", None) is None and not hasattr(model, "make_train_function"):
            against = "it is no fit"
        if not against:
            optimizer = options.optimizer or model.optimizer
            return cls(open_run, installation, model, optimizer, options, events)
        if open_run.attempt.world.rank == 0:
            events.notify("info", f"Capture(profile=True): the step is not profiled, because {against}")
        return None

    def executed(self, saver: Saver, saved: Container[int]) -> None:
        """To be called after each execution. ``saved``: the steps that were captured. Collective when the profile is complete: ranks
        capture the same steps, so it is on all ranks after the same one."""
        if self._planner is not None:
            self._planner.tell(self._events)
        if self._over:
            return
        if self._marked is None:
            self._warm += 1
            if self._warm >= WARM:
                tensors = [tensor for tensor, _ in self._tensors()]

                def mark() -> None:
                    self._marked = MarkedStep(self._model, self._optimizer, tensors)
                    saver.watch(self._marked.area)

                each(self._open_run.attempt.world, mark)
            return
        noted = self._marked.take()
        if not noted:
            return
        self._steps.append(noted)
        if self._open_run.steps.now() in saved:
            self._captured.append(len(self._steps))
        if len(self._steps) > _MOST_STEPS and len(self._captured) < CHECKPOINTS:
            self._give_up(f"{_MOST_STEPS} steps have {len(self._captured)} checkpoints, where {CHECKPOINTS} are needed")
            return
        if len(self._captured) >= CHECKPOINTS and len(self._steps) - self._captured[CHECKPOINTS - 1] >= STEPS:
            self._finish(saver)

    def _give_up(self, why: str) -> None:
        """Ends the profiling without a profile."""
        assert self._marked is not None
        self._over = True
        self._marked.close()
        self._steps = []
        if self._open_run.attempt.world.rank == 0:
            self._events.notify("info", f"Capture(profile=True): the step is not profiled, because {why}")

    def _tensors(self) -> list[tuple[StateTensor, int]]:
        """The saved tensors, with the bytes that this rank captures of each."""
        capture = self._installation.capture
        mine: Counter[int] = Counter()
        for piece in capture.pieces:
            mine[id(piece.variable)] += piece.nbytes
        return [(tensor, mine[id(tf_variable(tensor.variable))]) for tensor in capture.state.tensors]

    def _finish(self, saver: Saver) -> None:
        """Collective. Makes the profile, and has rank 0 keep it and work the plan out."""
        assert self._marked is not None
        self._over = True
        marked, world = self._marked, self._open_run.attempt.world
        places, notes = marked.places, _notes(self._steps[1:], saver.tier)  # the first one was traced
        marked.close()
        missing = {mark for one in world.gather(marks.absent(notes)) for mark in one}
        if {0, len(places) - 1} & missing:
            self._give_up("the model's train function was replaced meanwhile")
            return
        there = [mark for mark in range(len(places)) if mark not in missing]
        arranged = world.broadcast(marks.arranged([places[mark] for mark in there], notes.of(there)))
        places = [place for _, place in arranged]
        notes = notes.of([there[mark] for mark, _ in arranged])
        own = self._tensors()
        stats = saver.stats()
        copy_rate = stats["copied_bytes"] / stats["copy_s"] if stats.get("copy_s") else 0.0
        windows = marks.windows(places, notes, self._open_run.attempt.nodes.cores, copy_rate)
        ranks = world.gather((windows, [nbytes for _, nbytes in own], marks.step_spread(notes)))
        if world.rank != 0:
            return
        # Those of the rank that captures the most.
        sizes = max((of_rank for _, of_rank, _ in ranks), key=sum)
        saved = [
            (tensor.spec.name, nbytes, tensor.spec.role != REPLICATED)
            for (tensor, _), nbytes in zip(own, sizes, strict=True)
            if nbytes
        ]
        kept = [number for number, nbytes in enumerate(sizes) if nbytes]
        tensors = marks.tensors([_renumbered(place, kept) for place in places], saved)
        profile = StepProfile(
            name=self._model.name,
            structure=self._installation.agreed.structure.digest.hex() if self._installation.agreed else "0" * 64,
            world_size=world.size,
            spread=max(spread for _, _, spread in ranks),
            windows=tuple(marks.slowest([of_rank for of_rank, _, _ in ranks])),
            # plan.json has a bound.
            tensors=tuple(joined(tensors, planning.part_size(sum(sizes))))
            if len(tensors) > _MOST_TENSORS
            else tuple(tensors),
        )
        every = self._captured[-1] - self._captured[-2]
        engine, memory = self._options.engine, self._options.memory
        blocks = engine.writers * engine.chunk_bytes
        self._planner = _Planner(self._open_run.attempt.target, profile, every, memory, blocks)
        self._planner.start()

    def _close(self) -> None:
        if self._marked is not None:
            self._marked.close()
        if self._planner is not None:
            self._planner.end(self._events)


class _Planner:
    """Keeps a profile, and works a plan out, in a thread of its own. The training thread calls all methods."""

    def __init__(self, target: Any, profile: StepProfile, every: int, memory: int | None, blocks: int) -> None:
        self._target, self._profile = target, profile
        self._every, self._memory, self._blocks = every, memory, blocks
        self._said: tuple[str, str] | None = None  # level and text for the user
        self._closed = threading.Event()
        # A process that ends must not wait for a store that hangs.
        self._thread = threading.Thread(target=self._work, name="deepfreeze-plan", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def tell(self, events: Events) -> None:
        """Tells the user of the outcome, once."""
        said, self._said = self._said, None
        if said is not None:
            events.notify(*said)

    def end(self, events: Events) -> None:
        """Stops the solver. Nothing is written any more: the run's lock is given back."""
        self._closed.set()
        self._thread.join(_AT_END)
        self.tell(events)

    def _work(self) -> None:
        show = f"deepfreeze plan {self._target.run} --schedule"
        try:
            run = Run.open(self._target.run)
            if self._closed.is_set():
                return
            section = StepSection(self._profile.to_json(), None, self._every, self._memory, self._blocks)
            step_plans.put_profile(run, section, self._target.attempt)
            asked = planning.question(self._profile, every=self._every, memory=self._memory, blocks=self._blocks)
            made, without = planning.plan_or_greedy(self._profile, asked, self._closed.is_set)
            if not self._closed.is_set():
                step_plans.put(run, made.file_name, made.to_bytes(), self._target.attempt)
                step_plans.put_profile(run, replace(section, plan=made.file_name), self._target.attempt)
                plan = made.plan
                text = (
                    f"a planned step would hold {size(plan.extra)} of copies for a checkpoint every {self._every} steps"
                )
                if without is not None:
                    text = f"{text}, by the greedy plan ({without})"
                if not self._profile.is_steady:
                    text = f"{text}; {planning.unsteady(self._profile)}"
                self._said = "info", f"{text}; {show} shows the plan"
        except Stopped:
            self._said = "info", f"the training has ended before the step was planned; {show} plans it from the profile"
        except Error as error:
            self._said = "info", f"the step has no plan: {error}"
        except Exception as error:
            self._said = "warning", f"the step's plan could not be made: {type(error).__name__}: {error}"


def _notes(steps: Sequence[Sequence[StepMark]], tier: str) -> MarkNotes:
    """The notes as arrays. ``tier``: the kind of the local tier: what is copied leaves the engine's memory for a tier on a disk, and for
    the external store otherwise."""
    numbers = np.array(steps, np.float64)  # (steps, marks, fields of StepMark)
    written = numbers[:, :, 3] if tier == "disk" else numbers[:, :, 2]
    return MarkNotes(numbers[:, :, 0] / 1e6, numbers[:, :, 1] / 1e6, written)


def _renumbered(place: MarkPlace, kept: Sequence[int]) -> MarkPlace:
    """The place, for tensors of which only those in ``kept`` are left."""
    number = {tensor: n for n, tensor in enumerate(kept)}
    return replace(
        place,
        first_writes=tuple(number[tensor] for tensor in place.first_writes if tensor in number),
        last_writes=tuple(number[tensor] for tensor in place.last_writes if tensor in number),
    )
