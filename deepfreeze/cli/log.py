"""``deepfreeze log``: prints the events of a run."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from deepfreeze import wording
from deepfreeze.cli import command
from deepfreeze.cli.output import line, notify
from deepfreeze.cli.target import step_of, target
from deepfreeze.events.event_files import EventFiles
from deepfreeze.events.event_lines import MAX_LINE
from deepfreeze.events.newest_end import newest_end
from deepfreeze.format.strict_json import shown
from deepfreeze.store.run import Run

_LOOKS_EVERY = 0.5  # seconds between two looks with --follow
_MORE = """
Each line has the time (UTC), the seconds since the attempt began, the step, the kind of the event,
and the event's own figures. docs/format.md, "Events", describes them.

With --ended it prints one line instead: whether the training of the newest attempt has come to its own
end. A launcher's exit code of 0 is no proof of that: some mpirun end so when a node was lost. A job's script
takes a job as ended if both codes are 0. An attempt that only opened the run, because nothing was left to
train, leaves the answer to the one before.

exit codes:
  0  there are events; with --ended: the newest attempt has ended its training
  1  there are none, or no such run; with --ended: something else has ended it, or it still runs
  2  the command line is wrong

examples:
  deepfreeze log runs/nt3              what has happened in all attempts?
  deepfreeze log runs/nt3@40           what has happened to step 40?
  deepfreeze log runs/nt3 --follow     also what happens now, until Ctrl-C
  deepfreeze log runs/nt3 --json       one JSON object a line
  deepfreeze log runs/nt3 --ended      is the training over?
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = """Prints what has happened in a run: when each attempt began, when checkpoints were captured and committed, how long they
    held up training, and what failed. A running job may be watched."""
    parser = command.add(commands, "log", run, short="print what has happened in a run", text=text, more=_MORE)
    parser.add_argument("target", metavar="RUN[@STEP]", type=target, help="a run, or one of its checkpoints")
    parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C, and print new events")
    text = "print whether the newest attempt has ended its training, and return 0 if it has, else 1"
    parser.add_argument("--ended", action="store_true", help=text)
    parser.set_defaults(parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the events, or how the newest attempt has ended. Returns the exit code, 1 if there is no event."""
    if arguments.ended and (arguments.follow or arguments.target[1] is not None):
        arguments.parser.error("--ended is asked of a whole RUN, and takes neither @STEP nor --follow")
    path, step = arguments.target[0], step_of(arguments.target)
    opened_run = Run.open(path)  # an error names what is wrong with the path
    if arguments.ended:
        return show_end(opened_run, arguments.json)
    files, any_event, skipped = EventFiles(path), False, 0
    while True:
        for event in files.new():
            if step is None or event.get("step") == step:
                any_event = True
                show(event, arguments.json)
        sys.stdout.flush()
        skipped = _tell_skipped(files.skipped, skipped)
        if not arguments.follow:
            break
        time.sleep(_LOOKS_EVERY)
    if not any_event and not arguments.json:
        line(f"{path}: no events")
    return 0 if any_event else 1


def show_end(run: Run, as_json: bool) -> int:
    """Prints how the newest attempt has ended. Returns the exit code, 1 unless its training has come to its end."""
    found = newest_end(run)
    if as_json:
        print(json.dumps({"run": str(run.path), **asdict(found)}))
    else:
        attempt = "" if found.attempt is None else f"the newest attempt, {found.attempt[:8]}: "
        line(f"{run.path}: {'ended' if found.ended else 'not ended'}; {attempt}{shown(found.why)}")
    return 0 if found.ended else 1


def _tell_skipped(number: int, told: int) -> int:
    """Says on standard error how many lines were skipped so far, if these are more than were ``told``. Returns the number."""
    if number > told:
        lines = wording.count(number, "line")
        notify(
            "warning", f"skipped {lines} of more than {MAX_LINE >> 20} MiB in the files of events: no event is so long"
        )
    return number


def show(event: dict[str, Any], as_json: bool) -> None:
    """Prints an event: its members as JSON, or as columns for people."""
    if as_json:
        print(json.dumps(event))
        return
    seconds, rest = divmod(event["t"], 10**9)
    try:
        when = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        when = "?"  # a time that no calendar has
    step = event.get("step")
    own = {name: value for name, value in event.items() if name not in ("v", "t", "m", "kind", "step")}
    figures = "  ".join(f"{_text(name)}={_text(value)}" for name, value in own.items())
    at = f"step {_text(step)}" if step is not None else ""
    line(f"{when}.{rest // 10**6:03d}  {event['m']:10.3f} s  {at:<12}  {_text(event['kind']):<8}  {figures}".rstrip())


def _text(value: Any) -> str:
    """A value as text for a terminal: a string without control characters as it is, a float with four digits, anything else as JSON."""
    return f"{value:.4g}" if isinstance(value, float) else shown(value)
