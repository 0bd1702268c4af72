"""Finds and loads ``libdeepfreeze.so``, once per process."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

from . import _table

NAME = "libdeepfreeze.so"
VARIABLE = "DEEPFREEZE_LIBRARY"

_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None


class LibraryError(OSError):
    """The native engine is missing or of another version. ``where``, ``expected``, ``found`` and ``todo`` are strings."""

    def __init__(self, where: str, expected: str, found: str, todo: str) -> None:
        self.where, self.expected, self.found, self.todo = where, expected, found, todo
        super().__init__(f"{where}: expected {expected}; found {found}. {todo[:1].upper()}{todo[1:]}.")

    def __reduce__(self) -> tuple:
        return type(self), (self.where, self.expected, self.found, self.todo)


def candidates() -> list[Path]:
    """The paths at which the library is looked for, in this order. The environment variable DEEPFREEZE_LIBRARY, if set, is the only one."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return [Path(chosen)]
    package = Path(__file__).resolve().parent
    # An installed package has the library beside this file, a checkout in its build tree.
    return [package / NAME, package.parent / "build" / "native" / NAME]


def headers() -> Path:
    """The folder to give to a C compiler as ``-I``, for programs that call the engine by themselves: it has ``deepfreeze/deepfreeze.h`` and
    ``deepfreeze/area.h``. Such a program links the library at ``find()``, whose SONAME is ``libdeepfreeze.so``."""
    package = Path(__file__).resolve().parent
    installed = package / "include"
    return installed if installed.is_dir() else package.parent / "native" / "include"


def find() -> Path:
    """The path of the library. ``LibraryError`` if there is none."""
    places = candidates()
    for place in places:
        if place.is_file():
            return place
    raise LibraryError(
        where=str(places[0]),
        expected="the native engine",
        found="no such file" + (f", nor {places[1]}" if len(places) > 1 else ""),
        todo=f"install the package again, or set {VARIABLE} to the library's path",
    )


def load_from(path: Path) -> ctypes.CDLL:
    """Loads the library at ``path`` and declares its functions, also if another one is loaded already. ``LibraryError`` if it can't be
    loaded, or has another interface version than these bindings."""
    again = "install the package again, so that bindings and engine are of one version"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryError(str(path), "a loadable shared library", str(error), again) from error
    try:
        library.df_abi_version.restype, library.df_abi_version.argtypes = _table.FUNCTIONS["df_abi_version"]
        version = library.df_abi_version()
        if version != _table.ABI_VERSION:
            expected = f"interface version {_table.ABI_VERSION}"
            raise LibraryError(str(path), expected, f"version {version}", again)
        for name, (result, arguments) in _table.FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError as error:
        raise LibraryError(str(path), "the native engine", f"a library without a function ({error})", again) from error
    return library


def library() -> ctypes.CDLL:
    """The engine's library, which the first call of the process loads. May be called from any thread. ``LibraryError`` if there is none, or
    one of another interface version."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = load_from(find())
        return _loaded
