"""Hands the captures of one ``fit`` to the engine: turns captured pieces into regions of the model file, and waits for the engine."""

from __future__ import annotations

import contextlib
import logging
import socket
from pathlib import Path

import numpy as np

from deepfreeze.errors import EngineError
from deepfreeze.format import named_values
from deepfreeze.format.named_values import ATTACHMENTS
from deepfreeze.format.structure import Structure
from deepfreeze.frameworks.framework import CapturedState, EngineMemory, StateCapture
from deepfreeze.freeze.agreed_structure import AgreedStructure
from deepfreeze.freeze.bound_engine import BoundEngine
from deepfreeze.freeze.engine_places import places
from deepfreeze.freeze.regions import RankRegions
from deepfreeze.freeze.replicas import ReplicaChecksums
from deepfreeze.freeze.settings import SaverSettings
from deepfreeze.plan.comparisons import Part
from deepfreeze.ranks.world import World, each, on_rank_0
from deepfreeze.state.attachments import Attachments
from deepfreeze.store.target import Target
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.tiers import local_tier
from veloc_bindings import EXTERNAL, LOCAL, REFUSE_ALL, REFUSE_FIRST, REFUSE_NONE, Report

log = logging.getLogger("deepfreeze")

# How many seconds ``close`` waits for checkpoints in flight. There are some only if an exception has ended training.
_CLOSING_SECONDS = 5.0
LEVELS = {"local": LOCAL, "external": EXTERNAL}
_REFUSES = {"auto": REFUSE_FIRST, "warn": REFUSE_NONE, "raise": REFUSE_ALL}


