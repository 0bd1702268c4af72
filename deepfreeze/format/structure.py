"""The structure of a checkpoint: which tensors it has, and where in the assembled file each one lies.

Checkpoints of one model share one structure, stored in the run once, under its hash (docs/format.md, "Structure").
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from deepfreeze.errors import CorruptError, StructureError
from deepfreeze.format import names
from deepfreeze.format.strict_json import DAMAGED, MAX_INT, Fields, is_printable, parse_object, short
from deepfreeze.format.tensors import DTYPES, PER_RANK, REPLICATED, ROLES, TensorSpec, shape_of

FORMAT = 2
FIRST = 1  # the format without named values: read, and never written
STATES = ("full", "weights")
KERAS_H5 = "keras-h5"  # the file is as Keras's save_weights would have written it, and Keras's load_weights loads it
PLAIN_H5 = "plain-h5"  # one dataset for each variable, under DeepFreeze's own paths, where Keras could not save the variables as they are
LAYOUTS = (KERAS_H5, PLAIN_H5)
APIS = ("keras", "tf_keras", "tensorflow")
_MAX_DIMS = 32  # the most dimensions that every supported numpy can hold
MAX_STRUCTURE = 64 << 20  # bytes, enough for 400,000 tensors: a bound on what a reader allocates


@dataclass(frozen=True)
class Placed:
    """A tensor and its place in the model file. ``path``: the path of its HDF5 dataset; ``offset``: the byte of the file at which the
    dataset's bytes start.

    A per-rank tensor is not in the model file: its ``path`` begins with ``seeds/``, its ``offset`` is 0.
    """

    spec: TensorSpec
    path: str
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes that the tensor takes in the model file; 0 for a per-rank tensor."""
        return 0 if self.spec.role == PER_RANK else self.spec.nbytes

    @property
    def end(self) -> int:
        """Offset of the first byte behind the tensor."""
        return self.offset + self.nbytes


