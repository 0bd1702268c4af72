"""The file that keeps an attempt's events: ``RUN/events/ATTEMPT.jsonl``, one JSON object a line (docs/format.md, "Events")."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable

from deepfreeze.events.event import Event
from deepfreeze.store.store import Appender, Store


class Journal:
    """A listener that appends events to a new file, without fsync: a loss of power may take the newest lines, and a kill may tear the last
    one. The file is made with the first event. All calls come from one thread, which is not training's."""

    def __init__(
        self, store: Store, name: str, began: float, wanted: Callable[[Event], bool] = lambda event: True
    ) -> None:
        """``store``, ``name``: of the file; ``began``: the value of an event's ``m`` that the file calls 0; ``wanted``:
        whether an event is written."""
        self.name = f"the file of events {store.where(name)}"
        self._store, self._file_name, self._began, self._wanted = store, name, began, wanted
        self._file: Appender | None = None
        self._torn = False  # the last line has no end, because the store was full

    def on(self, event: Event) -> None:
        """Appends the event in one write. OSError if the file can't be made or written."""
        if not self._wanted(event):
            return
        if self._file is None:
            self._file = self._store.append(self._file_name)
        line = json.dumps(event.to_json(self._began), separators=(",", ":")) + "\n"
        data = ("\n" + line if self._torn else line).encode()
        written = self._file.write(data)
        self._torn = written < len(data)
        if self._torn:
            raise OSError(errno.ENOSPC, "a part of a line was written", self.name)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
