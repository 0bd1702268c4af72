"""Reads the files of events of a run (docs/format.md, "Events"), also while a job writes them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from deepfreeze.errors import RunError
from deepfreeze.format import names


class EventFiles:
    """The events of all attempts in a run, as far as they were not returned yet."""

    def __init__(self, run: str | os.PathLike[str]) -> None:
        """``run``: the run's directory."""
        self._folder = Path(run) / names.EVENTS_DIR
        self._ends: dict[str, int] = {}  # name of a file -> how many of its bytes were read

    def new(self) -> list[dict[str, Any]]:
        """The events that were written since the last call, in the order of their times; the first call returns all that there are. Each
        is a JSON object, with members that this version may not know. A line without its end is left for the next call; lines that are
        no events are left out. ``RunError`` if a file can't be read."""
        found: list[dict[str, Any]] = []
        for name in self._files():
            found += self._read(name)
        return sorted(found, key=lambda event: event["t"])  # stable: the events of one file stay in their order

    def _files(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._folder) if names.parse_events_file(name) is not None)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(self._folder, error) from None

    def _read(self, name: str) -> list[dict[str, Any]]:
        begin = self._ends.get(name, 0)
        try:
            with open(self._folder / name, "rb") as file:
                file.seek(begin)
                data = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(self._folder / name, error) from None
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
    good = type(event.get("v")) is int and type(event.get("t")) is int and type(event.get("m")) in (int, float)
    return event if good else None


def _unreadable(path: Path, error: OSError) -> RunError:
    return RunError(
        where=path, expected="readable events", found=os.strerror(error.errno or 0), todo="check the permissions"
    )
