"""Every exception that DeepFreeze raises on purpose.

Each message has four parts: where the problem is, what was expected there, what was found instead, and what the user can do. The
constructor takes the parts as four keyword arguments::

    raise LockedError(
        where="runs/nt3",
        expected="a run directory that no other job writes to",
        found="it is held by pid 4711 on node17 since 2026-11-21T03:35:58Z",
        todo="wait for that job, or choose another run directory",
    )
"""

from __future__ import annotations

# The advice to a job whose run another job has taken over.
END_THIS_JOB = "end this job: it commits and removes nothing more there; the file lock in the run names the other job's host and pid"


class Error(Exception):
    """Base class. The attributes ``where``, ``expected``, ``found`` and ``todo`` are strings; ``str()`` joins them into one message."""

    def __init__(self, *, where: object, expected: str, found: str, todo: str) -> None:
        self.where = str(where)
        self.expected = expected
        self.found = found
        self.todo = todo
        text = f"{self.where}: expected {expected}; found {found}. {todo[:1].upper()}{todo[1:]}."
        # A path may have bytes that are not UTF-8. Printing the message must not fail because of them.
        super().__init__(text.encode("utf-8", "backslashreplace").decode())

    def __reduce__(self) -> tuple:
        # Ranks send exceptions to each other by pickle, which by default would call __init__ without its keywords.
        return _rebuild, (type(self), self.where, self.expected, self.found, self.todo)


def _rebuild(cls: type[Error], where: str, expected: str, found: str, todo: str) -> Error:
    return cls(where=where, expected=expected, found=found, todo=todo)


class OptionError(Error, ValueError):
    """An argument has the wrong type, sign or combination."""


class RunError(Error, OSError):
    """A run directory can't be used: its file system is not mounted, it is read-only, a file, or written by an unknown version."""


class LockedError(RunError):
    """Another living job writes to the run directory."""


class NotFoundError(RunError, LookupError):
    """There is no such checkpoint."""


class CorruptError(Error):
    """A file's bytes contradict their checksum, their size or the format."""


class NewerError(CorruptError):
    """A newer version of DeepFreeze wrote the file, in a format that this version can't read. The file is whole: DeepFreeze neither
    deletes it nor takes an older checkpoint in its place."""


class InstallError(Error, RuntimeError):
    """A package is missing that only this call needs; or Horovod can't be built or installed here: a package, a compiler or an MPI is
    missing, or a step failed. Where a step failed, ``where`` is its log."""


class MissingError(InstallError, ImportError):
    """A package is missing that a name of DeepFreeze needs, such as TensorFlow for ``deepfreeze.Checkpoint``. Programs that do without the
    name catch ``ImportError``."""


class StructureError(Error, ValueError):
    """Two models, or a model and a checkpoint, don't have the same tensors."""


class UnsupportedError(Error, NotImplementedError):
    """DeepFreeze can't capture this model or training set-up."""


class EngineError(Error, RuntimeError):
    """The native engine is missing, of another version, or failed."""


class WaitError(EngineError, TimeoutError):
    """A wait has reached its time limit. The message names the rank that was waited for."""


class WorldError(Error, RuntimeError):
    """Another rank failed. The message names that rank and quotes its error."""


class ProgramError(Error, RuntimeError):
    """A program that ``deepfreeze resume-check`` has started failed, did not end, or saved no checkpoint of the steps that it was asked
    for."""
