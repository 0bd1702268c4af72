"""``deepfreeze ls``: the checkpoints of a run."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from rich.filesize import decimal

from deepfreeze.cli import command
from deepfreeze.cli.output import line, table
from deepfreeze.cli.target import target
from deepfreeze.format import names
from deepfreeze.store.catalog import CheckpointInfo, checkpoints, choose, describe
from deepfreeze.store.run import Run

_MOVED = f"damaged, moved to {names.DAMAGED_DIR}/"
_MORE = f"""
What does not count is named below the table: steps without a valid manifest, steps that a job has
moved to {names.DAMAGED_DIR}/, and unfinished ones. No value is read: `deepfreeze verify` checks those.

exit codes:
  0  listed
  1  there is no checkpoint, or no such run
  2  the command line is wrong

examples:
  deepfreeze ls runs/nt3                          all checkpoints of the run
  deepfreeze ls runs/nt3@40                       is this one there?
  deepfreeze ls runs/nt3 --json                   everything known of each, for a program
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = """Lists a run's checkpoints, oldest first: those that can be restored, with their sizes, how many ranks wrote them, and
    when."""
    parser = command.add(commands, "ls", run, short="list the checkpoints of a run", text=text, more=_MORE)
    parser.add_argument("target", metavar="RUN[@STEP]", type=target, help="a run, or one of its checkpoints")


def run(arguments: argparse.Namespace) -> int:
    """Prints the list; 1 if it is empty."""
    path, step = arguments.target
    opened = Run.open(path)
    found = checkpoints(path) if step is None else [describe(opened, choose(opened, step))]
    if arguments.json:
        print(json.dumps([as_json(info) for info in found], indent=2))
        return 0 if found else 1
    if found:
        table((">step", ">size", ">ranks", "state", "committed (UTC)", "written by"), list(map(_row, found)))
    else:
        line(f"{path}: no checkpoint yet")
    if opened.parent is not None:
        line(f"seeded from: {opened.parent}")
    rest = [s for s in opened.step_dirs() if s not in {info.step for info in found}] if step is None else []
    moved = [s for s, _ in opened.damaged()] if step is None else []
    unfinished = sorted({s for s, _ in opened.partials()}) if step is None else []
    for what, steps in (("damaged, not counted", rest), (_MOVED, moved), ("unfinished", unfinished)):
        if steps:
            line(f"{what}: step {', '.join(map(str, steps))}")
    return 0 if found else 1


def as_json(info: CheckpointInfo) -> dict[str, Any]:
    """A checkpoint as plain JSON values."""
    return {**asdict(info), "run": str(info.run), "path": str(info.path)}


def _state(info: CheckpointInfo) -> str:
    return f"{info.state}, ranks differed" if info.diverged else info.state


def _row(info: CheckpointInfo) -> tuple[str, ...]:
    writer = f"{info.framework['api']} {info.framework['keras']}" if info.framework else "?"
    time = info.created.replace("T", " ").rstrip("Z")
    return (str(info.step), decimal(info.nbytes), str(info.world_size), _state(info), time, writer)
