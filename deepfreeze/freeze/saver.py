"""Hands a training's captures to the engine: turns captured pieces into regions of the model file, and waits for the engine."""

from __future__ import annotations

import contextlib
import logging
import socket
from pathlib import Path

import numpy as np

from deepfreeze.errors import EngineError
from deepfreeze.format.structure import Structure
from deepfreeze.frameworks.framework import Capture, Captured, EngineMemory
from deepfreeze.freeze import regions as rank_regions
from deepfreeze.freeze.agreed_structure import AgreedStructure
from deepfreeze.freeze.bound_engine import BoundEngine
from deepfreeze.freeze.engine_places import places
from deepfreeze.freeze.replicas import ReplicaChecksums
from deepfreeze.freeze.settings import SaverSettings
from deepfreeze.ranks.world import World, each, on_rank_0
from deepfreeze.state.attachments import Attachments
from deepfreeze.store.target import Target
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.tiers import local_tier
from veloc_bindings import EXTERNAL, LOCAL, REFUSE_ALL, REFUSE_FIRST, REFUSE_NONE, Report

log = logging.getLogger("deepfreeze")

_PARTING = 5.0  # seconds
LEVELS = {"local": LOCAL, "external": EXTERNAL}
_REFUSES = {"auto": REFUSE_FIRST, "warn": REFUSE_NONE, "raise": REFUSE_ALL}


