"""The first and the last events of an attempt, and the file that keeps its events."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from deepfreeze import wording
from deepfreeze.events.event import Attempt, End, Event, Failed, Notice
from deepfreeze.events.events import Events
from deepfreeze.events.journal import Journal
from deepfreeze.events.queue import Queue
from deepfreeze.events.stats import Stats
from deepfreeze.format import names
from deepfreeze.format.position import Position
from deepfreeze.store.run import Run
from deepfreeze.store.stores import at
from deepfreeze.training import attempt_lines
from deepfreeze.training.first_step import FirstStep
from deepfreeze.training.open_run import OpenRun
from deepfreeze.training.options import Options
from deepfreeze.training.start import Start

# How many seconds the end of an attempt waits for all listeners. The file of events may be on a store that hangs.
_LISTENERS_SECONDS = 5.0


@dataclass(frozen=True)
class Beginning:
    """The time at which a job's start began, as ``Event.t`` and ``Event.m``. The events of the start itself are kept from then on, until
    ``announce`` knows the file that they belong to."""

    t: int
    m: float

    @classmethod
    def now(cls, events: Events) -> Beginning:
        """To be called before the start."""
        events.hold()
        return cls(time.time_ns(), time.monotonic())


def announce(
    events: Events,
    beginning: Beginning,
    open_run: OpenRun,
    again: bool,
    options: Options,
    stats: Stats,
    epochs: str = "",
) -> None:
    """To be called after the start. Starts the threads of the listeners that have one, and tells every listener that an attempt has begun.
    They are told of all events until ``open_run`` is closed; the last one says how the attempt ended. ``again``: the model has been
    trained here before; ``options``, ``stats``: of the training, for the two lines that rank 0 prints with ``verbose=1``; ``epochs``: which
    epochs are trained, for the first of them."""
    start = open_run.attempt
    target, rank = start.target, start.world.rank
    begun = Attempt(
        t=beginning.t,
        m=beginning.m,
        step=start.step,
        run_id=target.run_id,
        attempt=target.attempt,
        ranks=start.world.size,
        host=start.nodes.here.host,
        pid=os.getpid(),
        resumed=start.resumed,
        again=again,
    )
    name = f"{names.EVENTS_DIR}/{names.events_file(target.attempt, rank)}"
    journal = Journal(at(target.run), name, begun.m, (lambda event: True) if rank == 0 else _is_known_here_alone)

    open_run.first_step = FirstStep(events, beginning.m) if rank == 0 else None
    speaks, before = rank == 0 and options.verbose > 0, attempt_lines.Before.of(stats)

    def end() -> None:
        try:
            events.flush()  # the figures of the last checkpoints may be among the notes
            line = attempt_lines.end(before, stats, open_run.file_size) if speaks and open_run.finished else None
            if line is not None:
                events.say(line)
            trained = None if open_run.begun else False
            events.emit(End(finished=open_run.finished, error=open_run.error, trained=trained))
        finally:
            events.stop(_LISTENERS_SECONDS)

    open_run.closing.callback(end)
    events.start(Queue(journal, at_end=journal.close), begun)
    if speaks and not again:
        events.say(_first_line(start, options.resume, epochs))
    elif speaks and epochs:
        events.say(f"{wording.near(target.run)}: {epochs}")


def _first_line(start: Start, resume: str, epochs: str) -> str:
    run, step = start.target.run, start.resumed
    if step is None:
        return attempt_lines.fresh(run, resume, [str(path) for path in start.made])
    manifest = Run.open(run).manifest(step)
    return attempt_lines.resumed(run, step, manifest.created, time.time(), Position.of(manifest.values), epochs)


def _is_known_here_alone(event: Event) -> bool:
    """True for an event of another rank that rank 0 can't know of. Few ranks have such events, so few ranks make a file."""
    return (isinstance(event, Notice) and event.level == "warning") or (
        isinstance(event, Failed) and not event.reported
    )
