"""``deepfreeze prune``: deletes checkpoints that a run no longer needs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from deepfreeze import wording
from deepfreeze.cli import command
from deepfreeze.cli.output import bar, line, notify, table
from deepfreeze.store.prune import Pruning, Removal, plan, prune
from deepfreeze.store.rules import AnyOf, Best, Epochs, Latest, Spaced

_MORE = """
Without --yes nothing is changed, and the command lists what it would delete. With --yes it takes
the run's lock; if a job has the run open, it deletes nothing and names the job's host and pid. A
checkpoint stays if any of the options keeps it, or if it has a tag. The newest committed checkpoint
always stays, and so does the newest one whose ranks did not differ. Step directories without a
valid manifest are left alone.

exit codes:
  0  all was deleted, or without --yes: all was listed
  1  there is no such run, a job has it open, or not all could be deleted
  2  the command line is wrong

examples:
  deepfreeze prune runs/nt3 --keep 2          list all but the newest two
  deepfreeze prune runs/nt3 --keep 2 --yes    delete all but the newest two
  deepfreeze prune runs/nt3 --best val_loss:min:3 --epochs 10 --yes
  deepfreeze prune runs/nt3 --keep 1 --every 1000 --damaged --abandoned --yes
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = """Deletes a run's older checkpoints: all that no option keeps. At least one of --keep, --every, --every-seconds, --epochs and
    --best is needed. Without --yes it only lists them."""
    parser = command.add(commands, "prune", run, short="delete older checkpoints", text=text, more=_MORE)
    parser.add_argument("run", metavar="RUN", help="the run's directory")
    parser.add_argument("--keep", metavar="N", type=command.count, help="keep the newest N, at least 1")
    text = "keep the checkpoint closest to each of the steps K, 2K, 3K and so on"
    parser.add_argument("--every", metavar="K", type=command.count, help=text)
    text = "keep the checkpoint closest to each multiple of S seconds since 1970"
    parser.add_argument("--every-seconds", metavar="S", type=command.count, help=text)
    text = "keep the newest checkpoint of every N-th epoch"
    parser.add_argument("--epochs", metavar="N", type=command.count, help=text)
    text = "keep the best N (1 if not given) by a metric; MODE is min or max; may be given several times"
    parser.add_argument("--best", metavar="METRIC:MODE[:N]", type=_best, action="append", default=[], help=text)
    parser.add_argument("--damaged", action="store_true", help="also delete the checkpoints in RUN/damaged")
    parser.add_argument("--abandoned", action="store_true", help="also delete the checkpoints in RUN/abandoned")
    parser.add_argument("--yes", action="store_true", help="delete")
    parser.set_defaults(parser=parser)


def _best(text: str) -> Best:
    """The type of the argument METRIC:MODE[:N]."""
    parts = text.split(":")
    n = command.count(parts.pop()) if len(parts) > 2 else 1
    metric, mode = ":".join(parts[:-1]), parts[-1]
    if not metric or mode not in ("min", "max"):
        raise argparse.ArgumentTypeError(f"{text!r} is not METRIC:MODE or METRIC:MODE:N, such as val_loss:min")
    return Best(metric, mode, n)


def _rule(arguments: argparse.Namespace) -> Any:
    """The rule that the options make together."""
    made = [
        *([Latest(arguments.keep)] if arguments.keep else []),
        *([Spaced(steps=arguments.every)] if arguments.every else []),
        *([Spaced(seconds=arguments.every_seconds)] if arguments.every_seconds else []),
        *([Epochs(arguments.epochs)] if arguments.epochs else []),
        *arguments.best,
    ]
    if not made:
        arguments.parser.error(
            "which checkpoints are to stay? Give --keep, --every, --every-seconds, --epochs or --best"
        )
    return AnyOf.of(*made)


def run(arguments: argparse.Namespace) -> int:
    """Deletes, or without --yes lists what would be deleted. Returns the exit code, 1 if a directory could not be deleted completely."""
    aside = {"damaged": arguments.damaged, "abandoned": arguments.abandoned}
    rule = _rule(arguments)
    if arguments.yes:
        with bar("deleting", shown=not arguments.json) as progress:
            pruning = prune(arguments.run, rule, progress=progress, notify=notify, **aside)
    else:
        pruning = plan(arguments.run, rule, notify=notify, **aside)
    if arguments.json:
        print(json.dumps(_as_json(pruning), indent=2))
    else:
        _print(pruning)
    return 1 if pruning.left else 0


def _as_json(pruning: Pruning) -> dict[str, Any]:
    def listed(removals: Sequence[Removal]) -> list[dict[str, Any]]:
        return [{"what": r.kind, "step": r.step, "path": str(r.path), "nbytes": r.nbytes} for r in removals]

    return {
        "run": str(pruning.run),
        "done": pruning.done,
        "keep": list(pruning.keep),
        "reasons": {str(step): reason for step, reason in pruning.keep.items()},
        "delete": listed(pruning.removals),
        "left": listed(pruning.left),
        "freed": pruning.freed,
    }


def _print(pruning: Pruning) -> None:
    kept = f"{len(pruning.keep)} kept: step {', '.join(map(str, pruning.keep))}" if pruning.keep else "no checkpoint"
    if pruning.removals:
        table((">step", "what", ">size"), [(str(r.step), r.kind, wording.size(r.nbytes)) for r in pruning.removals])
    for step, reason in pruning.keep.items():
        line(f"step {step} stays: {reason}")
    freed = wording.size(pruning.freed)
    if not pruning.removals:
        line(f"{pruning.run}: nothing to delete; {kept}")
    elif pruning.done:
        line(
            f"{pruning.run}: {wording.count(len(pruning.removals) - len(pruning.left), 'checkpoint')} deleted, {freed} freed; {kept}"
        )
    else:
        line(
            f"{pruning.run}: would delete {wording.count(len(pruning.removals), 'checkpoint')} and free {freed} (--yes does it); {kept}"
        )
    for removal in pruning.left:
        line(f"not all of it could be deleted, the next start tries again: {removal.path}")
