"""``deepfreeze show``: what is in a checkpoint, and who wrote it."""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.filesize import decimal

from deepfreeze.cli import command
from deepfreeze.cli.ls import as_json
from deepfreeze.cli.output import line, table
from deepfreeze.cli.target import target
from deepfreeze.format.structure import KERAS_H5, PLAIN_H5, Placed
from deepfreeze.format.tensors import PER_RANK
from deepfreeze.inspect.writers import Share, Shares
from deepfreeze.store.catalog import CheckpointInfo, choose, describe
from deepfreeze.store.run import Run

_LISTED = 50  # more tensors than that are summed up, unless asked for
_RANKS = 4  # as many are named in a cell
_LAYOUTS = {
    KERAS_H5: f"{KERAS_H5}, which stock Keras loads",
    PLAIN_H5: f"{PLAIN_H5}, every variable as it is: deepfreeze.restore loads it, stock Keras can't",
}
_MORE = f"""
The last column says which rank wrote which bytes of a tensor: 0[0:8192] is rank 0, its first 8192
bytes. A checkpoint of more than {_LISTED} tensors is summed up by the parts of the model; --tensor '*'
lists them all. No value is read: `deepfreeze verify` checks those.

exit codes:
  0  shown
  1  there is no such checkpoint, its records or structure are damaged, or no tensor matches
  2  the command line is wrong

examples:
  deepfreeze show runs/nt3                             the newest checkpoint
  deepfreeze show runs/nt3@40 --tensor '*kernel'       tensors whose names end so
  deepfreeze show runs/nt3@40 --json                   everything, for a program
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = """Shows one checkpoint, the newest if no STEP is given: run, commit and ranks, then its tensors with dtype, shape, role,
    size and writers."""
    parser = command.add(commands, "show", run, short="show what is in a checkpoint", text=text, more=_MORE)
    parser.add_argument("target", metavar="RUN[@STEP]", type=target, help="a run, or one of its checkpoints")
    parser.add_argument("--tensor", metavar="GLOB", help="only tensors whose names match, like 'dense*'")


def run(arguments: argparse.Namespace) -> int:
    """Prints facts and tensors; 1 if no tensor matches."""
    path, step = arguments.target
    opened = Run.open(path)
    chosen = choose(opened, step)
    info, shares = describe(opened, chosen), Shares(opened, chosen)
    pattern = "*" if arguments.tensor is None else arguments.tensor
    tensors = [t for t in shares.structure.tensors if fnmatch.fnmatchcase(t.spec.name, pattern)]
    if arguments.json:
        print(json.dumps(_as_json(opened, info, shares, tensors), indent=2))
    else:
        _print(opened, info, shares, tensors, arguments.tensor)
    return 0 if tensors or arguments.tensor is None else 1


def _as_json(opened: Run, info: CheckpointInfo, shares: Shares, tensors: Sequence[Placed]) -> dict[str, Any]:
    return {
        "run": {
            "path": str(opened.path),
            "run_id": opened.run_id,
            "created": opened.created,
            "parent": None if opened.parent is None else opened.parent.to_json(),
        },
        "checkpoint": {**as_json(info), "file_size": shares.file_size},
        "ranks": [asdict(rank) for rank in shares.ranks],
        "tensors": [
            {
                "name": placed.spec.name,
                "dtype": placed.spec.dtype,
                "shape": list(placed.spec.shape),
                "role": placed.spec.role,
                "nbytes": placed.spec.nbytes,
                "path": placed.path,
                "offset": None if placed.spec.role == PER_RANK else placed.offset,
                "written_by": [asdict(share) for share in shares.of(placed)],
            }
            for placed in tensors
        ],
    }


def _print(opened: Run, info: CheckpointInfo, shares: Shares, tensors: Sequence[Placed], pattern: str | None) -> None:
    seeded = [] if opened.parent is None else [("seeded from", str(opened.parent))]
    facts = [
        ("run", f"{opened.path} ({opened.run_id}), begun {_time(opened.created)}"),
        *seeded,
        ("step", str(info.step)),
        ("committed", f"{_time(info.created)} by attempt {info.attempt}"),
        ("model file", f"{shares.path}, {decimal(shares.file_size)}"),
        ("layout", _LAYOUTS.get(info.layout, info.layout)),
        ("state", info.state),
        ("written by", " ".join(f"{key} {value}" for key, value in _framework(info))),
    ]
    if info.diverged:
        facts.append(("ranks differed", f"in {info.diverged} tensors that should have been the same on all"))
    width = max(len(name) for name, _ in facts)
    for name, text in facts:
        line(f"{name.ljust(width)}  {text}")
    line("")
    table(
        (">rank", ">wrote", ">ranges", ">its own"),
        [(str(r.rank), decimal(r.nbytes), str(r.extents), decimal(r.private)) for r in shares.ranks],
    )
    line("")
    if not tensors:
        line("no tensor" if pattern is None else f"no tensor's name matches {pattern}")
    elif pattern is None and len(tensors) > _LISTED:
        _summary(tensors)
    else:
        rows = [_row(shares, placed) for placed in tensors]
        table(("tensor", "dtype", "shape", "role", ">size", "written by rank[bytes]"), rows)


def _row(shares: Shares, placed: Placed) -> tuple[str, ...]:
    spec = placed.spec
    shape = "x".join(map(str, spec.shape)) or "scalar"
    writers = "each rank its own" if spec.role == PER_RANK else _writers(shares.of(placed))
    return (spec.name, spec.dtype, shape, spec.role, decimal(spec.nbytes), writers)


def _writers(shares: Sequence[Share]) -> str:
    named = " ".join(f"{share.rank}[{share.start}:{share.stop}]" for share in shares[:_RANKS])
    return f"{named} and {len(shares) - _RANKS} more" if len(shares) > _RANKS else named or "-"


def _summary(tensors: Sequence[Placed]) -> None:
    """By the first two parts of the path in the file: layers/dense, optimizer/vars."""
    parts: dict[str, list[Placed]] = {}
    for placed in tensors:
        parts.setdefault("/".join(placed.path.split("/")[:2]), []).append(placed)
    rows = [(name, str(len(p)), decimal(sum(t.spec.nbytes for t in p))) for name, p in sorted(parts.items())]
    table(("part", ">tensors", ">size"), rows)
    line(f"{len(tensors)} tensors in all; --tensor '*' lists them")


def _framework(info: CheckpointInfo) -> list[tuple[str, str]]:
    found = info.framework
    return [(found["api"], found["keras"]), ("tensorflow", found["tensorflow"])] if found else []


def _time(text: str) -> str:
    return f"{text.replace('T', ' ').removesuffix('Z')} UTC"
