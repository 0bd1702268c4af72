"""The table of stores, and the choice by a run's path."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepfreeze.errors import OptionError
from deepfreeze.store.posix_store import PosixStore
from deepfreeze.store.store import Store

#: scheme, as in "s3://bucket/run" -> makes the store from the whole text. A path without a scheme is a directory.
STORES: dict[str, Callable[[str], Store]] = {}

# One slash is enough: pathlib takes the second one away.
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/")


def add(scheme: str, make: Callable[[str], Store]) -> None:
    """Adds a store for runs that are named ``SCHEME://...``. ``make`` is called with the name, perhaps with a single slash, as ``pathlib``
    writes it. OptionError for a scheme that is none, or is there already."""
    if _SCHEME.fullmatch(f"{scheme}:/") is None or scheme in STORES:
        found = f"{scheme!r}, which is there already" if scheme in STORES else repr(scheme)[:200]
        expected = "two or more small letters, digits, +, . and -, a letter first"
        raise OptionError(where="scheme=", expected=expected, found=found, todo='choose another, such as "s3"')
    STORES[scheme] = make


def directory(run: Any) -> str:
    """The absolute path of the directory in which a job is to train, which stays right if the process changes its working directory.
    OptionError if ``run`` is no path, or names a store that the engine can't write to."""
    store = at(run)
    if store.directory is None:
        expected, todo = (
            "a directory",
            "train into a directory: this store's runs can be read, and not written by the engine",
        )
        raise OptionError(where="run=", expected=expected, found=str(store.path)[:200], todo=todo)
    return os.path.abspath(store.directory)


def at(run: str | bytes | os.PathLike | Store) -> Store:
    """The store of the run that a user names: by a path, by ``SCHEME://...``, or by a store itself. OptionError for another type, an empty
    path, a path with a zero byte, and an unknown scheme."""
    if isinstance(run, Store):
        return run
    todo = 'pass a path, e.g. "runs/nt3"'
    text = os.fsdecode(run) if isinstance(run, (str, bytes, os.PathLike)) else ""
    if not text or "\0" in text:
        raise OptionError(where="run=", expected="a directory", found=repr(run)[:200], todo=todo)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return PosixStore(Path(text))
    if scheme[1] not in STORES:
        expected = f"a directory, or a store of {', '.join(map(repr, sorted(STORES)))}" if STORES else "a directory"
        found = f"{text[:200]!r}, a store that nobody has added"
        todo = f"pass the path of a directory (./{text[:200]} if that is meant), or add the store: deepfreeze.store.add"
        raise OptionError(where="run=", expected=expected, found=found, todo=todo)
    return STORES[scheme[1]](text)
