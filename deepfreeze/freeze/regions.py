"""A rank's regions: which bytes of a capture this rank writes to which bytes of the model file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deepfreeze.errors import UnsupportedError
from deepfreeze.format.tensors import PER_RANK, RANK_LOCAL
from deepfreeze.frameworks.state_capture import StateCapture
from deepfreeze.freeze.agreed_structure import AgreedStructure
from deepfreeze.plan.placement import UNIT
from deepfreeze.state.dataset_paths import LocatedTensor
from deepfreeze.state.training_state import TrainingState

_GAP_RANKS = 16  # at most; all of them write to one granule, and ranks that follow each other are of one node or two
FIXED = -1  # in place of a piece's number: the region has bytes that are the same in every checkpoint


@dataclass(frozen=True, eq=False)
class Regions:
    """A table of n regions, sorted by file offset, with one array per column, int64 of shape (n,):

    - ``piece``: the number of the captured piece that the region's bytes are from, or ``FIXED``.
    - ``fixed_offset``: for ``FIXED``, where the region's bytes begin in ``fixed``; else without a meaning.
    - ``nbytes``: size in bytes.
    - ``file_offset``: offset in bytes within the model file.

    ``fixed``: the bytes that no capture changes, uint8 of shape (bytes,).
    """

    piece: np.ndarray
    fixed_offset: np.ndarray
    nbytes: np.ndarray
    file_offset: np.ndarray
    fixed: np.ndarray

    @classmethod
    def of_pieces(cls, piece: np.ndarray, nbytes: np.ndarray, file_offset: np.ndarray) -> Regions:
        """One region for each given piece, with all of the piece's bytes. The arguments are columns, int64 of shape (n,), in any order."""
        order = np.argsort(file_offset, kind="stable")
        nowhere = np.zeros(len(order), np.int64)
        return cls(piece[order], nowhere, nbytes[order], file_offset[order], np.zeros(0, np.uint8))

    def rows(self, addresses: np.ndarray) -> np.ndarray:
        """The regions of one capture, in the form that the engine takes: uint64 of shape (n, 3), with a row of address, bytes and file
        offset for each region (``df_region`` of deepfreeze.h). ``addresses``: of the capture's pieces, uint64 of shape (pieces,)."""
        unmoved, captured, pieces = self._fixed_rows
        rows = unmoved.copy()
        rows[captured, 0] = addresses[pieces]
        return rows

    @cached_property
    def _fixed_rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The values that are the same for each capture: all rows, of which those of captured regions lack their address; the numbers of
        these rows; and the pieces of these regions. Kept, because training waits for ``rows`` at each checkpoint."""
        rows = np.empty((len(self.piece), 3), np.uint64)
        rows[:, 0] = np.uint64(self.fixed.__array_interface__["data"][0]) + self.fixed_offset.astype(np.uint64)
        rows[:, 1] = self.nbytes
        rows[:, 2] = self.file_offset
        captured = np.flatnonzero(self.piece != FIXED)
        return rows, captured, self.piece[captured]

    def whole_pages(self, head: bytes, file_size: int, gap: tuple[int, int] = (0, 0)) -> Regions:
        """These regions, and others for the bytes that belong to no tensor, so that this rank writes whole pages alone. Added are the
        file's ``head`` (empty on all ranks but rank 0), and zeros: behind each tensor's end, up to the next page or the end of the file,
        and in ``gap``, the (offset, bytes) of this rank's part of the file's gap."""
        ends = self.file_offset + self.nbytes
        stops = np.minimum(-(-ends // UNIT) * UNIT, file_size)
        padded = stops > ends
        others = [(0, len(head))] * bool(head) + [gap] * bool(gap[1])
        offsets = np.append(ends[padded], [offset for offset, _ in others]).astype(np.int64)
        sizes = np.append((stops - ends)[padded], [nbytes for _, nbytes in others]).astype(np.int64)
        order = np.argsort(np.append(self.file_offset, offsets), kind="stable")
        return Regions(
            piece=np.append(self.piece, np.full(len(offsets), FIXED))[order],
            # ``fixed`` has the head, then zeros, from which each padding and the gap are taken.
            fixed_offset=np.append(self.fixed_offset, np.where(offsets == 0, 0, len(head)))[order],
            nbytes=np.append(self.nbytes, sizes)[order],
            file_offset=np.append(self.file_offset, offsets)[order],
            fixed=np.frombuffer(bytearray(head + bytes(max(UNIT, gap[1]))), np.uint8),
        )


@dataclass(frozen=True, eq=False)
class RankRegions:
    """The bytes of each capture that one rank saves. ``regions``: those that it writes to the model file, in whole pages; ``private``: the
    numbers of the pieces of its per-rank tensors, in the structure's order, which go into the rank's record."""

    regions: Regions
    private: tuple[int, ...]

    @classmethod
    def of(cls, agreed: AgreedStructure, capture: StateCapture[TrainingState], rank: int, world: int) -> RankRegions:
        """Of ``rank``, of ``world`` ranks. The same for every ``fit`` that uses ``capture`` and ``agreed``. ``UnsupportedError`` for a
        variable that no capture holds."""
        _require_captured(agreed.tensors, capture)
        regions, private = _of_tensors(agreed, capture, rank)
        gap = part_of_gap(agreed.gap, rank, world)
        return cls(regions.whole_pages(agreed.head, agreed.structure.file_size, gap), tuple(private))


def part_of_gap(gap: tuple[int, int], rank: int, world: int) -> tuple[int, int]:
    """One rank's pages of the gap, as (offset, bytes). The first ranks have even shares. A gap is shorter than a granule, and a rank saves
    at least 8 granules, so a 16th of the gap is less than 1 % of what the rank saves."""
    offset, nbytes = gap
    ranks = min(world, _GAP_RANKS)
    begin, end = (nbytes // UNIT * min(n, ranks) // ranks * UNIT for n in (rank, rank + 1))
    return offset + begin, end - begin


def _of_tensors(agreed: AgreedStructure, capture: StateCapture[TrainingState], rank: int) -> tuple[Regions, list[int]]:
    """The regions of this rank's pieces of tensors in the model file; and the numbers of the pieces of its per-rank tensors, in the
    structure's order."""
    structure, pieces, key = agreed.structure, capture.pieces, capture.state.key
    offsets = {placed.path: placed.offset for placed in structure.tensors}
    numbers: dict[int, list[int]] = {}
    for number, piece in enumerate(pieces):
        numbers.setdefault(id(piece.variable), []).append(number)
    rows: list[tuple[int, int, int]] = []
    private: dict[str, int] = {}
    for tensor in agreed.tensors:
        mine = numbers.get(id(key(tensor.variable)), [])
        if tensor.spec.role == PER_RANK:
            if mine:
                private[tensor.path] = mine[0]
        elif tensor.spec.role != RANK_LOCAL or rank == 0:
            rows += [(number, pieces[number].nbytes, offsets[tensor.path] + pieces[number].start) for number in mine]
    table = np.array(rows, np.int64).reshape(-1, 3)
    order = [placed.path for placed in structure.per_rank]
    return Regions.of_pieces(*table.T), [private[path] for path in order if path in private]


def _require_captured(tensors: Sequence[LocatedTensor], capture: StateCapture[TrainingState]) -> None:
    """``UnsupportedError`` for a variable that no capture holds, because the first step has made it. Every rank finds the same variable."""
    for tensor in tensors:
        if tensor.spec.nbytes and not capture.captures(tensor.variable):
            raise UnsupportedError(
                where=f"variable {tensor.spec.name}, saved as {tensor.path}",
                expected="a variable that the model, or one of its optimizers, had when training began",
                found="one that came into being in the first step",
                todo="build it before fit, an optimizer by its build(variables)",
            )
