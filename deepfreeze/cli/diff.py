"""``deepfreeze diff``: compares two checkpoints, tensor by tensor."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict
from typing import Any

from deepfreeze import wording
from deepfreeze.cli import command
from deepfreeze.cli.ls import as_json
from deepfreeze.cli.output import bar, line, table
from deepfreeze.cli.target import target
from deepfreeze.inspect.diff import Change, Comparison, diff

DIFFERS = 3  # exit code
_LISTED = 20  # tensors of a kind that are listed, unless --top says otherwise
_MORE = f"""
Weights are matched by name, as deepfreeze.transfer does it: without the name of the whole model, and through the numbers that Keras puts
behind the names of layers. So a Keras 3 run and a tf_keras run of one model can be compared. Other tensors (--all) are matched by their
plain names, or by their places in the file if these are the same.

The columns, where a is a tensor of the first checkpoint and b the same tensor of the second one:
  relative   max|b - a| / max|a|; infinite if a is all zeros
  largest    max|b - a|
  differing  how many elements differ. 0.0 and -0.0 don't differ, nor do two NaNs.
  of         how many elements the tensor has

If an element differs and is NaN or infinite in a or b, relative and largest are infinite. JSON has null in place of infinity. Each rank
has random seeds of its own: rank 0's are compared.

exit codes:
  0  the checkpoints were compared, and may differ
  1  a checkpoint is damaged, or there is none
  2  the command line is wrong
  {DIFFERS}  with --exit-code: the checkpoints differ

examples:
  deepfreeze diff runs/nt3@30 runs/nt3@40      what have ten steps changed?
  deepfreeze diff runs/a runs/b --top 5        the newest of two runs
  deepfreeze diff --all --exit-code a@9 b@9    are they the same?
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = """Compares two checkpoints, of one run or of two, and lists the weights that differ, the largest relative change first."""
    parser = command.add(commands, "diff", run, short="compare two checkpoints", text=text, more=_MORE)
    parser.add_argument("first", metavar="RUN[@STEP]", type=target, help="a run's newest checkpoint, or the one named")
    parser.add_argument("second", metavar="RUN[@STEP]", type=target, help="the checkpoint to compare it with")
    everything = "compare all tensors: also the optimizers' variables, metrics and random seeds"
    parser.add_argument("--all", action="store_true", help=everything)
    top = f"list the K tensors that changed most ({_LISTED}), and K of those that only one checkpoint has; JSON has all"
    parser.add_argument("--top", metavar="K", type=command.count, default=_LISTED, help=top)
    parser.add_argument("--exit-code", action="store_true", help=f"exit with {DIFFERS} if they differ")


def run(arguments: argparse.Namespace) -> int:
    """Compares and prints. Returns the exit code."""
    with bar("comparing", shown=not arguments.json) as progress:
        comparison = diff(arguments.first, arguments.second, progress, everything=arguments.all)
    if arguments.json:
        print(json.dumps(_as_json(comparison), indent=2, allow_nan=False))
    else:
        _print(comparison, arguments.top)
    return DIFFERS if arguments.exit_code and not comparison.identical else 0


def _as_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "first": as_json(comparison.first),
        "second": as_json(comparison.second),
        "compared": comparison.compared,
        "identical": comparison.identical,
        "same": comparison.same,
        "changed": [
            {**asdict(one), "largest": _finite(one.largest), "relative": _finite(one.relative)}
            for one in comparison.changed
        ],
        "unlike": [asdict(one) for one in comparison.unlike],
        "only_first": list(comparison.only_first),
        "only_second": list(comparison.only_second),
    }


def _finite(value: float) -> float | None:
    """The value; None, which JSON has as null, for infinity."""
    return value if math.isfinite(value) else None


def _print(comparison: Comparison, top: int) -> None:
    first, second = (f"{info.run}@{info.step}" for info in (comparison.first, comparison.second))
    noun = "weight" if comparison.compared == "weights" else "tensor"
    both, changed = f"{first} and {second}", len(comparison.changed)
    more = " (--all: also the optimizers)" if noun == "weight" else ""
    if comparison.identical:
        line(f"{both} are identical: {wording.count(comparison.same, noun)}, none changed{more}")
        return
    if changed + comparison.same + len(comparison.unlike) == 0:
        line(f"{both} have no {noun} in common")
    else:
        line(f"{both}: {wording.count(changed, noun)} changed, {comparison.same} identical{more}")
    if changed:
        rows = [_row(change) for change in comparison.changed[:top]]
        table((f"~{noun}", ">relative", ">largest", ">differing", ">of"), rows)
    _more(changed, top)
    for unlike in comparison.unlike[:top]:
        line(f"another kind: {unlike.label}: {unlike.first} and {unlike.second}")
    _more(len(comparison.unlike), top)
    for where, only in ((first, comparison.only_first), (second, comparison.only_second)):
        for name in only[:top]:
            line(f"only in {where}: {name}")
        _more(len(only), top)


def _more(number: int, listed: int) -> None:
    if number > listed:
        line(f"and {number - listed} more (--top)")


def _row(change: Change) -> tuple[str, ...]:
    figures = (f"{change.relative:.3g}", f"{change.largest:.3g}", str(change.differing), str(change.size))
    return (change.label, *figures)
