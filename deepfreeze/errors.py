"""Every exception that DeepFreeze raises on purpose.

A message has four parts: where, what was expected, what was found, what to do. Passing them apart keeps them apart::

    raise LockedError(
        where="runs/nt3",
        expected="a run directory that no other job writes to",
        found="it is held by pid 4711 on node17 since 2026-11-21T03:35:58Z",
        todo="wait for that job, or choose another run directory",
    )
"""

from __future__ import annotations


class Error(Exception):
    """Base class. ``where``, ``expected``, ``found`` and ``todo`` are strings; ``str()`` joins them into one message."""

    def __init__(self, *, where: object, expected: str, found: str, todo: str) -> None:
        self.where = str(where)
        self.expected = expected
        self.found = found
        self.todo = todo
        text = f"{self.where}: expected {expected}; found {found}. {todo[:1].upper()}{todo[1:]}."
        # A path may have bytes that are no UTF-8, and a message must not fail where it is printed.
        super().__init__(text.encode("utf-8", "backslashreplace").decode())

    def __reduce__(self) -> tuple:
        # Exceptions travel between ranks; the default would call __init__ without its keywords.
        return _rebuild, (type(self), self.where, self.expected, self.found, self.todo)


def _rebuild(cls: type[Error], where: str, expected: str, found: str, todo: str) -> Error:
    return cls(where=where, expected=expected, found=found, todo=todo)


class OptionError(Error, ValueError):
    """An argument has the wrong type, sign or combination."""


class RunError(Error, OSError):
    """A run directory can't be used: missing parent, read-only, a file, or written by an unknown version."""


class LockedError(RunError):
    """Another living job writes to the run directory."""


class NotFoundError(RunError, LookupError):
    """There is no such checkpoint."""


class CorruptError(Error):
    """A file's bytes contradict their checksum, their size or the format."""


class NewerError(CorruptError):
    """A newer version of DeepFreeze wrote the file: it is whole, not understood, and never to be cleared or passed by."""


class StructureError(Error, ValueError):
    """Two models, or a model and a checkpoint, don't have the same tensors."""


class UnsupportedError(Error, NotImplementedError):
    """DeepFreeze can't capture this model or training set-up."""


class EngineError(Error, RuntimeError):
    """The native engine is missing, of another version, or failed."""


class WaitError(EngineError, TimeoutError):
    """A bounded wait ended; the message names the rank that was waited for."""


class WorldError(Error, RuntimeError):
    """Another rank failed; the message names it and carries its error."""
