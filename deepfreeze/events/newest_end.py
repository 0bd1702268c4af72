"""The end of a run's newest attempt, as its file of events tells it. A job's script asks for it, because some launchers hide that ranks
were killed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from deepfreeze.events.event import Attempt, End, Stop
from deepfreeze.events.event_lines import EventLines
from deepfreeze.format import names
from deepfreeze.store.failures import refused
from deepfreeze.store.owner import owner_of
from deepfreeze.store.run import Run

_ATTEMPT, _STOP, _END = (kind.__name__.lower() for kind in (Attempt, Stop, End))


@dataclass(frozen=True)
class NewestEnd:
    """``ended``: whether the training of the newest attempt has come to its own end; ``why``: what its events say, as text; ``attempt``:
    its id, None if the run has none."""

    ended: bool
    why: str
    attempt: str | None = None


def newest_end(run: Run) -> NewestEnd:
    """How the newest attempt of ``run`` has ended. An attempt that has opened the run and trained nothing, because nothing was left to
    train, leaves the answer to the one before. ``RunError`` if the events can't be read."""
    attempts, owner = _attempts(run), _owner(run)
    # The run itself says which attempt is the newest: the clocks of two nodes may differ.
    if owner is not None:
        if owner not in attempts:
            return NewestEnd(False, "it has left no events", owner)
        found = _of(_read(run, owner))
        if found is not None:
            return NewestEnd(*found, owner)
    others = {attempt: _read(run, attempt) for attempt in attempts if attempt != owner}
    for attempt in sorted(others, key=lambda attempt: _begun(others[attempt]), reverse=True):
        found = _of(others[attempt])
        if found is not None:
            return NewestEnd(*found, attempt)
    return NewestEnd(False, "no attempt has trained so far", owner)


def _of(events: list[dict[str, Any]]) -> tuple[bool, str] | None:
    """Whether an attempt's training has come to its end, and why; None if it has trained nothing, and ended as it should."""
    stops, ends = ([event for event in events if event["kind"] == kind] for kind in (_STOP, _END))
    if not ends:
        return False, "it was killed, or it is still running"
    last = ends[-1]
    if last.get("trained") is False and last.get("error") is None:
        return None
    if stops:
        return (
            False,
            f"{stops[-1].get('signal') or 'the end of the job'} has stopped it at step {stops[-1].get('step')}",
        )
    if last.get("finished") is True:
        return True, "its training has ended"
    return False, f"an error has ended it: {last['error']}" if last.get("error") else "an exception has ended it"


def _begun(events: list[dict[str, Any]]) -> int:
    return next((event["t"] for event in events if event["kind"] == _ATTEMPT), 0)


def _attempts(run: Run) -> list[str]:
    """The attempts whose rank 0 has written events."""
    try:
        listed = map(names.parse_events_file, run.store.list(names.EVENTS_DIR))
        return [attempt for attempt, rank in filter(None, listed) if rank == 0]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise refused(run.store.where(names.EVENTS_DIR), error) from error


def _read(run: Run, attempt: str) -> list[dict[str, Any]]:
    """The events of the attempt that tell of its beginning and its end."""
    name = f"{names.EVENTS_DIR}/{names.events_file(attempt)}"
    try:
        with contextlib.closing(run.store.open(name)) as file:
            return [event for event in EventLines().new(file) if event["kind"] in (_ATTEMPT, _STOP, _END)]
    except OSError as error:
        raise refused(run.store.where(name), error) from error


def _owner(run: Run) -> str | None:
    try:
        owner = owner_of(run)
    except OSError as error:
        raise refused(run.store.where(names.OWNER_FILE), error) from error
    return owner if owner is not None and names.is_id(owner) else None
