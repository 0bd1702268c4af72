"""``deepfreeze verify``: reads every byte of a run's checkpoints and compares it with its checksum."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from deepfreeze.cli.target import target
from deepfreeze.core.errors import NotFoundError
from deepfreeze.core.run import Run
from deepfreeze.thaw.verify import Report, verify


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = "Checks every byte of every file of one checkpoint, or of all of a run's. Exit code 1 if any is damaged."
    parser = commands.add_parser("verify", help="check every byte of checkpoints", description=text)
    parser.add_argument("target", metavar="RUN[@STEP]", type=target, help="a run, or one of its checkpoints")
    parser.add_argument("--json", action="store_true", help="print a JSON list of reports instead of text")
    parser.set_defaults(run_command=run)


def run(arguments: argparse.Namespace) -> int:
    """Checks and prints; 1 if anything is wrong."""
    path, step = arguments.target
    # Also directories without a valid manifest: a checkpoint that lost its manifest is what one wants to hear about.
    steps = Run.open(path).step_dirs() if step is None else [step]
    if not steps:
        todo = "let the job run until its first checkpoint is committed"
        raise NotFoundError(where=path, expected="a checkpoint to verify", found="none", todo=todo)
    reports = []
    for one in steps:
        report = _verify(path, one, quiet=arguments.json)
        reports.append(report)
        if not arguments.json:
            _print(report)
    if arguments.json:
        print(json.dumps([report.to_json() for report in reports], indent=2))
    return 0 if all(report.ok for report in reports) else 1


def _verify(path: str, step: int, quiet: bool) -> Report:
    if quiet or not sys.stderr.isatty():
        return verify(path, step)
    columns = (TextColumn("step {task.fields[step]}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("verify", total=None, step=step)
        return verify(path, step, lambda done, total: bar.update(task, completed=done, total=total))


def _print(report: Report) -> None:
    console = Console()

    def line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    read = f"{decimal(report.nbytes)} in {report.files} files"
    line(f"{report.path}: {'ok' if report.ok else 'DAMAGED'}, {read}")
    for problem in report.problems:
        line(f"  {problem}")
