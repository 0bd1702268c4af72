"""How far the checkpoints of a running job are, as the end of its file of events says."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from deepfreeze.errors import CorruptError, Error
from deepfreeze.events.event import Unfinished
from deepfreeze.events.event_lines import parse
from deepfreeze.format import names
from deepfreeze.format.levels import LEVELS
from deepfreeze.format.strict_json import MAX_INT, Fields
from deepfreeze.store.owner import owner_of
from deepfreeze.store.run import Run

_TAIL = 1 << 18  # bytes at the end of the file that are read; a line of progress has some hundred


@dataclass(frozen=True)
class NewestProgress:
    """The newest event ``progress`` of the attempt that has the run, without the checkpoints that have ended since. ``attempt``: its id;
    ``t``: when it was written, nanoseconds since 1970, UTC; ``unfinished``: the oldest checkpoint first."""

    attempt: str
    t: int
    unfinished: tuple[Unfinished, ...]


def newest_progress(run: Run) -> NewestProgress | None:
    """How far the unfinished checkpoints of the attempt are that has ``run``; None if it does not say, if none is unfinished, or if the
    attempt has ended. A file that can't be read, or is damaged, counts as one that does not say: nobody but a person needs the answer."""
    with contextlib.suppress(OSError, Error):
        attempt = owner_of(run)
        if attempt is not None and names.is_id(attempt):
            return _of(attempt, _tail(run, f"{names.EVENTS_DIR}/{names.events_file(attempt)}"))
    return None


def _of(attempt: str, tail: list[bytes]) -> NewestProgress | None:
    over: set[int] = set()  # steps that have ended since
    for event in filter(None, map(parse, reversed(tail))):
        if event["kind"] == "end":
            return None
        step = event.get("step")
        if event["kind"] in ("external", "failed", "superseded") and isinstance(step, int):
            over.add(step)
        if event["kind"] == "progress" and 0 <= event["t"] <= MAX_INT:
            found = _unfinished(event.get("unfinished"))
            left = tuple(one for one in found if one.step not in over)
            return NewestProgress(attempt, event["t"], left) if left else None
    return None


def _unfinished(given: Any) -> list[Unfinished]:
    """The checkpoints in the event ``progress`` that are sound. The file may be damaged, or a newer version's."""
    found = []
    for one in given if isinstance(given, list) else ():
        with contextlib.suppress(CorruptError):
            fields = Fields(one, "events")
            found.append(
                Unfinished(
                    step=fields.integer("step", 0, names.MAX_STEP),
                    level=fields.one_of("level", tuple(LEVELS)),
                    nbytes=fields.integer("nbytes"),
                    local=fields.integer("local"),
                    external=fields.integer("external"),
                    published=one.get("published") is True,
                    seconds=fields.number("seconds", 0.0),
                    waits_for="" if one.get("waits_for") == "" else fields.text("waits_for"),
                )
            )
    return found


def _tail(run: Run, name: str) -> list[bytes]:
    with contextlib.closing(run.store.open(name)) as file:
        begin = max(0, file.size - _TAIL)
        lines = file.get(begin, file.size - begin).split(b"\n")[:-1]  # what is behind the last newline is no line yet
    return lines[1:] if begin else lines
