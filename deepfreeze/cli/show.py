"""``deepfreeze show``: prints what is in a checkpoint, and which rank wrote it."""

from __future__ import annotations

import argparse
import fnmatch
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deepfreeze import wording
from deepfreeze.cli import command, show_engine
from deepfreeze.cli.ls import as_json, text_of_metrics
from deepfreeze.cli.output import facts, line, table
from deepfreeze.cli.target import target
from deepfreeze.format import dataset_groups
from deepfreeze.format.manifest_values import facts_of, text_of_logs
from deepfreeze.format.position import Position
from deepfreeze.format.structure import KERAS_H5, PLAIN_H5, Placed, Structure
from deepfreeze.format.tensors import PER_RANK
from deepfreeze.inspect.writers import ShardTable, WrittenShard
from deepfreeze.matching.weights import of_checkpoint
from deepfreeze.store.catalog import CheckpointInfo, choose, describe
from deepfreeze.store.run import Run

_LARGEST = 10  # the parts that are listed without --all
_RANKS = 4  # the most shards of a tensor that a cell names
_LAYOUTS = {
    KERAS_H5: f"{KERAS_H5}, which stock Keras loads",
    PLAIN_H5: f"{PLAIN_H5}, every variable as it is: deepfreeze.restore loads it, stock Keras can't",
}
_MORE = f"""
A part is a layer with its weights, an optimizer, all metrics, or all random seeds. The {_LARGEST} largest parts are listed, in the order of
the model file, and --all lists them all. --tensor lists tensors one by one. The last column names the ranks that wrote the bytes of a
tensor: 0[0:8192] means that rank 0 wrote its first 8192 bytes. On a narrow terminal the column "role" is left out.

show reads no tensors; `deepfreeze verify` checks them.

exit codes:
  0  the checkpoint was shown
  1  there is no such checkpoint, its records or structure are damaged, no tensor matches, or nothing was counted
  2  the command line is wrong

examples:
  deepfreeze show runs/nt3                          the newest checkpoint
  deepfreeze show runs/nt3@40 --all                 all of its layers
  deepfreeze show runs/nt3@40 --tensor '*kernel'    tensors with such names
  deepfreeze show runs/nt3@40 --json                all of it, for a program
  deepfreeze show runs/nt3 --engine                 what saving has cost
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = """Shows one checkpoint, the newest if no STEP is given: run, commit, ranks, and the layers with their sizes; or single
    tensors with dtype, shape, and the ranks that wrote them."""
    parser = command.add(commands, "show", run, short="show what is in a checkpoint", text=text, more=_MORE)
    parser.add_argument("target", metavar="RUN[@STEP]", type=target, help="a run, or one of its checkpoints")
    parser.add_argument(
        "--engine",
        action="store_true",
        help="only what saving has cost in the newest attempt: calls, bytes, CPU time",
    )
    parser.add_argument("--all", action="store_true", help=f"list all parts, not only the {_LARGEST} largest")
    parser.add_argument("--tensor", metavar="GLOB", help="list the tensors whose names match, like 'dense*'")


def run(arguments: argparse.Namespace) -> int:
    """Prints facts and tensors. Returns the exit code, 1 if no tensor matches."""
    path, step = arguments.target
    opened_run = Run.open(path)
    if arguments.engine:
        return show_engine.show(opened_run, arguments.json)
    chosen = choose(opened_run, step)
    info, shards = describe(opened_run, chosen), ShardTable(opened_run, chosen)
    pattern = "*" if arguments.tensor is None else arguments.tensor
    tensors = [t for t in shards.structure.tensors if fnmatch.fnmatchcase(t.spec.name, pattern)]
    if arguments.json:
        print(json.dumps(_as_json(opened_run, info, shards, tensors), indent=2))
    else:
        _print_facts(opened_run, info, shards)
        if arguments.tensor is None:
            _print_parts(_parts(shards.structure), arguments.all)
        elif tensors:
            _print_tensors(shards, tensors)
        else:
            line(f"no tensor's name matches {arguments.tensor}")
    return 0 if tensors or arguments.tensor is None else 1


def _as_json(opened_run: Run, info: CheckpointInfo, shards: ShardTable, tensors: Sequence[Placed]) -> dict[str, Any]:
    kinds = dataset_groups.kinds(shards.structure)
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
                "kind": kinds[placed.spec.name],
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


def _print_facts(opened_run: Run, info: CheckpointInfo, shards: ShardTable) -> None:
    seeded = [] if opened_run.parent is None else [("seeded from", wording.near(str(opened_run.parent)))]
    differed = f"in {wording.count(info.diverged, 'tensor')} that should have been the same on all"
    facts([
        ("run", str(opened_run.path)),
        ("run id", f"{opened_run.run_id}, begun {_time(opened_run.created)}"),
        *seeded,
        ("step", str(info.step)),
        ("committed", f"{_time(info.created)}, {wording.age(info.created, time.time())} ago"),
        ("attempt", info.attempt),
        ("model file", f"{shards.path}, {wording.size(shards.file_size)}"),
        ("layout", _LAYOUTS.get(info.layout, info.layout)),
        *_load(info),
        ("state", info.state),
        ("written by", ", ".join(f"{key} {value}" for key, value in _framework(info))),
        *([("ranks differed", differed)] if info.diverged else []),
        *_said(info),
    ])  # fmt: skip
    line("")
    ranks = [(str(r.rank), wording.size(r.nbytes), str(r.extents), wording.size(r.private)) for r in shards.ranks]
    table((">rank", ">wrote", ">ranges", ">its own"), ranks)
    line("")


def _load(info: CheckpointInfo) -> list[tuple[str, str]]:
    """The row with the line that a program needs before stock Keras loads the optimizer too; no row for other checkpoints."""
    if info.layout != KERAS_H5 or info.state != "full":
        return []
    return [("", "(optimizer: after model.optimizer.build(model.trainable_variables))")]


def _said(info: CheckpointInfo) -> list[tuple[str, str]]:
    """The rows with metrics, position and metadata that the training stored with the checkpoint."""
    position = Position.of(info.values)
    # Until the epoch of the checkpoint has ended, the logs of the one before are the newest that there are.
    metrics = text_of_metrics(info) or text_of_logs(info.values)
    found = [("metrics", metrics)] if metrics else []
    if position is not None:
        batch = f"batch {position.batch}" + (f" of {position.batches}" if position.batches else "")
        found.append(("position", f"epoch {position.epoch + 1} of {position.epochs}, {batch}"))
    facts = [f"{name}: {text}" for name, text in facts_of(info.values)]
    return [*found, *(("metadata" if n == 0 else "", text) for n, text in enumerate(facts))]


@dataclass
class _Part:
    """A layer with its weights, an optimizer, all metrics or all seeds."""

    name: str
    kind: str
    tensors: int = 0
    nbytes: int = 0

    def row(self) -> tuple[str, ...]:
        return (self.name, self.kind, str(self.tensors), wording.size(self.nbytes))


def _parts(structure: Structure) -> list[_Part]:
    """The parts of a checkpoint, in the order of the model file."""
    layers = {one.spec.name: one.short.rpartition("/")[0] or one.short for one in of_checkpoint(structure)}
    parts: dict[tuple[str, str], _Part] = {}
    for name, kind in dataset_groups.kinds(structure).items():
        placed = structure.by_name[name]
        own = layers.get(name) or dataset_groups.group(placed.path)
        part = parts.setdefault((kind, own), _Part(own, kind))
        part.tensors += 1
        part.nbytes += placed.spec.nbytes
    return list(parts.values())


def _print_parts(parts: Sequence[_Part], everything: bool) -> None:
    largest = sorted(parts, key=lambda part: -part.nbytes)[: len(parts) if everything else _LARGEST]
    shown = [part for part in parts if part in largest]
    rest = [part for part in parts if part not in largest]
    rows = [part.row() for part in shown]
    if rest:
        rows.append(_sum(f"{len(rest)} smaller (--all)", rest).row())
    table(("~part", "kind", ">tensors", ">size"), [*rows, _sum("in all", parts).row()])


def _sum(name: str, parts: Sequence[_Part]) -> _Part:
    return _Part(name, "", sum(part.tensors for part in parts), sum(part.nbytes for part in parts))


def _print_tensors(shards: ShardTable, tensors: Sequence[Placed]) -> None:
    kinds = dataset_groups.kinds(shards.structure)
    rows = []
    for placed in tensors:
        spec = placed.spec
        shape = "x".join(map(str, spec.shape)) or "scalar"
        writers = "each rank its own" if spec.role == PER_RANK else _writers(shards.of(placed))
        rows.append((spec.name, kinds[spec.name], spec.dtype, shape, wording.size(spec.nbytes), spec.role, writers))
    table(("~tensor", "kind", "dtype", "shape", ">size", "?role", "~rank[bytes]"), rows)


def _writers(shards: Sequence[WrittenShard]) -> str:
    named = " ".join(f"{shard.rank}[{shard.start}:{shard.stop}]" for shard in shards[:_RANKS])
    return f"{named} and {len(shards) - _RANKS} more" if len(shards) > _RANKS else named or "-"


def _framework(info: CheckpointInfo) -> list[tuple[str, str]]:
    """(package, version) of Keras and TensorFlow; [] if the structure could not be read."""
    framework = info.framework
    return [(framework["api"], framework["keras"]), ("tensorflow", framework["tensorflow"])] if framework else []


def _time(text: str) -> str:
    return f"{text.replace('T', ' ').removesuffix('Z')} UTC"
