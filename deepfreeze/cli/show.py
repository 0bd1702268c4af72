"""``deepfreeze show``: prints what is in a checkpoint, and which rank wrote it."""

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
from deepfreeze.inspect.writers import ShardTable, WrittenShard
from deepfreeze.store.catalog import CheckpointInfo, choose, describe
from deepfreeze.store.run import Run

_LISTED = 50  # the most tensors that are listed one by one, unless --tensor is given
_RANKS = 4  # the most shards of a tensor that a cell names
_LAYOUTS = {
    KERAS_H5: f"{KERAS_H5}, which stock Keras loads",
    PLAIN_H5: f"{PLAIN_H5}, every variable as it is: deepfreeze.restore loads it, stock Keras can't",
}
_MORE = f"""
The last column names the ranks that wrote the bytes of a tensor: 0[0:8192] means that rank 0 wrote
its first 8192 bytes. If a checkpoint has more than {_LISTED} tensors, they are summed up by parts of the
model; --tensor '*' lists them all. show reads no tensors; `deepfreeze verify` checks them.

exit codes:
  0  the checkpoint was shown
  1  there is no such checkpoint, its records or structure are damaged, or no tensor matches
  2  the command line is wrong

examples:
  deepfreeze show runs/nt3                             the newest checkpoint
  deepfreeze show runs/nt3@40 --tensor '*kernel'       tensors whose names end with "kernel"
  deepfreeze show runs/nt3@40 --json                   all that is known of it, for a program
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = """Shows one checkpoint, the newest if no STEP is given: run, commit and ranks, then its tensors with dtype, shape, role,
    size, and the ranks that wrote them."""
    parser = command.add(commands, "show", run, short="show what is in a checkpoint", text=text, more=_MORE)
    parser.add_argument("target", metavar="RUN[@STEP]", type=target, help="a run, or one of its checkpoints")
    parser.add_argument("--tensor", metavar="GLOB", help="only tensors whose names match, like 'dense*'")


def run(arguments: argparse.Namespace) -> int:
    """Prints facts and tensors. Returns the exit code, 1 if no tensor matches."""
    path, step = arguments.target
    opened_run = Run.open(path)
    chosen = choose(opened_run, step)
    info, shards = describe(opened_run, chosen), ShardTable(opened_run, chosen)
    pattern = "*" if arguments.tensor is None else arguments.tensor
    tensors = [t for t in shards.structure.tensors if fnmatch.fnmatchcase(t.spec.name, pattern)]
    if arguments.json:
        print(json.dumps(_as_json(opened_run, info, shards, tensors), indent=2))
    else:
        _print(opened_run, info, shards, tensors, arguments.tensor)
    return 0 if tensors or arguments.tensor is None else 1


def _as_json(opened_run: Run, info: CheckpointInfo, shards: ShardTable, tensors: Sequence[Placed]) -> dict[str, Any]:
    return {
        "run": {
            "path": str(opened_run.path),
            "run_id": opened_run.run_id,
            "created": opened_run.created,
            "parent": None if opened_run.parent is None else opened_run.parent.to_json(),
        },
        "checkpoint": {**as_json(info), "file_size": shards.file_size},
        "ranks": [asdict(rank) for rank in shards.ranks],
        "tensors": [
            {
                "name": placed.spec.name,
                "dtype": placed.spec.dtype,
                "shape": list(placed.spec.shape),
                "role": placed.spec.role,
                "nbytes": placed.spec.nbytes,
                "path": placed.path,
                "offset": None if placed.spec.role == PER_RANK else placed.offset,
                "written_by": [asdict(shard) for shard in shards.of(placed)],
            }
            for placed in tensors
        ],
    }


def _print(
    opened_run: Run, info: CheckpointInfo, shards: ShardTable, tensors: Sequence[Placed], pattern: str | None
) -> None:
    seeded = [] if opened_run.parent is None else [("seeded from", str(opened_run.parent))]
    facts = [
        ("run", f"{opened_run.path} ({opened_run.run_id}), begun {_time(opened_run.created)}"),
        *seeded,
        ("step", str(info.step)),
        ("committed", f"{_time(info.created)} by attempt {info.attempt}"),
        ("model file", f"{shards.path}, {decimal(shards.file_size)}"),
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
        [(str(r.rank), decimal(r.nbytes), str(r.extents), decimal(r.private)) for r in shards.ranks],
    )
    line("")
    if not tensors:
        line("no tensor" if pattern is None else f"no tensor's name matches {pattern}")
    elif pattern is None and len(tensors) > _LISTED:
        _summary(tensors)
    else:
        rows = [_row(shards, placed) for placed in tensors]
        table(("tensor", "dtype", "shape", "role", ">size", "written by rank[bytes]"), rows)


def _row(shards: ShardTable, placed: Placed) -> tuple[str, ...]:
    spec = placed.spec
    shape = "x".join(map(str, spec.shape)) or "scalar"
    writers = "each rank its own" if spec.role == PER_RANK else _writers(shards.of(placed))
    return (spec.name, spec.dtype, shape, spec.role, decimal(spec.nbytes), writers)


def _writers(shards: Sequence[WrittenShard]) -> str:
    named = " ".join(f"{shard.rank}[{shard.start}:{shard.stop}]" for shard in shards[:_RANKS])
    return f"{named} and {len(shards) - _RANKS} more" if len(shards) > _RANKS else named or "-"


def _summary(tensors: Sequence[Placed]) -> None:
    """Prints a row for each group of tensors whose paths have the same first two components: layers/dense, optimizer/vars."""
    groups: dict[str, list[Placed]] = {}
    for placed in tensors:
        groups.setdefault("/".join(placed.path.split("/")[:2]), []).append(placed)
    rows = [(name, str(len(g)), decimal(sum(t.spec.nbytes for t in g))) for name, g in sorted(groups.items())]
    table(("part", ">tensors", ">size"), rows)
    line(f"{len(tensors)} tensors in all; --tensor '*' lists them")


def _framework(info: CheckpointInfo) -> list[tuple[str, str]]:
    """(package, version) of Keras and TensorFlow; [] if the structure could not be read."""
    framework = info.framework
    return [(framework["api"], framework["keras"]), ("tensorflow", framework["tensorflow"])] if framework else []


def _time(text: str) -> str:
    return f"{text.replace('T', ' ').removesuffix('Z')} UTC"
