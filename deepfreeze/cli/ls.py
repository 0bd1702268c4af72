"""``deepfreeze ls``: the checkpoints of a run."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from deepfreeze.cli.target import target
from deepfreeze.core import names
from deepfreeze.core.run import Run
from deepfreeze.thaw.locate import CheckpointInfo, checkpoints, choose, describe

_MOVED = f"damaged, moved to {names.DAMAGED_DIR}/"


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = "Lists a run's checkpoints, oldest first: those that can be restored. Exit code 1 if there is none."
    parser = commands.add_parser("ls", help="list the checkpoints of a run", description=text)
    parser.add_argument("target", metavar="RUN[@STEP]", type=target, help="a run, or one of its checkpoints")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    parser.set_defaults(run_command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the list; 1 if it is empty."""
    path, step = arguments.target
    opened = Run.open(path)
    found = checkpoints(path) if step is None else [describe(opened, choose(opened, step))]
    if arguments.json:
        print(json.dumps([as_json(info) for info in found], indent=2))
        return 0 if found else 1
    console = Console()
    if found:
        console.print(_table(found))
    else:
        console.print(f"{path}: no checkpoint yet", markup=False, highlight=False, soft_wrap=True)
    if opened.parent is not None:
        console.print(f"seeded from: {opened.parent}", markup=False, highlight=False, soft_wrap=True)
    rest = [s for s in opened.step_dirs() if s not in {info.step for info in found}] if step is None else []
    moved = [s for s, _ in opened.damaged()] if step is None else []
    unfinished = sorted({s for s, _ in opened.partials()}) if step is None else []
    for what, steps in (("damaged, not counted", rest), (_MOVED, moved), ("unfinished", unfinished)):
        if steps:
            text = f"{what}: step {', '.join(map(str, steps))}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)
    return 0 if found else 1


def as_json(info: CheckpointInfo) -> dict[str, Any]:
    """A checkpoint as plain JSON values."""
    return {**asdict(info), "run": str(info.run), "path": str(info.path)}


def _level(info: CheckpointInfo) -> str:
    return f"{info.level}, ranks differed" if info.diverged else info.level


def _table(found: list[CheckpointInfo]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("step", "size", "ranks"):
        table.add_column(name, justify="right")
    for name in ("state", "level", "committed (UTC)", "written by"):
        table.add_column(name)
    for info in found:
        writer = f"{info.framework['api']} {info.framework['keras']}" if info.framework else "?"
        time = info.created.replace("T", " ").rstrip("Z")
        table.add_row(
            str(info.step), decimal(info.nbytes), str(info.world_size), info.state, _level(info), time, writer
        )
    return table
