"""``deepfreeze tag`` and ``deepfreeze untag``: names for checkpoints."""

from __future__ import annotations

import argparse
import json
from typing import Any

from deepfreeze.cli import command
from deepfreeze.cli.output import line
from deepfreeze.cli.target import Target, target
from deepfreeze.errors import Error
from deepfreeze.store.catalog import choose
from deepfreeze.store.run import Run
from deepfreeze.store.tags import read_marks, tag, untag

_MORE = """
A tag names one checkpoint, and RUN@NAME means that checkpoint wherever RUN@STEP does. A running job
need not be stopped. The job keeps the checkpoint if its rules have Tagged(), and prune always does.
If the job removes the checkpoint at this very moment, the command fails and says so.

exit codes:
  0  the checkpoint has the tag
  1  there is no such checkpoint, or another one has the tag
  2  the command line is wrong

examples:
  deepfreeze tag runs/nt3@40 paper      step 40 is runs/nt3@paper from now on
  deepfreeze tag runs/nt3 release-1     the newest checkpoint
"""
_MORE_UNTAG = """
The checkpoint itself stays as it is; from now on nothing keeps it for its tag.

exit codes:
  0  the tag is removed
  1  there is no such tag, or no such run
  2  the command line is wrong

examples:
  deepfreeze untag runs/nt3@paper
"""


def add_parser(commands: Any) -> None:
    """Adds both subcommands to argparse's ``commands``."""
    text = "Gives a checkpoint a name."
    parser = command.add(commands, "tag", run_tag, short="give a checkpoint a name", text=text, more=_MORE)
    parser.add_argument("target", metavar="RUN[@STEP]", type=target, help="one of a run's checkpoints, or its newest")
    parser.add_argument("name", metavar="NAME", help="letters, digits, _, -, + and ., not digits alone")
    text = "Takes a name from a checkpoint."
    parser = command.add(
        commands, "untag", run_untag, short="take a name from a checkpoint", text=text, more=_MORE_UNTAG
    )
    parser.add_argument("target", metavar="RUN@NAME", type=_tagged, help="the run and the name")


def _tagged(text: str) -> Target:
    found = target(text)
    if not isinstance(found[1], str):
        raise argparse.ArgumentTypeError(f"{text!r} is not RUN@NAME")
    return found


def run_tag(arguments: argparse.Namespace) -> int:
    """Makes the tag. Returns the exit code."""
    path, step = arguments.target
    opened_run = Run.open(path)
    made = tag(opened_run, choose(opened_run, step), arguments.name)
    if arguments.json:
        print(json.dumps({"run": str(opened_run.path), "step": made.step, "tag": arguments.name}))
    else:
        line(f"{opened_run.path}@{arguments.name} is step {made.step}{_warning(opened_run)}")
    return 0


def run_untag(arguments: argparse.Namespace) -> int:
    """Removes the tag. Returns the exit code."""
    path, name = arguments.target
    found = untag(Run.open(path), name)
    step = None if found is None else found.step
    if arguments.json:
        print(json.dumps({"run": path, "step": step, "tag": name}))
    else:
        line(f"{path}@{name} is no tag any more" + ("" if step is None else f"; it was step {step}"))
    return 0


def _warning(run: Run) -> str:
    """A sentence for a user whose job does not keep what has a tag."""
    try:
        marks = read_marks(run)
    except Error:
        return ""
    if marks is None or not marks.rule or "Tagged()" in marks.rule:
        return ""
    return f". The run's last job has keep={marks.rule}, which keeps no checkpoint for its tag: Tagged() does"
