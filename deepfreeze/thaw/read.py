"""Tensors of a checkpoint as numpy arrays, by name, without TensorFlow, and without reading what is not asked for."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

from deepfreeze.errors import CorruptError, OptionError
from deepfreeze.format.manifest import Manifest
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.format.structure import Placed, Structure
from deepfreeze.format.tensors import numpy_dtype
from deepfreeze.frameworks.memory import Room, numpy_room
from deepfreeze.store.catalog import CheckpointInfo, describe, marks_of, use
from deepfreeze.store.run import Run
from deepfreeze.thaw.extent_table import ExtentTable
from deepfreeze.thaw.extents import Extents, Landing, Passage, Reading, Stretch
from deepfreeze.thaw.model_file import ModelFile
from deepfreeze.thaw.rank_records import file_of


class TensorReader(Mapping[str, np.ndarray]):
    """A checkpoint's tensors by name, in the structure's order; each access reads and checks the tensor anew.

    Arrays are read-only, little-endian, of the structure's dtype and shape; per-rank tensors are rank 0's. The model file stays open
    until ``close``, and can be read even after the job's retention has deleted it. One thread at a time may use a reader.
    """

    def __init__(self, run: Run, step: int, table: ExtentTable | None = None) -> None:
        """``table``: this checkpoint's, if the caller has read it already. NotFoundError if there is no checkpoint of ``step``,
        CorruptError, naming the file, if a file of it is damaged, missing or of another size."""
        table = ExtentTable.read(run, step) if table is None else table
        #: The checkpoint without its metrics, which are in a file of the run and not of the checkpoint.
        self.described: CheckpointInfo = describe(run, step, {table.manifest.structure: table.structure}, marks={})
        self.run = run
        self._file = ModelFile(run, step, table)
        self.manifest: Manifest = self._file.table.manifest
        self.structure: Structure = self._file.table.structure
        self.path: Path = self._file.path
        own = self._file.table.private
        self._private = split_private(self.structure, own, self.path.parent / file_of(self.manifest, 0))
        self._extents = Extents(self._file.table.extents, self._file.ranges)

    @functools.cached_property
    def info(self) -> CheckpointInfo:
        """The checkpoint. Its metrics are those that the run had of it at the first call."""
        return self.described.with_metrics(marks_of(self.run))

    def __getitem__(self, name: str) -> np.ndarray:
        placed = self.structure.by_name[name]
        if not placed.nbytes:
            return self._private[name] if name in self._private else _shaped(placed, np.empty(0, np.uint8))
        room = numpy_room(placed.spec)
        with self.start([(placed, room)], past_cache=False) as reading:
            reading.finish()
        room.value.flags.writeable = False
        return room.value

    def start(self, wanted: Iterable[tuple[Placed, Room]], past_cache: bool, between: bool = False) -> Reading:
        """Begins to read and check tensors in the background, each into its room: for tensors that are in the model file, not the
        per-rank ones. Use the result in a ``with`` that ends before ``close``, and call its ``finish``.

        ``past_cache``: parts of the file that are not in the page cache are read past it (``Ranges.past_cache``). ``between``: the
        file's bytes that belong to no tensor, HDF5's own, are checked too, and not kept. OptionError if the reader is closed.
        """
        if self._file.ranges.closed:
            todo = "read before close(), or call deepfreeze.read again"
            raise OptionError(where=self.path, expected="an open reader", found="a closed one", todo=todo)
        if past_cache:
            self._file.ranges.past_cache()
        parts: list[Stretch] = [Landing(placed.spec.name, placed.offset, room.data) for placed, room in wanted]
        if between:
            parts += [Passage("HDF5's own bytes", offset, nbytes) for offset, nbytes in self.structure.gaps()]
        return self._extents.start(parts)

    def __iter__(self) -> Iterator[str]:
        return iter(self.structure.by_name)

    def __len__(self) -> int:
        return len(self.structure.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.structure.by_name  # the inherited one would read the tensor

    def close(self) -> None:
        """Closes the file. May be called again."""
        if hasattr(self, "_file"):
            self._file.close()

    def __enter__(self) -> TensorReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def read(run: str | os.PathLike[str], step: int | str | None = None) -> TensorReader:
    """Opens a checkpoint (``step``: its step or its tag, None for the newest) as a mapping of names to arrays, read when accessed.

    NotFoundError if there is no such run or checkpoint, CorruptError if a file of it is damaged; accessing a damaged
    tensor raises CorruptError naming the file, the tensor and the range. Close it, or use it in a ``with``.

    numpy has no bfloat16 of its own. Where the package ml_dtypes is installed (it comes with TensorFlow), such a tensor has its
    dtype; where it is not, the array has the elements' bits, as uint16: ``(bits.astype("u4") << 16).view("f4")`` are their values.
    """
    opened_run = Run.open(run)
    return use(opened_run, step, lambda chosen: TensorReader(opened_run, chosen))


def split_private(structure: Structure, data: bytes, where: object) -> dict[str, np.ndarray]:
    """The per-rank tensors by name, read-only, out of ``data``, a record's private bytes. CorruptError (at ``where``) unless ``data``
    is as long as the structure's per-rank tensors are together."""
    if len(data) != structure.private_nbytes:
        expected = f"{structure.private_nbytes} private bytes"
        raise CorruptError(where=where, expected=expected, found=f"{len(data)}", todo=DAMAGED)
    found = {}
    offset = 0
    for placed in structure.per_rank:
        end = offset + placed.spec.nbytes
        found[placed.spec.name] = _shaped(placed, np.frombuffer(data[offset:end], np.uint8))
        offset = end
    return found


def _dtype(placed: Placed) -> np.dtype:
    return numpy_dtype(placed.spec.dtype).newbyteorder("<")


def _shaped(placed: Placed, data: np.ndarray) -> np.ndarray:
    array = data.view(_dtype(placed)).reshape(placed.spec.shape)
    array.flags.writeable = False
    return array