class Saver:
    """Saves captured steps, from construction to ``close``. The training thread calls all methods, between two executions of the train
    function; each rank calls them by itself. ``nbytes``: bytes of this rank's regions in each checkpoint; ``last_reports``: the engine's
    reports that ``close`` has taken, when nobody asked any more."""

    def __init__(
        self,
        agreed: AgreedStructure,
        mine: RankRegions,
        capture: StateCapture,
        attachments: Attachments,
        target: Target,
        world: World,
        settings: SaverSettings,
    ) -> None:
        """Collective. ``mine``: this rank's regions of each capture. Stores the structure in the run, chooses the local tier and opens the
        engine.

        ``RunError`` if the structure can't be stored, ``OptionError`` for a wrong ``local``, ``EngineError`` if the engine can't be
        opened. A rank without an error of its own raises ``WorldError`` then."""
        self._settings = settings
        self._capture = capture
        self._attachments = attachments
        structure = agreed.structure
        on_rank_0(world, lambda: _store(structure, target))
        self._regions, self._private = mine.regions, list(mine.private)
        self.nbytes = int(self._regions.nbytes.sum())
        self._replicas = ReplicaChecksums(capture, agreed.tensors, structure, world.size)
        self._local = self._local_tier(target, world)
        self.last_reports: list[Report] = []
        self._closing = contextlib.ExitStack()
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.close)
            each(world, lambda: self._open_engine(structure, target, world))
            memory = capture.engine_memory
            if memory is not None:
                each(world, lambda: self._capture_into(memory))
            on_error.pop_all()

    def _open_engine(self, structure: Structure, target: Target, world: World) -> None:
        settings, engine = self._settings, self._settings.engine
        if self._local is not None:
            self._closing.callback(local_tier.discard, local_tier.directory(self._local, target.run_id))
        self._engine = BoundEngine(
            target.run,
            settings.timeout,
            rank=world.rank,
            world=world.size,
            in_flight=engine.in_flight,
            slots=engine.slots,
            writers=engine.writers,
            keep=settings.keep,
            hashes=len(self._replicas.names),
            refuse_diverged=_REFUSES[settings.replicas.on_divergence],
            nice=engine.nice,
            chunk_bytes=engine.chunk_bytes,
            file_size=structure.file_size,
            commit_timeout=settings.timeout,
            run_id=bytes.fromhex(target.run_id),
            attempt=bytes.fromhex(target.attempt),
            structure=structure.digest,
            run_dir=target.run,
            local_dir=None if self._local is None else str(self._local),
        )
        self._closing.callback(self._engine.close)
        self._closing.callback(self._drain_at_close)

    def _capture_into(self, memory: EngineMemory) -> None:
        """Gives each piece the place of its region in the engine's memory, from the next capture on."""
        sizes = np.array([piece.nbytes for piece in self._capture.pieces], np.int64)
        private_nbytes = len(self._own_bytes(None, None)[0]) + int(sizes[self._private].sum())
        memory.place(places(self._engine, self._regions, sizes, private_nbytes))
        self._engine.attach(memory.area)

    def collect(self, step: int) -> CapturedState:
        """The capture that the train function took at ``step``. ``EngineError`` if it took none at this step, ``WaitError`` if there was no
        memory for it in time."""
        with self._engine.translated(f"memory for the capture of step {step}"):
            return self._capture.collect(step)

    def take(self) -> CapturedState:
        """Captures the state as it is now. ``EngineError``, ``WaitError`` if there was no memory for it in time."""
        with self._engine.translated("memory for a capture"):
            return self._capture.take()

    def reserve(self) -> None:
        """Waits until there is memory for the next capture: in the graph no Ctrl-C would end this wait. Without engine memory it returns at
        once. Raises ``EngineError``, ``WaitError``."""
        if self._capture.engine_memory is not None:
            self._engine.reserve()

    def has_room(self, armed: bool) -> bool:
        """Whether the engine has memory for a capture in the execution after the next one. ``armed``: the next execution captures too, so
        memory for two captures is needed. Never waits. Raises ``EngineError``."""
        return self._engine.room() > (1 if armed and self._capture.engine_memory is None else 0)

    def save(self, step: int, captured: CapturedState, compare: Part | None = None) -> None:
        """Hands ``captured`` to the engine as the checkpoint of ``step``, and waits for the level that the setting ``wait_for`` names.
        Called at most once for a step, and in ascending order of steps. ``compare``: the checkpoint has checksums of this part of the
        replicated tensors' present values, by which rank 0 compares the ranks; None: of none. Raises ``EngineError``, ``WaitError``."""
        private, values = self._own_bytes(captured, compare)
        if self._attachments:
            values[ATTACHMENTS] = self._attachments.take(step)
        rows = self._regions.rows(captured.addresses)
        self._engine.submit(step, rows, private, (captured.hold, self._regions.fixed), named_values.encode(values))
        if self._settings.wait_for in LEVELS:
            self._engine.wait(step, LEVELS[self._settings.wait_for])

    def _own_bytes(self, captured: CapturedState | None, compare: Part | None) -> tuple[bytes, dict[str, bytes]]:
        """This rank's private bytes, in the order of its record: seeds, checksums of the replicated tensors; and the named values that
        belong to the checksums. With ``None`` for ``captured`` the seeds are left out, for a caller that asks for the size of the rest."""
        pieces = self._capture.pieces
        seeds = (
            [captured.read(number, pieces[number].nbytes) for number in self._private] if captured is not None else []
        )
        checksums, values = self._replicas.take(compare)
        return b"".join([*seeds, checksums]), values

    @property
    def replicated(self) -> list[str]:
        """The names of the replicated tensors, in the order of their checksums; empty in a job of one rank."""
        return self._replicas.names

    @property
    def unfinished(self) -> list[int]:
        """The steps that were saved and were neither committed nor failed at the last ``poll``, in ascending order."""
        return self._engine.unfinished

    def poll(self) -> list[Report]:
        """The engine's reports since the last call. Never waits. Raises ``EngineError``."""
        return self._engine.poll()

    def drain(self, seconds: float) -> bool:
        """Waits, for at most ``seconds``, until every saved checkpoint is committed or failed. Returns whether that is so."""
        return self._engine.drain(seconds)

    def stalled(self, begin: float) -> bool:
        """Whether a wait has ended: it began at ``begin`` (``time.monotonic()``, seconds), and no bytes have moved for the time-out."""
        return self._engine.stalled(begin)

    def give_up(self) -> Exception:
        """The error to raise when a caller no longer repeats ``drain``, which has returned False. It names the rank that is waited for."""
        return self._engine.give_up()

    def close(self) -> None:
        """Waits some seconds for checkpoints in flight, stops the engine, and removes the local tier's directory if no slot has to stay
        there. Each of these is done also if the one before has failed. Safe to call twice."""
        self._closing.close()

    def _drain_at_close(self) -> None:
        """Waits for checkpoints that are in flight because an exception has ended training: they may be committed in time."""
        with contextlib.suppress(EngineError):
            self.last_reports += self._engine.poll()
            if self._engine.unfinished:
                self._engine.drain(_CLOSING_SECONDS)
                self.last_reports += self._engine.poll()

    def _local_tier(self, target: Target, world: World) -> Path | None:
        """Collective. The base directory of the local tier; None if there is none. The ranks of a node share the room on it, so the need of
        all of them is added up."""
        here = socket.gethostname()
        needs = world.gather((here, self.nbytes * self._settings.engine.slots))
        need = sum(nbytes for node, nbytes in needs if node == here)
        chosen = each(world, lambda: local_tier.choose(self._settings.local, need))
        if chosen is None and self._settings.local is not None:
            log.warning("no room for %d bytes on a local tier of %s: writing to %s directly", need, here, target.run)
        return chosen


def _store(structure: Structure, target: Target) -> None:
    WritableRun.open(target.run).store_structure(structure)
