"""Hands the captures of one ``fit`` to an engine: turns captured pieces into regions of the model file, and waits for the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deepfreeze.engine.backend import Opening
from deepfreeze.engine.backends import table
from deepfreeze.engine.open_engine import OpenEngine
from deepfreeze.engine.options import Engine
from deepfreeze.engine.records import Report
from deepfreeze.engine.target import Target
from deepfreeze.errors import EngineError
from deepfreeze.format import manifest_values, named_values
from deepfreeze.format.levels import LEVELS, Level
from deepfreeze.format.named_values import ATTACHMENTS, MANIFEST
from deepfreeze.format.structure import Structure
from deepfreeze.frameworks.state_capture import CapturedState, StateCapture
from deepfreeze.freeze import engine_size
from deepfreeze.freeze.agreed_structure import AgreedStructure
from deepfreeze.freeze.capture_places import CapturePlan
from deepfreeze.freeze.engine_size import Captures
from deepfreeze.freeze.regions import RankRegions
from deepfreeze.freeze.replicas import ReplicaChecksums
from deepfreeze.freeze.settings import SaverSettings
from deepfreeze.notices import Notify
from deepfreeze.plan.comparisons import Compared
from deepfreeze.ranks.nodes import Nodes
from deepfreeze.ranks.world import World, each, on_rank_0
from deepfreeze.state.attachments import Attachments
from deepfreeze.state.training_state import TrainingState
from deepfreeze.store.writable_run import WritableRun

# How many seconds ``last_reports`` waits for checkpoints in flight. There are some only if an exception has ended training.
_CLOSING_SECONDS = 5.0
# Bytes of a rank's record and of its line in the manifest, and of the extents of one region, most of which have one.
_RECORD, _EXTENTS = 2048, 64


@dataclass(frozen=True, eq=False)
class _Save:
    """A step that is to be saved. ``collect``: returns its capture; ``checksums``, ``values``: this rank's private bytes without the seeds,
    and its named values, as they were at this step; ``manifest``: the named values of its manifest. ``held``: the attachments are still
    missing."""

    step: int
    collect: Callable[[], CapturedState]
    checksums: bytes
    values: dict[str, bytes]
    manifest: Mapping[str, Any]
    held: bool = False


class Saver:
    """Saves captured steps, from construction to ``close``. The training thread calls all methods, between two executions of the train
    function; each rank calls them by itself. ``nbytes``: bytes of this rank's regions in each checkpoint; ``tier``: the kind of this
    rank's local tier, "memory", "disk" or "none"; ``engine``: the open engine, which callers ask for reports, and tell to hold, tune and
    remove."""

    def __init__(
        self,
        agreed: AgreedStructure,
        mine: RankRegions,
        capture: StateCapture[TrainingState],
        attachments: Attachments,
        target: Target,
        world: World,
        nodes: Nodes,
        settings: SaverSettings,
        notify: Notify,
        stored: bool = False,
    ) -> None:
        """Collective. ``mine``: this rank's regions of each capture; ``notify``: is told if no local tier has room, or if the backend can't
        be closed; ``stored``: this process has stored the structure in the run already. Stores the structure, chooses the local tier and
        opens the backend.

        ``RunError`` if the structure can't be stored, ``OptionError`` for a wrong ``local`` or too little ``memory``, ``EngineError`` if
        the backend can't be opened. A rank without an error of its own raises ``WorldError`` then."""
        self._settings, self._notify = settings, notify
        self._capture = capture
        self._attachments = attachments
        structure = agreed.structure
        on_rank_0(world, lambda: WritableRun.open(target.run).store_structure(structure, durable=stored))
        self._regions, self._private = mine.regions, list(mine.private)
        self.nbytes = int(self._regions.nbytes.sum())
        can = table.chosen().can
        self._replicas = ReplicaChecksums(capture, agreed.tensors, structure, world.size if can.hashes else 1)
        if world.rank == 0 and not can.in_run:
            notify(
                "warning",
                f"{target.run}: checkpoints of this backend are not in the run: they are not listed, removed or resumed",
            )
        if world.rank == 0 and world.size > 1 and not can.hashes:
            notify(
                "warning", f"{target.run}: this backend compares no ranks, so nobody notices if their weights differ"
            )
        self._tells_others, self._describes = world.size > 1, world.rank == 0
        self._structure, self._world_size = structure, world.size
        self._pending: _Save | None = None
        self._record_nbytes = 0  # of the newest checkpoint, without the extents
        plan = each(world, self._planned)
        captures = Captures(plan, self.nbytes, capture.engine_memory is not None)
        self._size = engine_size.size(settings, captures, target.run, structure.file_size, world, nodes, notify)
        self.tier = self._size.tier
        self._closing = contextlib.ExitStack()
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.close)
            each(world, lambda: self._open_backend(structure, target, world, nodes))
            each(world, lambda: self._place(plan))
            on_error.pop_all()

    def _open_backend(self, structure: Structure, target: Target, world: World, nodes: Nodes) -> None:
        settings, local = self._settings, self._size.local
        if local is not None:
            self._closing.callback(local[0].discard, target.run_id)
        opening = Opening(
            target=target,
            structure=structure.digest,
            file_size=structure.file_size,
            rank=world.rank,
            world=world.size,
            node=nodes.ranks,
            local=None if local is None else local[1],
            in_memory=self._capture.engine_memory is not None,
            hashes=len(self._replicas.names),
            on_divergence=settings.replicas.on_divergence,
            timeout=settings.timeout,
            bounded=settings.storage is not None,
            one_memory=settings.memory is not None,
            engine=self._size.options,
        )
        self.engine = OpenEngine(table.chosen(), opening, self._notify)
        self._closing.callback(self.engine.close)

    def _planned(self) -> CapturePlan:
        """The plan of this rank's captures: their regions, private bytes and side bytes."""
        sizes = np.array([piece.nbytes for piece in self._capture.pieces], np.int64)
        private_nbytes = len(self._replicas.take(None)[0]) + int(sizes[self._private].sum())
        return CapturePlan.of(self._regions, sizes, private_nbytes)

    def _place(self, plan: CapturePlan) -> None:
        """Tells the backend which regions each capture will have. If captures lie in the backend's memory, gives each piece its place there
        from the next capture on."""
        found = plan.places(self.engine)
        memory = self._capture.engine_memory
        if memory is not None and found is not None:
            with self.engine.translated("places for captures in the engine's memory"):
                memory.place(found)
            self.engine.attach(memory.area)

    @property
    def may_be_late(self) -> bool:
        """Whether the train function may leave a part of a capture to the next step. The same on all ranks."""
        return self._capture.may_be_late

    def collect(self, step: int) -> CapturedState:
        """The capture that the train function took at ``step``. ``EngineError`` if it took none at this step, ``WaitError`` if there was no
        memory for it in time."""
        with self.engine.translated(f"memory for the capture of step {step}"):
            return self._capture.collect(step)

    def take(self) -> CapturedState:
        """Captures the state as it is now. ``EngineError``, ``WaitError`` if there was no memory for it in time."""
        with self.engine.translated("memory for a capture"):
            return self._capture.take()

    def reserve(self) -> None:
        """Waits until there is memory for the first groups of the next capture: in the graph no Ctrl-C would end this wait. Without engine
        memory it returns at once. Raises ``EngineError``, ``WaitError``."""
        if self._capture.engine_memory is not None:
            self.engine.reserve()

    def has_room(self, armed: bool) -> bool:
        """Whether the backend has memory for a capture in the execution after the next one. ``armed``: the next execution captures too, so
        memory for two captures is needed. Never waits. Raises ``EngineError``."""
        others = (
            armed + self.held if self._capture.engine_memory is None else 0
        )  # of which the backend does not know yet
        return self.engine.room() > others

    def save(
        self,
        step: int,
        collect: Callable[[], CapturedState],
        compare: Compared | None = None,
        manifest: Mapping[str, Any] | None = None,
        late: bool = False,
        hold: bool = False,
    ) -> None:
        """Hands the capture that ``collect`` returns to the backend as the checkpoint of ``step``, and waits for the level that the setting
        ``wait_for`` names. Called at most once for a step, and in ascending order of steps. ``compare``: the checkpoint has checksums of
        this part of the replicated tensors' present values, by which rank 0 compares the ranks; None: of none. ``manifest``: named values
        of the checkpoint's manifest; rank 0's count.

        ``late``: a capture of which a part is left to the next step is ``pending`` after this call, unless the setting ``wait_for`` names
        a level: the caller calls ``finish`` after the next execution, before anything else is captured or saved.

        ``hold``: the capture is collected now, and is ``held`` until the caller calls ``release``. The attachments are asked for then.

        Raises ``EngineError``, ``WaitError``. If this rank has nothing to hand over, the step fails on the other ranks too."""
        level = LEVELS[self._settings.wait_for]
        with self._told_others(step):
            try:
                saved = self._describe(step, collect, compare, manifest, hold)
            except EngineError:
                with contextlib.suppress(EngineError):
                    collect()  # or the next capture would be taken for a part of this one
                raise
            if hold:
                captured = collect()
                self._pending = replace(saved, collect=lambda: captured)
                return
            if late and level == Level.CAPTURED and self._capture.held:
                self._pending = saved
                return
            self._submit(saved)
        self._wait(step)

    def _wait(self, step: int) -> None:
        """Waits for the level that the setting ``wait_for`` names."""
        level = LEVELS[self._settings.wait_for]
        if level > Level.CAPTURED:
            self.engine.wait(step, level)

    @property
    def pending(self) -> int | None:
        """The step that ``save`` was called for and that is not handed over yet, None if there is none."""
        return None if self._pending is None else self._pending.step

    @property
    def held(self) -> bool:
        """Whether a step is ``pending`` because ``save`` was told to hold it."""
        return self._pending is not None and self._pending.held

    def finish(self) -> None:
        """Hands over a late capture: at once if the next step has copied what was left to it, else this call copies it. Does nothing if
        none is ``pending``, or if it is ``held``. Raises as ``save``."""
        saved = self._pending
        if saved is None or saved.held:
            return
        self._pending = None
        with self._told_others(saved.step):
            self._submit(saved)

    def release(self, epoch_open: bool, manifest: Mapping[str, Any] | None = None, wait: bool = True) -> None:
        """Hands over the step that is ``held``, with the present attachments. Does nothing if none is. ``epoch_open``: the callbacks among
        the attachments have not seen the end of its epoch yet; ``manifest``: named values of the manifest that replace those of the same
        names given to ``save``; ``wait``: waits for the level that the setting ``wait_for`` names. Raises as ``save``."""
        saved = self._pending
        if saved is None or not saved.held:
            return
        self._pending = None
        with self._told_others(saved.step):
            saved.values[ATTACHMENTS] = self._attachments.take(saved.step, epoch_open)
            self._submit(replace(saved, manifest={**saved.manifest, **(manifest or {})}))
        if wait:
            self._wait(saved.step)

    @contextlib.contextmanager
    def _told_others(self, step: int) -> Iterator[None]:
        """If the block raises, the step fails on the other ranks too."""
        try:
            yield
        except EngineError as error:
            self.fail(step, error)
            raise

    def _describe(
        self,
        step: int,
        collect: Callable[[], CapturedState],
        compare: Compared | None,
        manifest: Mapping[str, Any] | None,
        hold: bool,
    ) -> _Save:
        """The parts of the checkpoint that no capture has: checksums, attachments, values for the manifest. They are asked for in the
        captured step itself, because a late capture is handed over after the next one. ``hold``: without the attachments."""
        checksums, values = self._replicas.take(compare)
        if self._attachments and not hold:
            values[ATTACHMENTS] = self._attachments.take(step)
        return _Save(step, collect, checksums, values, manifest or {}, hold)

    def _submit(self, saved: _Save) -> None:
        captured = saved.collect()
        private = saved.checksums
        if self._private:
            pieces = self._capture.pieces
            seeds = [captured.read(number, pieces[number].nbytes) for number in self._private]
            # In the order of the record: the seeds, then the checksums of the replicated tensors.
            private = b"".join([*seeds, private])
        rows, owners = self._regions.rows(captured.addresses), (captured.hold, self._regions.fixed)
        values = saved.values
        if saved.manifest and self._describes:
            values = {**values, MANIFEST: manifest_values.encode(saved.manifest)}
        section = named_values.encode(values)
        self._record_nbytes = len(private) + len(section)
        self.engine.submit(saved.step, rows, private, owners, section)

    @property
    def engine_options(self) -> Engine:
        """The options that the backend was opened with."""
        return self._size.options

    @property
    def most_uncommitted(self) -> int:
        """How many checkpoints may be captured and not yet committed, whatever lies on the local tier otherwise."""
        return self._size.most_uncommitted

    def expects(self, attached: int) -> None:
        """The attachments of this rank will take so many bytes, as far as is known before the first checkpoint."""
        self._record_nbytes = max(self._record_nbytes, attached)

    def fail(self, step: int, error: EngineError) -> None:
        """This rank has no capture of ``step`` to hand over, which fails on the other ranks too."""
        if self._tells_others:
            with contextlib.suppress(EngineError):
                self.engine.fail(step, str(error))

    @property
    def checkpoint_nbytes(self) -> int:
        """How many bytes a checkpoint takes on the external store at most, if no rank has much larger attachments than this one: the model
        file, and twice the records of all ranks, which are gathered in another file."""
        record = _RECORD + _EXTENTS * len(self._regions.nbytes) + self._record_nbytes
        return self._structure.file_size + 2 * self._world_size * record

    @property
    def replicated(self) -> list[str]:
        """The names of the replicated tensors, in the order of their checksums; empty in a job of one rank."""
        return self._replicas.names

    def last_reports(self) -> list[Report]:
        """To be called before ``close``: hands over the step that is pending, and returns the backend's last reports. Waits some seconds
        for checkpoints that are in flight because an exception has ended training: they may be committed in time. No wait is longer,
        because the other ranks may not have raised."""
        reports: list[Report] = []
        with contextlib.suppress(EngineError):
            self.finish()
            self.release(epoch_open=True, wait=False)
        with contextlib.suppress(EngineError):
            reports += self.engine.poll()[0]
            if self.engine.unfinished:
                self.engine.drain(_CLOSING_SECONDS)
                reports += self.engine.poll()[0]
        return reports

    def close(self) -> None:
        """Stops the backend, which first finishes removals (a long list of them is left to the next job), and removes the local tier's
        directory if no slot has to stay there. The latter is done also if the former has failed. Safe to call twice."""
        self._closing.close()