@dataclass(frozen=True)
class Structure:
    """All tensors of a checkpoint: first those in the model file, sorted by (offset, name), then the per-rank tensors in the order
    in which the constructor got them.

    ``file_size``: the model file's size in bytes; ``framework``: has the keys api (one of ``APIS``), keras and tensorflow (their
    versions); ``state``: "full" or "weights"; ``layout``: one of ``LAYOUTS``; ``values``: the named values, plain JSON; ``version``: of
    the format. Raises StructureError if tensors overlap, lie outside
    of the file, share a name or a path, or have a dtype that is not in ``DTYPES``.
    """

    tensors: tuple[Placed, ...]
    file_size: int
    framework: Mapping[str, str] = field(hash=False)
    state: str
    layout: str = KERAS_H5
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    version: int = FORMAT

    def __post_init__(self) -> None:
        object.__setattr__(self, "framework", dict(self.framework))
        problem = self._problem()
        if problem is None:
            object.__setattr__(self, "tensors", tuple(sorted(self.tensors, key=_order)))
            problem = self._overlap()
        if problem is not None:
            expected, found = problem
            todo = "rename the layers or variables concerned, or report a bug if the model looks right"
            raise StructureError(where="the model's structure", expected=expected, found=found, todo=todo)

    def to_bytes(self) -> bytes:
        """The structure file's bytes: canonical JSON."""
        return self._canonical

    @cached_property
    def _canonical(self) -> bytes:
        value = {
            "file": names.MODEL_FILE,
            "file_size": self.file_size,
            "format": self.version,
            "framework": dict(self.framework),
            "layout": self.layout,
            "state": self.state,
            "tensors": [
                {
                    "dtype": t.spec.dtype,
                    "name": t.spec.name,
                    "nbytes": t.spec.nbytes,
                    "offset": t.offset,
                    "path": t.path,
                    "role": t.spec.role,
                    "shape": list(t.spec.shape),
                }
                for t in self.tensors
            ],
            **({} if self.version == FIRST else {"values": dict(self.values)}),
        }
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: object) -> Structure:
        """Parses a structure file. CorruptError (at ``where``) unless ``to_bytes`` would give exactly ``data``."""
        if len(data) > MAX_STRUCTURE:
            raise CorruptError(
                where=where, expected=f"at most {MAX_STRUCTURE} bytes", found=f"{len(data)} bytes", todo=DAMAGED
            )
        top = Fields(parse_object(data, where), where)
        version = top.version(FIRST, FORMAT)
        values = () if version == FIRST else ("values",)
        top.keys("file", "file_size", "format", "framework", "layout", "state", "tensors", *values)
        top.one_of("file", (names.MODEL_FILE,))
        framework = top.child("framework")
        framework.keys("api", "keras", "tensorflow")
        tensors = tuple(_placed(Fields(t, where, f"tensors[{i}]")) for i, t in enumerate(top.items("tensors")))
        try:
            structure = cls(
                tensors=tensors,
                file_size=top.integer("file_size", low=1),
                framework={key: framework.text(key) for key in ("api", "keras", "tensorflow")},
                state=top.one_of("state", STATES),
                layout=top.one_of("layout", LAYOUTS),
                values=top.child("values").plain() if values else {},
                version=version,
            )
        except StructureError as error:
            raise CorruptError(where=where, expected=error.expected, found=error.found, todo=DAMAGED) from None
        if structure.to_bytes() != data:
            raise top.error("canonical JSON, tensors sorted by offset, nbytes of shape and dtype", "another form")
        return structure

    @cached_property
    def hash(self) -> str:
        """SHA-256 of ``to_bytes()``, 64 hexadecimal digits."""
        return self.digest.hex()

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of ``to_bytes()``, 32 bytes."""
        return hashlib.sha256(self.to_bytes()).digest()

    @cached_property
    def by_name(self) -> dict[str, Placed]:
        """The tensors by name, in the structure's order."""
        return {t.spec.name: t for t in self.tensors}

    @cached_property
    def per_rank(self) -> list[Placed]:
        """The per-rank tensors, in the order in which each rank's record holds their bytes."""
        return [t for t in self.tensors if t.spec.role == PER_RANK]

    @cached_property
    def replicated(self) -> list[Placed]:
        """The replicated tensors, in the order of their checksums in the records."""
        return [t for t in self.tensors if t.spec.role == REPLICATED]

    @cached_property
    def private_nbytes(self) -> int:
        """Bytes of all per-rank tensors of one rank together."""
        return sum(t.spec.nbytes for t in self.per_rank)

    def gaps(self) -> list[tuple[int, int]]:
        """(offset, nbytes) of every range of the model file that belongs to no tensor: HDF5's metadata and padding."""
        ranges: list[tuple[int, int]] = []
        end = 0
        for tensor in (t for t in self.tensors if t.nbytes):
            if tensor.offset > end:
                ranges.append((end, tensor.offset - end))
            end = tensor.end
        if end < self.file_size:
            ranges.append((end, self.file_size - end))
        return ranges

    def within(self, offset: int, nbytes: int) -> list[str]:
        """Names of the tensors that have bytes in [offset, offset + nbytes)."""
        end = offset + nbytes
        return [t.spec.name for t in self.tensors if t.nbytes and t.offset < end and t.end > offset]

    def describe(self, offset: int, nbytes: int) -> str:
        """The range [offset, offset + nbytes) of the model file as text for messages, with the names of its first three tensors."""
        tensors = self.within(offset, nbytes) or ["HDF5's own metadata"]
        more = f" and {len(tensors) - 3} more" if len(tensors) > 3 else ""
        return f"bytes {offset} to {offset + nbytes} ({', '.join(tensors[:3])}{more})"

    def _problem(self) -> tuple[str, str] | None:
        """(expected, found) of the first thing that is wrong, for an error; None if nothing is."""
        if set(self.framework) != {"api", "keras", "tensorflow"} or self.framework["api"] not in APIS:
            return f"framework with api ({' or '.join(APIS)}), keras and tensorflow", repr(self.framework)
        if self.state not in STATES or self.layout not in LAYOUTS:
            return f"state {'|'.join(STATES)} and layout {'|'.join(LAYOUTS)}", f"{self.state!r} and {self.layout!r}"
        seen: set[str] = set()
        paths: set[str] = set()
        for tensor in self.tensors:
            spec = tensor.spec
            if spec.dtype not in DTYPES or spec.role not in ROLES or len(spec.shape) > _MAX_DIMS:
                return f"a numeric dtype, a known role, at most {_MAX_DIMS} dimensions", f"{spec}"[:200]
            if not is_printable(spec.name) or not is_printable(tensor.path):
                return "names without control characters", f"{short(spec.name)} at {short(tensor.path)}"
            # numpy limits the product of the dimensions of an empty array too, without its zeros.
            if math.prod(max(1, n) for n in spec.shape) * spec.itemsize > MAX_INT:
                return f"tensors of at most {MAX_INT} bytes", f"{short(spec.name)} of shape {spec.shape}"[:200]
            if spec.name in seen or tensor.path in paths:
                return "names and paths used once", f"{spec.name!r} at {tensor.path!r} twice"
            if any(part in ("", ".", "..") for part in tensor.path.split("/")):
                return "paths of HDF5 datasets, relative to the file's root", f"{tensor.path!r}"
            if tensor.offset < 0 or tensor.end > self.file_size or (not tensor.nbytes and tensor.offset):
                place = f"{spec.name!r} at {tensor.offset}, {spec.nbytes} bytes, in a file of {self.file_size}"
                return "every tensor inside of the file, and at 0 if it has no bytes there", place
            seen.add(spec.name)
            paths.add(tensor.path)
        return None

    def _overlap(self) -> tuple[str, str] | None:
        """(expected, found) of the first two tensors that overlap; None if none do. The tensors are sorted."""
        end, before = 0, ""
        for tensor in (t for t in self.tensors if t.nbytes):
            if tensor.offset < end:
                return "tensors that don't overlap", f"{tensor.spec.name!r} at {tensor.offset} inside of {before!r}"
            end, before = tensor.end, tensor.spec.name
        return None


def _order(tensor: Placed) -> tuple[bool, int, str]:
    # The per-rank tensors come last. They all have the same key, and the sort is stable: they keep their order.
    private = tensor.spec.role == PER_RANK
    return (private, tensor.offset, "" if private else tensor.spec.name)


def _placed(fields: Fields) -> Placed:
    fields.keys("dtype", "name", "nbytes", "offset", "path", "role", "shape")
    given = fields.items("shape")
    shape = shape_of(given, _MAX_DIMS)
    if shape is None:
        found = ", ".join(map(short, given[:_MAX_DIMS]))
        raise fields.error(f"a shape of at most {_MAX_DIMS} integers from 0 to {MAX_INT}", found[:200])
    spec = TensorSpec(
        name=fields.text("name"),
        dtype=fields.one_of("dtype", DTYPES),
        shape=shape,
        role=fields.one_of("role", ROLES),
    )
    return Placed(spec=spec, path=fields.text("path"), offset=fields.integer("offset"))
