"""Reads the files of events of a run (docs/format.md, "Events"), also while a job writes them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from deepfreeze.errors import RunError
from deepfreeze.events.event_lines import EventLines
from deepfreeze.format import names
from deepfreeze.store.store import Store
from deepfreeze.store.stores import at


class EventFiles:
    """The events of all attempts in a run, as far as they were not returned yet."""

    def __init__(self, run: str | os.PathLike[str] | Store) -> None:
        """``run``: its path, or its store. OptionError if it is none."""
        self._store = at(run)
        self._lines: dict[str, EventLines] = {}  # by the name of the file

    @property
    def skipped(self) -> int:
        """How many lines were too long to be events: of more than 1 MiB."""
        return sum(lines.skipped for lines in self._lines.values())

    def new(self) -> list[dict[str, Any]]:
        """The events that were written since the last call, in the order of their times; the first call returns all that there are. Each
        is a JSON object, with members that this version may not know. A line without its end is left for the next call; lines that are
        no events, or have more than 1 MiB, are left out. ``RunError`` if a file can't be read, ``CorruptError`` if it is none."""
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
        path = f"{names.EVENTS_DIR}/{name}"
        try:
            with contextlib.closing(self._store.open(path)) as file:
                return list(self._lines.setdefault(name, EventLines()).new(file))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(self._store.where(path), error) from None


def _unreadable(path: Path, error: OSError) -> RunError:
    return RunError(
        where=path, expected="readable events", found=os.strerror(error.errno or 0), todo="check the permissions"
    )
