"""``deepfreeze show --engine``: prints what the engine of a run's newest attempt has counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from deepfreeze import wording
from deepfreeze.cli.output import line, table
from deepfreeze.events.event import Attempt, Counted
from deepfreeze.events.event_files import EventFiles
from deepfreeze.events.event_lines import is_number
from deepfreeze.format.strict_json import shown
from deepfreeze.store.run import Run

_PLACES = ("external", "local")


def newest(run: Run) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The newest attempt's ``attempt`` and ``counted`` events, as in its file; None for one that there is not. ``RunError`` if the files
    can't be read."""
    attempt = counted = None
    for event in EventFiles(run.path).new():
        if event["kind"] == Attempt.__name__.lower():
            attempt, counted = event, None
        elif event["kind"] == Counted.__name__.lower() and isinstance(event.get("engine"), dict):
            counted = event
    return attempt, counted


def show(run: Run, as_json: bool) -> int:
    """Prints the counts. Returns the exit code, 1 if there are none."""
    attempt, counted = newest(run)
    named = shown(attempt.get("attempt")) if attempt is not None else None
    if as_json:
        print(json.dumps({"attempt": named, "engine": counted and counted["engine"]}, indent=2))
    elif counted is None:
        who = f"the newest attempt ({named})" if named else "this run"
        line(f"{who} has no counts: its job runs, was killed, or was of a version that did not count")
    else:
        line(f"attempt  {named}, rank 0's engine until its end")
        line("")
        _print(counted["engine"])
    return 0 if counted is not None else 1


def _print(engine: dict[str, Any]) -> None:
    for name, count, seconds in (
        ("training waited for memory", "waits", "wait_s"),
        ("pauses between looks", "pauses", "pause_s"),
    ):
        times = engine.get(count, 0)
        line(f"{name}: {shown(times)} time{'' if times == 1 else 's'}, {_seconds(engine.get(seconds))}")
    line(f"looks at the store: {shown(engine.get('looks', 0))}")
    line("")
    places = {name: engine[name] for name in _PLACES if isinstance(engine.get(name), dict)}
    counted = list(dict.fromkeys(name for place in places.values() for name in place))
    table(
        ("calls and bytes", *(f">{name}" for name in places)), [_row(name, list(places.values())) for name in counted]
    )
    line("")
    threads = engine.get("threads")
    if isinstance(threads, dict):
        table(("thread", ">CPU time"), [(shown(name), _seconds(spent)) for name, spent in threads.items()])


def _row(name: str, places: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    def cell(value: Any) -> str:
        return wording.size(value) if name.endswith("bytes") and is_number(value) else shown(value)

    return (shown(name.replace("_", " ")), *(cell(place.get(name, "-")) for place in places))


def _seconds(value: Any) -> str:
    return f"{value:.3f} s" if is_number(value) else "-"
