"""The calls by which a process makes changes durable, watched, and made to fail."""

from __future__ import annotations

import os
from typing import Any

WATCHED = ("fsync", "rename", "replace", "mkdir", "rmdir")


class Calls(list[tuple[str, str]]):
    """(call, name of the file or directory), in order, from construction on. Those in ``failing`` fail, with that error."""

    def __init__(self, monkeypatch: Any) -> None:
        super().__init__()
        self.failing: dict[str | tuple[str, str], OSError] = {}
        for name in WATCHED:
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, call: Any) -> Any:
        def watch(path: Any, *arguments: Any, **options: Any) -> Any:
            where = os.readlink(f"/proc/self/fd/{path}") if name == "fsync" else path
            self.append((name, os.path.basename(where)))
            for one in (name, self[-1]):
                if one in self.failing:
                    raise self.failing[one]
            return call(path, *arguments, **options)

        return watch
