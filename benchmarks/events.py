"""What do the events of a checkpoint cost training? python -m benchmarks.events --help

A checkpoint in every step: the training thread puts down that the step was captured, how long training was held up, and what the
engine has reported, by the very lines of a training session. Before each step the thread sleeps, as it sleeps while TensorFlow computes,
so that the code is colder than in a training, where a session's other code has just run. The file of events, ``stats``, Keras's logs and
the logger listen.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks import jobs, report
from benchmarks.report import Report, say, table
from deepfreeze.events.event import Blocked, Captured
from deepfreeze.events.events import MOST_NOTES, Events
from deepfreeze.events.journal import Journal
from deepfreeze.events.keras_logs import KerasLogs
from deepfreeze.events.messages import Messages
from deepfreeze.events.queue import Queue
from deepfreeze.events.stats import Stats
from deepfreeze.store.stores import at
from deepfreeze.training.engine_reports import EngineReports
from veloc_bindings import EXTERNAL, LOCAL, OK
from veloc_bindings import Report as EngineReport

STEPS = 1000
STEP_S = 0.010  # a step that has little to compute: the goal is a part of it


# As in deepfreeze/training/session.py.
_captured, _blocked = Captured.noted, Blocked.noted


class Session:
    """Makes the same calls for events as a session of a training, and no other ones."""

    def __init__(self, events: Events, reports: EngineReports) -> None:
        self.events, self._notes, self._progress = events, events.notes, reports.progress

    def checkpoint(self, step: int, reports: list[EngineReport], begin: float) -> None:
        """The events of one checkpoint, and of the engine's ``reports``: see ``Commits.take``, ``Session._save``, ``Session.executed``."""
        self._notes.append((time.monotonic(), self._progress, (reports,)))
        if len(self._notes) > MOST_NOTES:
            self.events.flush()
        self._notes.append((time.monotonic(), _captured, (step, 1)))
        now = time.monotonic()
        self._notes.append((now, _blocked, (step, now - begin)))

    def nothing(self, step: int, reports: list[EngineReport], begin: float) -> None:
        """A method that does nothing: the time of a call of it is the cost of a call by itself."""


def measure(args: argparse.Namespace) -> Report:
    """One training's events, on this process's main thread."""
    found = Report("events", "What do the events of a checkpoint cost training?")
    steps = 50 if args.quick else STEPS
    say(f"{steps} checkpoints")
    with jobs.places(args.folder) as (disk, _):
        journal = Journal(at(disk), "events/attempt.jsonl", time.monotonic())
        events = Events([Stats(), Messages(), KerasLogs()])
        events.start(Queue(journal, at_end=journal.close))
        session = Session(events, EngineReports(str(disk), [], events))
        took, nothing = [], []
        for step in range(1, steps + 1):
            news = [
                EngineReport(step, LOCAL, OK, False, -1, 1, 0.01, -1.0, -1.0, ""),
                EngineReport(step - 1 or 1, EXTERNAL, OK, True, -1, 1, 0.01, 0.02, 0.03, ""),
            ]
            for what, samples in ((session.checkpoint, took), (session.nothing, nothing)):
                time.sleep(STEP_S)
                begun = time.perf_counter()
                what(step, news, begun)
                samples.append(time.perf_counter() - begun)
        events.flush()
        events.stop(60.0)
    row = found.row(steps=steps, step_s=STEP_S)
    row.add("events", "s", took)
    row.add("nothing", "s", nothing)
    return found


def tables(found: Report) -> str:
    """The time on the training thread, and its part of a step."""
    row = found.find()
    # The cost of a call, and of reading the clock, is no cost of events.
    net = row.median("events") - row.median("nothing")
    cells = [
        row.labels["steps"],
        f"{row.median('events') * 1e6:.1f}",
        f"{row.median('nothing') * 1e6:.1f}",
        f"{net / row.labels['step_s']:.2%}",
    ]
    part = f"of a step of {row.labels['step_s'] * 1e3:.0f} ms"
    return table(["checkpoints", "events of a checkpoint, us", "a call that does nothing, us", part], [cells])


def draw(found: Report, path: Path) -> None:
    """The distribution of both."""
    row = found.find()
    names = {"events": "events of a checkpoint", "nothing": "a call that does nothing"}
    curves = {text: [value * 1e6 for value in row.samples(name)] for name, text in names.items()}
    report.distributions(path, "Events on the training thread", ("us", "part of the checkpoints"), curves)


if __name__ == "__main__":
    report.run("events", __doc__ or "", measure, tables, draw)