class Saver:
    """Saves captured steps, from construction to ``close``. Construction is collective; ``capture`` has all its pieces then."""

    def __init__(
        self,
        agreed: AgreedStructure,
        capture: Capture,
        attachments: Attachments,
        target: Target,
        world: World,
        settings: SaverSettings,
    ) -> None:
        self._settings = settings
        self._capture = capture
        self._attachments = attachments
        structure = agreed.structure
        each(world, lambda: rank_regions.require_captured(agreed.tensors, capture))
        on_rank_0(world, lambda: _store(structure, target))
        tensors, self._private = rank_regions.of_tensors(agreed.tensors, structure, capture.pieces, world.rank)
        self._regions = tensors.whole_pages(agreed.head, structure.file_size)
        self.nbytes = int(self._regions.nbytes.sum())
        self._replicas = ReplicaChecksums(capture, agreed.tensors, structure, world.size)
        self._local = self._local_tier(target, world)
        self._closing = contextlib.ExitStack()
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.close)
            each(world, lambda: self._open_engine(structure, target, world))
            memory = capture.engine_memory
            if memory is not None:
                each(world, lambda: self._capture_into(memory))
            on_error.pop_all()

    def _open_engine(self, structure: Structure, target: Target, world: World) -> None:
        settings = self._settings
        if self._local is not None:
            self._closing.callback(local_tier.discard, local_tier.directory(self._local, target.run_id))
        self._engine = BoundEngine(
            target.run,
            settings.timeout,
            rank=world.rank,
            world=world.size,
            in_flight=settings.in_flight,
            slots=settings.slots,
            writers=settings.writers,
            keep=settings.keep,
            hashes=len(self._replicas.names),
            refuse_diverged=_REFUSES[settings.on_divergence],
            nice=settings.nice,
            chunk_bytes=settings.chunk_bytes,
            file_size=structure.file_size,
            commit_timeout=settings.timeout,
            run_id=bytes.fromhex(target.run_id),
            attempt=bytes.fromhex(target.attempt),
            structure=structure.digest,
            run_dir=target.run,
            local_dir=None if self._local is None else str(self._local),
        )
        self._closing.callback(self._engine.close)
        self._closing.callback(self._part)

    def _capture_into(self, memory: EngineMemory) -> None:
        """From the next capture on, each piece goes to the place of its region in the engine's memory."""
        sizes = np.array([piece.nbytes for piece in self._capture.pieces], np.int64)
        private_nbytes = len(self._private_bytes(None, False)) + int(sizes[self._private].sum())
        memory.place(places(self._engine, self._regions, sizes, private_nbytes))
        self._engine.attach(memory.area)

    def collect(self, step: int) -> Captured:
        """The graph's capture of ``step``. Raises ``EngineError``, ``WaitError``."""
        with self._engine.translated(f"memory for the capture of step {step}"):
            return self._capture.collect(step)

    def take(self) -> Captured:
        """Captures the state as it is now, between two executions. Raises as ``collect`` does."""
        with self._engine.translated("memory for a capture"):
            return self._capture.take()

    def reserve(self) -> None:
        """Waits until there is memory for the next capture, so that the graph need not. Raises as ``collect`` does."""
        if self._capture.engine_memory is not None:
            self._engine.reserve()

    def has_room(self, armed: bool) -> bool:
        """Whether there is memory now for one capture more, beside the next one if that is ``armed``."""
        return self._engine.room() > (1 if armed and self._capture.engine_memory is None else 0)

    def save(self, step: int, captured: Captured, compare: bool = False) -> None:
        """Hands over a capture as the checkpoint of ``step``, and waits for the level that the settings ask for. ``compare``: with
        checksums of all tensors that the ranks should hold alike, as they are now. Raises ``EngineError``, ``WaitError``."""
        private = self._private_bytes(captured, compare)
        rows = self._regions.rows(captured.addresses)
        self._engine.submit(step, rows, private, (captured.hold, self._regions.fixed))
        if self._settings.wait_for in LEVELS:
            self._engine.wait(step, LEVELS[self._settings.wait_for])

    def _private_bytes(self, captured: Captured | None, compare: bool) -> bytes:
        """This rank's private bytes, as the record has them; without a capture, all but the captured ones."""
        pieces = self._capture.pieces
        seeds = (
            [captured.read(number, pieces[number].nbytes) for number in self._private] if captured is not None else []
        )
        extra = self._attachments.take() if self._attachments else b""
        return b"".join([*seeds, extra, self._replicas.take(compare)])

    @property
    def replicated(self) -> list[str]:
        """Names of the tensors that the ranks should hold alike, in the order of their checksums."""
        return self._replicas.names

    @property
    def unfinished(self) -> list[int]:
        """Steps neither committed nor failed, as of the last ``poll``."""
        return self._engine.unfinished

    def poll(self) -> list[Report]:
        """The engine's reports since the last call. Never blocks."""
        return self._engine.poll()

    def drain(self, seconds: float) -> bool:
        """Waits for all in flight; False if that is not over after ``seconds``."""
        return self._engine.drain(seconds)

    def stalled(self, begin: float) -> bool:
        """Whether a wait has ended: it began at ``begin`` (``time.monotonic()``, seconds), and no bytes have moved for the time-out."""
        return self._engine.stalled(begin)

    def give_up(self) -> Exception:
        """The error that says whom the last ``drain`` waited for."""
        return self._engine.give_up()

    def close(self) -> None:
        """Stops the engine, and removes the local tier's directory if nothing has to stay there; each of both also where another part
        of it fails. Safe to call twice."""
        self._closing.close()

    def _part(self) -> None:
        """Gives checkpoints in flight, because training ended by an exception, some seconds to be committed."""
        with contextlib.suppress(EngineError):
            self._engine.poll()
            if self._engine.unfinished:
                self._engine.drain(_PARTING)

    def _local_tier(self, target: Target, world: World) -> Path | None:
        here = socket.gethostname()
        needs = world.gather((here, self.nbytes * self._settings.slots))
        need = sum(nbytes for node, nbytes in needs if node == here)
        chosen = each(world, lambda: local_tier.choose(self._settings.local, need))
        if chosen is None and self._settings.local is not None:
            log.warning("no room for %d bytes on a local tier of %s: writing to %s directly", need, here, target.run)
        return chosen


def _store(structure: Structure, target: Target) -> None:
    WritableRun.open(target.run).store_structure(structure)
