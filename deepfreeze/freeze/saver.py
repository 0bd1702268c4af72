"""From captured buffers to the engine: one object per training that knows the file's layout and keeps the engine busy.
Imports TensorFlow.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deepfreeze.core.config import Options
from deepfreeze.core.errors import EngineError, StructureError
from deepfreeze.core.extras import PATH as EXTRA
from deepfreeze.core.extras import Extras
from deepfreeze.core.keras_model import framework_of, tf_variable
from deepfreeze.core.layout_probe import Probe, probe_file
from deepfreeze.core.model_config import ModelConfig
from deepfreeze.core.run import Run
from deepfreeze.core.structure import Structure
from deepfreeze.core.target import Target
from deepfreeze.core.world import World, each, on_rank_0, together
from deepfreeze.freeze import local_tier, skeleton
from deepfreeze.freeze.capture import Capture
from deepfreeze.freeze.engine_buffers import EngineBuffers
from deepfreeze.freeze.graph_buffers import as_bytes
from deepfreeze.freeze.handoff import Handoff, Regions, whole_pages
from deepfreeze.freeze.pieces import Captured
from veloc_bindings import EXTERNAL, LOCAL, REFUSE_ALL, REFUSE_FIRST, REFUSE_NONE, EngineFault, Report, crc32c

log = logging.getLogger("deepfreeze")

_PARTING = 5.0  # seconds
LEVELS = {"local": LOCAL, "external": EXTERNAL}
_REFUSES = {"auto": REFUSE_FIRST, "warn": REFUSE_NONE, "raise": REFUSE_ALL}


@dataclass(frozen=True)
class _Form:
    """A rank's part of every checkpoint, for captures of one form: regions, and (buffer, place, nbytes) of what is
    private."""

    regions: Regions
    private: tuple[tuple[int, int, int], ...]


class Saver:
    """Saves captured steps. Opening it is collective: every rank must, after the first step, when all variables exist."""

    def __init__(
        self, model: Any, capture: Capture, extras: Extras, target: Target, world: World, options: Options
    ) -> None:
        self._options = options
        self._capture = capture
        self._extras = extras
        self._run_id = target.run_id
        probe = each(world, lambda: probe_file(model, options.state))
        structure, head = _agree(probe, capture.order, extras, target, world, framework_of(model), options.state)
        if options.save_config:
            on_rank_0(world, lambda: _store_config(model, target))
        layout = each(world, lambda: capture.layout(probe, structure))
        tensors = Regions(layout.group, layout.place, layout.nbytes, layout.file_offset)
        regions, self._skeleton = whole_pages(tensors, len(capture.groups), head, structure.file_size)
        self._loose = _Form(regions, layout.private)
        self.nbytes = int(regions.nbytes.sum())
        self._replicas = _Replicas(probe, structure) if world.size > 1 else _Replicas()
        self._local = self._local_tier(target, world)
        self._handoff = each(world, lambda: self._open_engine(structure, target, world))
        self._planned: _Form | None = None
        buffers = capture.buffers
        if isinstance(buffers, EngineBuffers):
            self._planned = each(world, lambda: self._plan(buffers))

    def _open_engine(self, structure: Structure, target: Target, world: World) -> Handoff:
        options = self._options
        return Handoff(
            target.run,
            options.timeout,
            rank=world.rank,
            world=world.size,
            in_flight=options.in_flight,
            slots=options.slots,
            writers=options.writers,
            keep=options.keep,
            hashes=len(self._replicas.names),
            refuse_diverged=_REFUSES[options.on_divergence],
            nice=options.nice,
            chunk_bytes=options.chunk_bytes,
            file_size=structure.file_size,
            commit_timeout=options.timeout,
            run_id=bytes.fromhex(target.run_id),
            attempt=bytes.fromhex(target.attempt),
            structure=structure.digest,
            run_dir=target.run,
            local_dir=None if self._local is None else str(self._local),
        )

    def _plan(self, buffers: EngineBuffers) -> _Form:
        """Lets captures go to the engine's memory from now on, each piece to the place of its region there."""
        loose, groups = self._loose, len(buffers.groups)
        regions = loose.regions
        named = list(zip(regions.buffer.tolist(), regions.place.tolist()))
        # What is in no region of this rank: seeds, and variables that Keras does not save.
        sides: dict[tuple[int, int], int] = {}
        for group, pieces in enumerate(buffers.groups):
            at = 0
            for piece in pieces:
                sides[group, at] = piece.nbytes
                at += piece.nbytes
        for name in named:
            sides.pop(name, None)
        private_nbytes = len(self._private(loose, None, False)) + sum(nbytes for _, _, nbytes in loose.private)
        rows = regions.at(np.zeros(groups + 1, np.uint64))
        *found, side = self._handoff.plan(rows, private_nbytes, sum(_padded(nbytes) for nbytes in sides.values()))
        # A tensor in two datasets is captured once, to the first one's place.
        places = dict(zip(reversed(named), reversed(found)))
        for name, nbytes in sides.items():
            places[name] = side
            side += _padded(nbytes)
        buffers.plan(places)
        self._handoff.attach(buffers.area)
        between = regions.buffer == groups
        moved = [place if gap else places[name] for name, place, gap in zip(named, regions.place, between)]
        return _Form(
            replace(regions, buffer=between.astype(np.int64), place=np.array(moved, np.int64)),
            tuple((0, places[group, place], nbytes) for group, place, nbytes in loose.private),
        )

    def collect(self, step: int) -> Captured:
        """What the graph captured at ``step``. Raises ``EngineError``, ``WaitError``."""
        try:
            return self._capture.collect(step)
        except EngineFault as fault:
            raise self._handoff.error(fault, f"memory for the capture of step {step}") from fault

    def take(self) -> Captured:
        """Captures the state as it is now, between two executions. Raises as ``collect`` does."""
        try:
            return self._capture.take()
        except EngineFault as fault:
            raise self._handoff.error(fault, "memory for a capture") from fault

    def reserve(self) -> None:
        """Waits until there is memory for the next capture, so that the graph need not. Raises as ``collect`` does."""
        if self._planned is not None:
            self._handoff.reserve()

    def has_room(self, armed: bool) -> bool:
        """Whether there is memory now for one capture more, beside the next one if that is ``armed``."""
        return self._handoff.room() > (1 if armed and self._planned is None else 0)

    def save(self, step: int, captured: Captured, check: bool = False) -> None:
        """Hands over what was captured as the checkpoint of ``step``, and waits for the level that the options ask for.
        ``check``: with checksums of all that the ranks should hold alike, as it is now. Raises ``EngineError``,
        ``WaitError``."""
        form = self._planned if captured.planned and self._planned is not None else self._loose
        bases = np.append(captured.bases, np.uint64(self._skeleton.__array_interface__["data"][0]))
        private = self._private(form, captured, check)
        self._handoff.submit(step, form.regions.at(bases), private, (captured.hold, self._skeleton))
        if self._options.wait_for in LEVELS:
            self._handoff.wait(step, LEVELS[self._options.wait_for])

    def _private(self, form: _Form, captured: Captured | None, check: bool) -> bytes:
        """This rank's private bytes; without a capture, all but the captured ones."""
        seeds = [captured.read(*where) for where in form.private] if captured is not None else []
        extra = self._extras.take() if self._extras else b""
        return b"".join([*seeds, extra, self._replicas.checksums(check)])

    @property
    def replicated(self) -> list[str]:
        """Names of the tensors that the ranks should hold alike, in the order of their checksums."""
        return self._replicas.names

    @property
    def unfinished(self) -> list[int]:
        """Steps neither committed nor failed, as of the last ``poll``."""
        return self._handoff.unfinished

    def poll(self) -> list[Report]:
        """What the engine has to say since the last call. Never blocks."""
        return self._handoff.poll()

    def drain(self, seconds: float) -> bool:
        """Waits for all in flight; False if that is not over after ``seconds``."""
        return self._handoff.drain(seconds)

    def stalled(self, begin: float) -> bool:
        """Whether a wait has ended: it began at ``begin`` (``time.monotonic()``, seconds), and no bytes have moved for the time-out."""
        return self._handoff.stalled(begin)

    def give_up(self) -> Exception:
        """The error that says whom the last ``drain`` waited for."""
        return self._handoff.give_up()

    def close(self) -> None:
        """Stops the engine, and removes the local tier's directory if nothing has to stay there. What is in flight, because
        training ended by an exception, has some seconds to be committed."""
        with contextlib.suppress(EngineError):
            self._handoff.poll()
            if self._handoff.unfinished:
                self._handoff.drain(_PARTING)
        self._handoff.close()
        if self._local is not None:
            local_tier.discard(local_tier.directory(self._local, self._run_id))

    def _local_tier(self, target: Target, world: World) -> Any:
        here = socket.gethostname()
        needs = world.gather((here, self.nbytes * self._options.slots))
        need = sum(nbytes for node, nbytes in needs if node == here)
        chosen = each(world, lambda: local_tier.choose(self._options.local, need))
        if chosen is None and self._options.local is not None:
            log.warning("no room for %d bytes on a local tier of %s: writing to %s directly", need, here, target.run)
        return chosen


