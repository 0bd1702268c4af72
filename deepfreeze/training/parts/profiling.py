"""The profile of a training's step, and the plan that follows from it (``Capture(profile=True)``).

Marks are in the train function until three checkpoints were captured and 30 more steps are done. Then the ranks agree on one profile, which
has every window and rate of the slowest rank. Rank 0 has it planned (``step_planner``). Training goes on as before: it does not act on the
plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deepfreeze.engine.records import StepMark
from deepfreeze.format.tensors import REPLICATED
from deepfreeze.frameworks import table
from deepfreeze.frameworks.framework import StepMarks
from deepfreeze.freeze.agreed_structure import AgreedStructure
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.schedule import Schedule
from deepfreeze.plan.step import marks, planning
from deepfreeze.plan.step.marks import MarkNotes, MarkPlace
from deepfreeze.plan.step.parts import joined
from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.ranks.world import each
from deepfreeze.state.training_state import StateTensor
from deepfreeze.training.begun import Begun
from deepfreeze.training.installation import Installation
from deepfreeze.training.part import Part
from deepfreeze.training.step_planner import StepPlanner

WARM = 5  # steps before the marks: the first ones are untypical
STEPS, CHECKPOINTS = 30, 3
_MOST_STEPS = 3000  # that are marked, for three checkpoints
_MOST_TENSORS = 2000  # of a profile; of more the small ones are joined


class StepProfiling(Part):
    """Profiles the step of one training, from its beginning until the profile stands or the run is closed."""

    def __init__(self, begun: Begun) -> None:
        self._begun, self._open_run, self._options = begun, begun.open_run, begun.options
        self._counter = begun.counted.steps
        self._model, self._fitting = begun.fitting.model, begun.fitting
        self._installation: Installation | None = None
        self._saver: Saver | None = None
        self._structure = ""  # the digest of it
        self._warm = 0
        self._marked: StepMarks | None = None
        self._steps: list[list[StepMark]] = []
        self._captured: list[int] = []  # marked steps that were captured
        self._over = False
        self._planner: StepPlanner | None = None

    def begins(self, installation: Installation) -> bool:
        """Says why the step can't be profiled, if that is so."""
        self._installation = installation
        against = self._fitting.against or self._against(installation)
        if against:
            self._over = True
            self._tell_why_not(against)
        else:
            self._open_run.closing.callback(self._close)
        return True

    def _against(self, installation: Installation) -> str:
        """The reason why a step of captures in the train function can't be profiled, "" for none."""
        steps, batches = self._fitting.steps_per_execution, self._counter.batches_per_step
        reasons = (
            (not table.of(self._model).capabilities.marks, "its framework has no marks for a step"),
            (steps > 1, f"an execution has {steps} steps (steps_per_execution)"),
            (getattr(self._model, "run_eagerly", False), "it runs eagerly"),
            (batches > 1, f"an update takes {batches} batches (gradient accumulation)"),
            (installation.capture.engine_memory is None, "captures are taken by TensorFlow's own ops"),
            (not hasattr(self._model, "make_train_function"), "it is no fit"),
        )
        return next((reason for holds, reason in reasons if holds), "")

    def _tell_why_not(self, why: str) -> None:
        self._begun.tell(f"Capture(profile=True): the step is not profiled, because {why}")

    def opens(self, saver: Saver, agreed: AgreedStructure) -> None:
        """Gets the saver."""
        self._saver, self._structure = saver, agreed.structure.digest.hex()

    def goes_on(self, schedule: Schedule) -> None:
        """Profiles the execution. Collective when the profile is complete, which is so on all ranks after the same step."""
        assert self._saver is not None
        self._executed(self._saver, schedule.captured)

    def _executed(self, saver: Saver, captured: int) -> None:
        """``captured``: the last step that the ranks have captured, even if one of them could not hand it over."""
        if self._planner is not None:
            self._planner.tell(self._begun.events)
        if self._over:
            return
        if self._marked is None:
            self._warm += 1
            if self._warm >= WARM:
                tensors = [tensor for tensor, _ in self._tensors()]

                def mark() -> None:
                    optimizer = self._options.optimizer or self._model.optimizer
                    self._marked = table.of(self._model).marked_step(self._model, optimizer, tensors)
                    saver.engine.attach(self._marked.area)

                each(self._open_run.attempt.world, mark)
            return
        noted = self._marked.take()
        if not noted:
            return
        self._steps.append(noted)
        if captured == self._counter.now():
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
        self._tell_why_not(why)

    def _tensors(self) -> list[tuple[StateTensor, int]]:
        """The saved tensors, with the bytes that this rank captures of each."""
        assert self._installation is not None
        capture = self._installation.capture
        mine: Counter[int] = Counter()
        for piece in capture.pieces:
            mine[id(piece.variable)] += piece.nbytes
        return [(tensor, mine[id(capture.state.key(tensor.variable))]) for tensor in capture.state.tensors]

    def _finish(self, saver: Saver) -> None:
        """Collective. Makes the profile, which rank 0 has planned."""
        assert self._marked is not None
        self._over = True
        marked, world = self._marked, self._open_run.attempt.world
        places, notes = marked.places, _notes(self._steps[1:], saver.tier)  # the first one was traced
        marked.close()
        self._steps = []
        missing = {mark for one in world.gather(marks.absent(notes)) for mark in one}
        if {0, len(places) - 1} & missing:
            self._give_up("the model's train function was replaced meanwhile")
            return
        there = [mark for mark in range(len(places)) if mark not in missing]
        arranged = world.broadcast(marks.arranged([places[mark] for mark in there], notes.of(there)))
        places = [place for _, place in arranged]
        notes = notes.of([there[mark] for mark, _ in arranged])
        own = self._tensors()
        stats = saver.engine.stats()
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
            structure=self._structure,
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
        target, speaks = self._open_run.attempt.target, bool(self._options.verbose)
        self._planner = StepPlanner(target, profile, every, memory, blocks, speaks)
        self._planner.start()

    def _close(self) -> None:
        if self._marked is not None:
            self._marked.close()
        if self._planner is not None:
            self._planner.end(self._begun.events)


def _notes(steps: Sequence[Sequence[StepMark]], tier: str) -> MarkNotes:
    """The notes as arrays. ``tier``: the kind of the local tier: what is copied leaves the engine's memory for a tier on a disk, and for
    the external store otherwise."""
    # The fields of StepMark, each of shape (steps, marks).
    at, cpu, *places = np.moveaxis(np.array(steps, np.float64), 2, 0)
    written, busy = places[1::2] if tier == "disk" else places[0::2]
    return MarkNotes(at / 1e6, cpu / 1e6, written, busy / 1e6)


def _renumbered(place: MarkPlace, kept: Sequence[int]) -> MarkPlace:
    """The place, for tensors of which only those in ``kept`` are left."""
    number = {tensor: n for n, tensor in enumerate(kept)}
    return replace(
        place,
        first_writes=tuple(number[tensor] for tensor in place.first_writes if tensor in number),
        last_writes=tuple(number[tensor] for tensor in place.last_writes if tensor in number),
    )
