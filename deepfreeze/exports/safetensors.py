"""``.safetensors``: the size of the header (u64), a header of JSON, then the tensors' bytes, one after the other.

The safetensors library is not used, because its ``save_file`` needs all tensors in memory at once. This module has one tensor in memory,
so it exports checkpoints of any size. The tests open its files with that library.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from deepfreeze.errors import UnsupportedError
from deepfreeze.format.dataset_groups import weights
from deepfreeze.format.structure import Placed, Structure
from deepfreeze.format.tensors import PER_RANK
from deepfreeze.inspect.verify import OnProgress
from deepfreeze.store.catalog import CheckpointInfo
from deepfreeze.store.run import Run
from deepfreeze.thaw.read import TensorReader

# The format's names of the dtypes that it has.
DTYPES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16",
    "uint32": "U32", "uint64": "U64", "bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64",
    "complex64": "C64",
}  # fmt: skip
_METADATA = "__metadata__"
_ALIGNMENT = 8  # bytes: the first tensor begins at a multiple of it, as in the files of the safetensors library


def write(run: Run, step: int, file: BinaryIO, progress: OnProgress, everything: bool = False) -> None:
    """Writes the weights, and if ``everything`` also the optimizer's variables, the metrics' states and rank 0's seeds. CorruptError naming
    the first damaged bytes, UnsupportedError for a tensor that the format can't hold."""
    with TensorReader(run, step) as tensors:
        structure = tensors.structure
        chosen = _without_attachments(structure) if everything else weights(structure)
        # Tensors with the widest elements first: then each tensor begins at a multiple of its element's size.
        chosen.sort(key=lambda placed: -placed.spec.itemsize)
        header = make_header(chosen, metadata(tensors.info))
        file.write(len(header).to_bytes(8, "little") + header)
        done, total = 0, sum(placed.spec.nbytes for placed in chosen)
        progress(done, total)
        for placed in chosen:
            file.write(tensors[placed.spec.name].reshape(-1).view(np.uint8).data)
            done += placed.spec.nbytes
            progress(done, total)


def _without_attachments(structure: Structure) -> list[Placed]:
    """All tensors. In version 1 of the format the attachments (``extra=``, ``rng=``) were one, in an encoding of DeepFreeze's own."""
    return [t for t in structure.tensors if t.spec.role != PER_RANK or t.path.startswith("seeds/")]


def metadata(info: CheckpointInfo) -> dict[str, str]:
    """The file's metadata: run, step, attempt, commit time, framework and parent of the checkpoint, as strings."""
    entries = {
        "run_id": info.run_id,
        "step": str(info.step),
        "attempt": info.attempt,
        "created": info.created,
        "state": info.state,
        "structure": info.structure,
        **info.framework,
    }
    if info.parent is not None:
        entries |= {"parent": str(info.parent), "parent_run_id": info.parent.run_id}
    return entries


def make_header(tensors: Sequence[Placed], about: dict[str, str]) -> bytes:
    """The header's JSON for tensors in the order of their bytes, with blanks behind it up to the alignment. ``about``: the metadata.
    UnsupportedError for a dtype or a name that the format does not have."""
    value: dict[str, object] = {_METADATA: about}
    end = 0
    for placed in tensors:
        spec = placed.spec
        if spec.dtype not in DTYPES or spec.name == _METADATA:
            found = f"{spec.name} of dtype {spec.dtype}"
            todo = "export to .weights.h5 instead"
            raise UnsupportedError(where=".safetensors", expected=f"dtypes {', '.join(DTYPES)}", found=found, todo=todo)
        begin, end = end, end + spec.nbytes
        value[spec.name] = {"dtype": DTYPES[spec.dtype], "shape": list(spec.shape), "data_offsets": [begin, end]}
    text = json.dumps(value, separators=(",", ":")).encode()
    return text.ljust(-(-(8 + len(text)) // _ALIGNMENT) * _ALIGNMENT - 8)
