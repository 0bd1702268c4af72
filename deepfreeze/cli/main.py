"""The ``deepfreeze`` command. Each subcommand has a module of its own."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from deepfreeze.errors import Error

try:
    from deepfreeze.cli import (
        build_horovod,
        command,
        diff,
        export,
        log,
        ls,
        output,
        plan,
        prune,
        resume_check,
        show,
        tag,
        tune,
        verify,
    )
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "rich":
        raise
    # No other part of the package needs rich. An exit instead of an exception: this module is the start of a program.
    raise SystemExit(
        "deepfreeze: the command line: expected the Python package rich, for its progress bars; found none. Install it (pip install "
        "rich), or use deepfreeze.checkpoints, read, export and the like in Python, which do without."
    ) from None

_DESCRIPTION = """Inspects the checkpoints of training runs. Needs no TensorFlow. Only export, tag, untag, prune --yes,
verify --quarantine, plan --plot and tune write or delete files. resume-check and tune start a training program; build-horovod installs
Horovod."""
_EPILOG = """\
RUN is the directory that was given to deepfreeze.Checkpoint, RUN@STEP one checkpoint in it (runs/nt3@40), RUN@NAME one that has a tag
(runs/nt3@paper); where only RUN is given, its newest checkpoint is meant (ls, log, plan and verify: all). Each command has its own --help.

On a terminal the output keeps to the terminal's width. In a file or a pipe each row is one line, unless COLUMNS is set.

exit codes:
    0  all is well
    1  a checkpoint is damaged, or there is none, or the command failed
    2  the command line is wrong
    3  diff --exit-code: the checkpoints differ; resume-check: the program does not go on bit for bit
    4  verify: every byte is right, but the ranks differed at a checkpoint
    5  resume-check: the program is not repeatable, even without a kill
  130  interrupted (Ctrl-C): no file is left half written; what prune has deleted is deleted

If the program that reads the output ends before it has read all (| head), the exit code is 1.

examples:
  deepfreeze ls runs                              which runs are there?
  deepfreeze ls runs/nt3                          which checkpoints are there?
  deepfreeze show runs/nt3@40                     what is in it?
  deepfreeze log runs/nt3 --follow                what happens now?
  deepfreeze plan runs/nt3 --explain              why are there so many checkpoints, or so few?
  deepfreeze verify runs/nt3                      is every byte right?
  deepfreeze diff runs/nt3@30 runs/nt3@40         what have ten steps changed?
  deepfreeze export runs/nt3@40 nt3.safetensors   write a file for others
  deepfreeze tag runs/nt3@40 paper                call it runs/nt3@paper
  deepfreeze prune runs/nt3 --keep 2              what would be deleted?
  deepfreeze tune -- python train.py              how do its checkpoints go fastest to the store?
  deepfreeze resume-check -- python train.py      does it survive a kill?
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Puts the text of each command beside its name. argparse forgets that the names are indented, and breaks the line of the longest."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = len("    build-horovod")


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    top = argparse.ArgumentParser(
        prog="deepfreeze",
        description=command.filled(_DESCRIPTION),
        epilog=command.filled(_EPILOG),
        formatter_class=_Help,
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (ls, show, log, plan, verify, diff, export, tag, prune, tune, resume_check, build_horovod):
        module.add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. For a wrong command line argparse itself exits with 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path may have bytes that are not UTF-8
    arguments = parser().parse_args(argv)
    try:
        code: int = arguments.run_command(arguments)
        sys.stdout.flush()
        return code
    except Error as error:
        output.complain(error)
        return 1
    except BrokenPipeError:
        # The program that reads the output (head, less) has ended. Without this Python would print an error when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
