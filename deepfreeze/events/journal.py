"""The file that keeps an attempt's events: ``RUN/events/ATTEMPT.jsonl``, one JSON object a line (docs/format.md, "Events")."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

from deepfreeze.events.event import Event
from deepfreeze.store.durable import DIRECTORY_MODE, FILE_MODE


class Journal:
    """A listener that appends events to a new file, without fsync: a loss of power may take the newest lines, and a kill may tear the last
    one. The file is made with the first event. All calls come from one thread, which is not training's."""

    def __init__(self, path: Path, began: float, wanted: Callable[[Event], bool] = lambda event: True) -> None:
        """``path``: of the file, whose folder's parent exists; ``began``: the value of an event's ``m`` that the file calls 0; ``wanted``:
        whether an event is written."""
        self.name = f"the file of events {path}"
        self._path, self._began, self._wanted = path, began, wanted
        self._file: int | None = None
        self._torn = False  # the last line has no end, because the store was full

    def on(self, event: Event) -> None:
        """Appends the event in one write. OSError if the file can't be made or written."""
        if not self._wanted(event):
            return
        if self._file is None:
            self._path.parent.mkdir(DIRECTORY_MODE, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self._path, flags, FILE_MODE)
        line = json.dumps(event.to_json(self._began), separators=(",", ":")) + "\n"
        data = ("\n" + line if self._torn else line).encode()
        written = os.write(self._file, data)
        self._torn = written < len(data)
        if self._torn:
            raise OSError(errno.ENOSPC, "a part of a line was written", os.fspath(self._path))

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
