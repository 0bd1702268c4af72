"""Reads the files of events of a run (docs/format.md, "Events"), also while a job writes them."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from deepfreeze.errors import RunError
from deepfreeze.format import names
from deepfreeze.store.store import Store
from deepfreeze.store.stores import at

_MOST_SECONDS = 1e12


class EventFiles:
    """The events of all attempts in a run, as far as they were not returned yet."""

    def __init__(self, run: str | os.PathLike[str] | Store) -> None:
        """``run``: its path, or its store. OptionError if it is none."""
        self._store = at(run)
        self._ends: dict[str, int] = {}  # name of a file -> how many of its bytes were read

    def new(self) -> list[dict[str, Any]]:
        """The events that were written since the last call, in the order of their times; the first call returns all that there are. Each
        is a JSON object, with members that this version may not know. A line without its end is left for the next call; lines that are
        no events are left out. ``RunError`` if a file can't be read, ``CorruptError`` if it is none."""
        found: list[tuple[int, dict[str, Any]]] = []
        for name in self._files():
            latest = 0  # the events of one file stay in their order, also where the clock was set back
            for event in self._read(name):
                latest = max(latest, event["t"])
                found.append((latest, event))
        return [event for _, event in sorted(found, key=lambda pair: pair[0])]

    def _files(self) -> list[str]:
        try:
            listed = self._store.list(names.EVENTS_DIR)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(self._store.where(names.EVENTS_DIR), error) from None
        return sorted(name for name in listed if names.parse_events_file(name) is not None)

    def _read(self, name: str) -> list[dict[str, Any]]:
        begin, path = self._ends.get(name, 0), f"{names.EVENTS_DIR}/{name}"
        try:
            with contextlib.closing(self._store.open(path)) as file:
                data = file.get(begin, max(0, file.size - begin))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(self._store.where(path), error) from None
        whole = data[: data.rfind(b"\n") + 1]
        self._ends[name] = begin + len(whole)
        return [event for line in whole.splitlines() if (event := parse(line)) is not None]


def parse(line: bytes) -> dict[str, Any] | None:
    """The event in a line of the file. None for a line that is no event: a JSON object with the members ``v`` and ``t`` (integers),
    ``m`` (a number) and ``kind`` (text)."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
        return None
    version, time, seconds = event.get("v"), event.get("t"), event.get("m")
    if type(version) is not int or type(time) is not int or isinstance(seconds, bool):
        return None
    if not isinstance(seconds, (int, float)) or not abs(seconds) < _MOST_SECONDS:  # as NaN is not either
        return None
    return event


def _unreadable(path: Path, error: OSError) -> RunError:
    return RunError(
        where=path, expected="readable events", found=os.strerror(error.errno or 0), todo="check the permissions"
    )
