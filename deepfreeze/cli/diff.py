"""``deepfreeze diff``: how far two checkpoints are apart, tensor by tensor."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict
from typing import Any

from deepfreeze.cli import command
from deepfreeze.cli.ls import as_json
from deepfreeze.cli.output import bar, line, table
from deepfreeze.cli.target import target
from deepfreeze.inspect.diff import Change, Comparison, diff

DIFFERS = 3
_LISTED = 20
_MORE = f"""
Tensors are matched by name. With a the first checkpoint's values and b the second's:
  largest    max|b - a|
  relative   max|b - a| / max|a|; infinite if a is all zeros
  differing  how many elements are not the same. 0.0 and -0.0 are; so are two NaNs.
Elements that differ and are NaN or infinite on either side make both figures infinite. JSON has
no infinity: null stands for it there. Of random seeds, each rank's own, rank 0's are compared.

exit codes:
  0  compared, whatever came of it
  1  a checkpoint is damaged, or there is none
  2  the command line is wrong
  {DIFFERS}  with --exit-code: they differ

examples:
  deepfreeze diff runs/nt3@30 runs/nt3@40              what ten steps have changed
  deepfreeze diff runs/a runs/b --top 5                the newest of two runs
  deepfreeze diff --exit-code runs/a@40 runs/b@40      are two trainings the same?
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = (
        "Compares two checkpoints, of one run or of two, and lists what changed most, relative to its own size, first."
    )
    parser = command.add(commands, "diff", run, short="compare two checkpoints", text=text, more=_MORE)
    parser.add_argument("first", metavar="RUN[@STEP]", type=target, help="a run's newest checkpoint, or the one named")
    parser.add_argument("second", metavar="RUN[@STEP]", type=target, help="what it is compared with")
    top = f"list the K tensors that changed most ({_LISTED}); JSON has all"
    parser.add_argument("--top", metavar="K", type=command.count, default=_LISTED, help=top)
    parser.add_argument("--exit-code", action="store_true", help=f"exit with {DIFFERS} if they differ")


def run(arguments: argparse.Namespace) -> int:
    """Compares and prints."""
    with bar("comparing", shown=not arguments.json) as progress:
        found = diff(arguments.first, arguments.second, progress)
    if arguments.json:
        print(json.dumps(_as_json(found), indent=2, allow_nan=False))
    else:
        _print(found, arguments.top)
    return DIFFERS if arguments.exit_code and not found.identical else 0


def _as_json(found: Comparison) -> dict[str, Any]:
    return {
        "first": as_json(found.first),
        "second": as_json(found.second),
        "identical": found.identical,
        "same": found.same,
        "changed": [
            {**asdict(one), "largest": _finite(one.largest), "relative": _finite(one.relative)} for one in found.changed
        ],
        "unlike": [asdict(one) for one in found.unlike],
        "only_first": list(found.only_first),
        "only_second": list(found.only_second),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _print(found: Comparison, top: int) -> None:
    first, second = (f"{info.run}@{info.step}" for info in (found.first, found.second))
    if found.identical:
        line(f"{first} and {second}: the same {found.same} tensors")
        return
    line(f"{first} and {second}: {len(found.changed)} tensors changed, {found.same} are the same")
    if found.changed:
        rows = [_row(change) for change in found.changed[:top]]
        table(("tensor", ">relative", ">largest", ">differing", ">of"), rows)
    if len(found.changed) > top:
        line(f"and {len(found.changed) - top} more (--top)")
    for unlike in found.unlike:
        line(f"another kind: {unlike.name}: {unlike.first} and {unlike.second}")
    for where, only in ((first, found.only_first), (second, found.only_second)):
        for name in only:
            line(f"only in {where}: {name}")


def _row(change: Change) -> tuple[str, ...]:
    figures = (f"{change.relative:.3g}", f"{change.largest:.3g}", str(change.differing), str(change.size))
    return (change.name, *figures)
