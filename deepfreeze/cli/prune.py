"""``deepfreeze prune``: deletes checkpoints that a run no longer needs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.filesize import decimal

from deepfreeze.cli import command
from deepfreeze.cli.output import bar, line, table
from deepfreeze.store.prune import Pruning, plan, prune

_MORE = """
Without --yes nothing is changed: it says what would go. With --yes the run's lock is taken, so a
run that a job is writing to is refused, with the job's host and pid. The newest committed
checkpoint always stays, and so do the newest one whose ranks did not differ and what has no valid
manifest.

exit codes:
  0  deleted, or said what would be
  1  there is no such run, a job has it open, or not all could be deleted
  2  the command line is wrong

examples:
  deepfreeze prune runs/nt3 --keep 2                 what would go if two were kept
  deepfreeze prune runs/nt3 --keep 2 --yes           delete it
  deepfreeze prune runs/nt3 --keep 1 --every 1000 --damaged --abandoned --yes
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = """Deletes a run's older checkpoints: all but the newest N, and but those whose step is a multiple of K. A dry run
    unless --yes is given."""
    parser = command.add(commands, "prune", run, short="delete older checkpoints", text=text, more=_MORE)
    parser.add_argument("run", metavar="RUN", help="the run's directory")
    parser.add_argument("--keep", metavar="N", type=command.count, required=True, help="keep the newest N, at least 1")
    parser.add_argument("--every", metavar="K", type=command.count, help="also keep steps K, 2K, 3K and so on")
    parser.add_argument("--damaged", action="store_true", help="also delete what was moved to damaged/")
    parser.add_argument("--abandoned", action="store_true", help="also delete what was moved to abandoned/")
    parser.add_argument("--yes", action="store_true", help="do it")


def run(arguments: argparse.Namespace) -> int:
    """Deletes, or says what would be; 1 if something could not be."""
    aside = {"damaged": arguments.damaged, "abandoned": arguments.abandoned}
    if arguments.yes:
        with bar("deleting", shown=not arguments.json) as progress:
            found = prune(arguments.run, arguments.keep, arguments.every, progress=progress, **aside)
    else:
        found = plan(arguments.run, arguments.keep, arguments.every, **aside)
    if arguments.json:
        print(json.dumps(_as_json(found), indent=2))
    else:
        _print(found)
    return 1 if found.left else 0


def _as_json(found: Pruning) -> dict[str, Any]:
    def listed(items: Any) -> list[dict[str, Any]]:
        return [{"what": i.what, "step": i.step, "path": str(i.path), "nbytes": i.nbytes} for i in items]

    return {
        "run": str(found.run),
        "done": found.done,
        "keep": list(found.keep),
        "delete": listed(found.items),
        "left": listed(found.left),
        "freed": found.freed,
    }


def _print(found: Pruning) -> None:
    kept = f"{len(found.keep)} kept: step {', '.join(map(str, found.keep))}" if found.keep else "no checkpoint"
    if found.items:
        table((">step", "what", ">size"), [(str(i.step), i.what, decimal(i.nbytes)) for i in found.items])
    freed = decimal(found.freed)
    if not found.items:
        line(f"{found.run}: nothing to delete; {kept}")
    elif found.done:
        line(f"{found.run}: {len(found.items) - len(found.left)} deleted, {freed} freed; {kept}")
    else:
        line(f"{found.run}: would delete these {len(found.items)} and free {freed} (--yes does it); {kept}")
    for item in found.left:
        line(f"not all of it could be deleted, the next start tries again: {item.path}")