class _Replicas:
    """The tensors that all ranks should hold alike."""

    def __init__(self, probe: Probe | None = None, structure: Structure | None = None) -> None:
        variables = {slot.path: tf_variable(slot.variable) for slot in probe.slots} if probe is not None else {}
        placed = structure.replicated if structure is not None else []
        self.names = [p.spec.name for p in placed]
        self._variables = [variables[p.path] for p in placed]

    def checksums(self, take: bool) -> bytes:
        """A little-endian u32 CRC32C of each one as it is now, read where it lies; zeros if not to be taken."""
        crcs = np.zeros(len(self._variables), "<u4")
        for i, variable in enumerate(self._variables if take else ()):
            crcs[i] = crc32c(as_bytes(variable.read_value()))
        return crcs.tobytes()


def _padded(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


def _agree(
    probe: Probe, order: Sequence[int], extras: Extras, target: Target, world: World, framework: dict, state: str
) -> tuple[Structure, bytes]:
    """Rank 0 lays out the file and stores its structure; the others check theirs against it. With the bytes of the file's head,
    which rank 0 alone has."""
    heads: list[bytes] = []
    extra = [extras.spec(max(together(world, extras.nbytes)))] if extras else []

    def lay_out() -> bytes:
        structure, head = skeleton.build(probe, order, extra, framework, state)
        heads.append(head)
        Run.open(target.run).store_structure(structure)
        return structure.to_bytes()

    structure = Structure.from_bytes(on_rank_0(world, lay_out), target.run)
    each(world, lambda: _compare(probe, structure, world.rank))
    return structure, b"".join(heads)


def _store_config(model: Any, target: Target) -> None:
    """Before the attempt's first checkpoint, so that each of them has it."""
    Run.open(target.run).store_config(ModelConfig.of(model, target.run_id, target.attempt))


def _compare(probe: Probe, structure: Structure, rank: int) -> None:
    mine = {slot.path: (slot.spec.shape, slot.spec.dtype, slot.spec.role) for slot in probe.slots}
    theirs = {p.path: (p.spec.shape, p.spec.dtype, p.spec.role) for p in structure.tensors if p.path != EXTRA}
    differing = sorted(path for path in mine.keys() | theirs.keys() if mine.get(path) != theirs.get(path))
    if differing:
        path = differing[0]
        raise StructureError(
            where=f"rank {rank}",
            expected=f"the same model as on rank 0, where {path} is {_text(theirs.get(path))}",
            found=f"{_text(mine.get(path))} ({len(differing)} differ)",
            todo="build the same model, with the same optimizer, on every rank",
        )


def _text(spec: tuple | None) -> str:
    return "missing" if spec is None else f"{spec[1]} of shape {spec[0]} ({spec[2]})"
