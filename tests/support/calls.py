"""Watches the calls with which this process names, deletes and syncs files, and makes chosen ones fail."""

from __future__ import annotations

import os
from typing import Any

WATCHED = ("fsync", "rename", "replace", "mkdir", "rmdir")


class Calls(list[tuple[str, str]]):
    """The calls since this object was made, in order: (name of the function in ``os``, name of the file or directory).

    ``failing``: errors to raise, by function ("fsync") or by (function, name of the file); such a call is not made."""

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
