"""``deepfreeze verify``: reads every byte of a run's checkpoints and compares it with its checksum."""

from __future__ import annotations

import argparse
import contextlib
import json
from typing import Any

from deepfreeze import wording
from deepfreeze.cli import command
from deepfreeze.cli.output import bar, line
from deepfreeze.cli.target import step_of, target
from deepfreeze.errors import NotFoundError
from deepfreeze.format import names
from deepfreeze.inspect.verify import Verification, quarantine, verify
from deepfreeze.store.run import Run

_DIFFERED = 4  # exit code
_MORE = """
Without --quarantine nothing is changed. With it damaged checkpoints are moved to RUN/damaged, as at
a job's start. The command takes the run's lock for it; if a job has the run open, it moves nothing
and names the job's host and pid. The structure's file, which several checkpoints share, stays.

exit codes:
  0  every byte is right
  1  a checkpoint is damaged (also if it was moved away), or there is none
  2  the command line is wrong
  4  every byte is right, but at a checkpoint the ranks differed: it is a mixture of their models

examples:
  deepfreeze verify runs/nt3                 check all checkpoints of the run
  deepfreeze verify runs/nt3@40              check the one of step 40
  deepfreeze verify runs/nt3 --json          print the reports for a program
  deepfreeze verify runs/nt3 --quarantine    also move what is damaged
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = "Checks every byte of every file of one checkpoint, or of all of a run's, and names what is damaged."
    parser = command.add(commands, "verify", run, short="check every byte of checkpoints", text=text, more=_MORE)
    text = f"move a checkpoint whose own files are damaged to {names.DAMAGED_DIR}/, under the run's lock"
    parser.add_argument("--quarantine", action="store_true", help=text)
    parser.add_argument("target", metavar="RUN[@STEP]", type=target, help="a run, or one of its checkpoints")


def run(arguments: argparse.Namespace) -> int:
    """Checks and prints. Returns the exit code: 1 if a checkpoint is damaged, else 4 if the ranks differed at one."""
    path, step = arguments.target[0], step_of(arguments.target)
    opened_run = Run.open(path)
    reports = []
    # The lock is held from the check to the move, so that no job puts another checkpoint in the place of a damaged one.
    with opened_run.store.lock() if arguments.quarantine else contextlib.nullcontext():
        # Directories without a valid manifest are checked too: the user wants to hear of a checkpoint that has lost its manifest.
        steps = opened_run.step_dirs() if step is None else [step]
        if not steps:
            todo = "let the job run until its first checkpoint is committed"
            raise NotFoundError(where=path, expected="a checkpoint to verify", found="none", todo=todo)
        for chosen in steps:
            with bar(f"step {chosen}", shown=not arguments.json) as progress:
                report = verify(path, chosen, progress)
            if arguments.quarantine:
                report = quarantine(report)
            reports.append(report)
            if not arguments.json:
                _print(report)
    if arguments.json:
        print(json.dumps([report.to_json() for report in reports], indent=2))
    if not all(report.ok for report in reports):
        return 1
    return _DIFFERED if any(report.diverged for report in reports) else 0


def _speed(report: Verification) -> str:
    """How fast the bytes were read and compared: "1.9 GB/s"."""
    return f"{wording.size(report.nbytes / max(report.seconds, 1e-9))}/s"


def _print(report: Verification) -> None:
    read = f"{wording.size(report.nbytes)} in {wording.count(report.files, 'file')}, {_speed(report)}"
    differed = f", ranks differed (in {wording.count(report.diverged, 'tensor')})" if report.diverged else ""
    line(f"{report.path}: {'ok' if report.ok else 'DAMAGED'}{differed}, {read}")
    for problem in report.problems:
        line(f"  {problem}")
    if report.moved is not None:
        line(f"  moved to {report.moved}")
