"""``deepfreeze ls``: lists the checkpoints of a run."""

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
Below the table stand the steps that can't be restored: those without a valid manifest, those that
were moved to {names.DAMAGED_DIR}/, and unfinished ones. ls reads no tensors; `deepfreeze verify` checks them.

exit codes:
  0  there is a checkpoint
  1  there is no checkpoint, or no such run
  2  the command line is wrong

examples:
  deepfreeze ls runs/nt3                          all checkpoints of the run
  deepfreeze ls runs/nt3@40                       is there a checkpoint of step 40?
  deepfreeze ls runs/nt3 --json                   all that is known of each, for a program
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = """Lists a run's checkpoints, oldest first: those that can be restored, with their sizes, how many ranks wrote them, and
    when."""
    parser = command.add(commands, "ls", run, short="list the checkpoints of a run", text=text, more=_MORE)
    parser.add_argument("target", metavar="RUN[@STEP]", type=target, help="a run, or one of its checkpoints")


def run(arguments: argparse.Namespace) -> int:
    """Prints the list. Returns the exit code, 1 if there is no checkpoint."""
    path, step = arguments.target
    opened_run = Run.open(path)
    infos = checkpoints(path) if step is None else [describe(opened_run, choose(opened_run, step))]
    if arguments.json:
        print(json.dumps([as_json(info) for info in infos], indent=2))
        return 0 if infos else 1
    if infos:
        table((">step", ">size", ">ranks", "state", "committed (UTC)", "written by"), list(map(_row, infos)))
    else:
        line(f"{path}: no checkpoint yet")
    if opened_run.parent is not None:
        line(f"seeded from: {opened_run.parent}")
    invalid = [s for s in opened_run.step_dirs() if s not in {info.step for info in infos}] if step is None else []
    moved = [s for s, _ in opened_run.damaged()] if step is None else []
    unfinished = sorted({s for s, _ in opened_run.partials()}) if step is None else []
    for kind, steps in (("damaged, not counted", invalid), (_MOVED, moved), ("unfinished", unfinished)):
        if steps:
            line(f"{kind}: step {', '.join(map(str, steps))}")
    return 0 if infos else 1


def as_json(info: CheckpointInfo) -> dict[str, Any]:
    """A checkpoint's description as plain JSON values."""
    return {**asdict(info), "run": str(info.run), "path": str(info.path)}


def _state(info: CheckpointInfo) -> str:
    return f"{info.state}, ranks differed" if info.diverged else info.state


def _row(info: CheckpointInfo) -> tuple[str, ...]:
    writer = f"{info.framework['api']} {info.framework['keras']}" if info.framework else "?"
    time = info.created.replace("T", " ").rstrip("Z")
    return (str(info.step), decimal(info.nbytes), str(info.world_size), _state(info), time, writer)
