"""From captured buffers to the engine: one object per training that knows the file's layout and keeps the engine busy.
Imports TensorFlow.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from deepfreeze.core.config import Options
from deepfreeze.core.errors import StructureError
from deepfreeze.core.keras_model import framework_of
from deepfreeze.core.layout_probe import Probe, probe_file
from deepfreeze.core.run import Run
from deepfreeze.core.structure import Structure
from deepfreeze.core.world import World, each, on_rank_0
from deepfreeze.freeze import local_tier, shard_ops, skeleton
from deepfreeze.freeze.capture import Capture, Layout
from deepfreeze.freeze.handoff import Handoff, Regions
from veloc_bindings import EXTERNAL, LOCAL, Report

log = logging.getLogger("deepfreeze")

LEVELS = {"local": LOCAL, "external": EXTERNAL}


@dataclass(frozen=True)
class Target:
    """Where an attempt writes: the run's absolute path and id, and the attempt's id (both 32 hex digits)."""

    run: str
    run_id: str
    attempt: str


class Saver:
    """Saves captured steps. Opening it is collective: every rank must, after the first step, when all variables exist."""

    def __init__(self, model: Any, capture: Capture, target: Target, world: World, options: Options) -> None:
        self._options = options
        self._run_id = target.run_id
        probe = each(world, lambda: probe_file(model, options.state))
        structure, gaps = _agree(probe, target, world, framework_of(model), options.state)
        layout = each(world, lambda: capture.layout(probe, structure))
        self._private = layout.private
        self._regions, self._skeleton = _with_gaps(layout, structure, gaps, len(capture.groups))
        self.nbytes = int(self._regions.nbytes.sum())
        self._local = self._local_tier(target, world)
        self._handoff = each(world, lambda: self._open_engine(structure, target, world))

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
            chunk_bytes=options.chunk_bytes,
            file_size=structure.file_size,
            commit_timeout=options.timeout,
            run_id=bytes.fromhex(target.run_id),
            attempt=bytes.fromhex(target.attempt),
            structure=structure.digest,
            run_dir=target.run,
            local_dir=None if self._local is None else str(self._local),
        )

    def save(self, step: int, buffers: Sequence[tf.Tensor]) -> None:
        """Hands over what was captured as the checkpoint of ``step``, and waits for the level that the options ask for.
        Raises ``EngineError``, ``WaitError``."""
        bases = np.append(shard_ops.addresses(buffers), np.uint64(self._skeleton.__array_interface__["data"][0]))
        views = [memoryview(buffers[group])[place : place + nbytes] for group, place, nbytes in self._private]
        self._handoff.submit(step, self._regions.at(bases), b"".join(views), buffers)
        if self._options.wait_for in LEVELS:
            self._handoff.wait(step, LEVELS[self._options.wait_for])

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

    def give_up(self) -> Exception:
        """The error that says whom the last ``drain`` waited for."""
        return self._handoff.give_up()

    def close(self) -> None:
        """Stops the engine, and removes the local tier's directory if nothing has to stay there."""
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


def _agree(probe: Probe, target: Target, world: World, framework: dict, state: str) -> tuple[Structure, list[bytes]]:
    """Rank 0 lays out the file and stores its structure; the others check theirs against it."""
    gaps: list[bytes] = []

    def lay_out() -> bytes:
        structure, found = skeleton.build(probe, framework, state)
        gaps.extend(found)
        Run.open(target.run).store_structure(structure)
        return structure.to_bytes()

    structure = Structure.from_bytes(on_rank_0(world, lay_out), target.run)
    each(world, lambda: _compare(probe, structure, world.rank))
    return structure, gaps


def _with_gaps(layout: Layout, structure: Structure, gaps: list[bytes], buffers: int) -> tuple[Regions, np.ndarray]:
    """Adds the bytes between the tensors, as one more buffer (empty on all ranks but 0)."""
    between = np.frombuffer(bytearray(b"".join(gaps)), np.uint8)
    places = structure.gaps() if gaps else []
    sizes = np.array([nbytes for _, nbytes in places], np.int64)
    offsets = np.concatenate([layout.file_offset, np.array([offset for offset, _ in places], np.int64)])
    order = np.argsort(offsets, kind="stable")
    regions = Regions(
        buffer=np.concatenate([layout.group, np.full(len(places), buffers, np.int64)])[order],
        place=np.concatenate([layout.place, np.cumsum(sizes) - sizes])[order],
        nbytes=np.concatenate([layout.nbytes, sizes])[order],
        file_offset=offsets[order],
    )
    return regions, between


def _compare(probe: Probe, structure: Structure, rank: int) -> None:
    mine = {slot.path: (slot.spec.shape, slot.spec.dtype, slot.spec.role) for slot in probe.slots}
    theirs = {p.path: (p.spec.shape, p.spec.dtype, p.spec.role) for p in structure.tensors}
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
