"""Starts a user's training program, with or without a launcher, and shows the end of its output when it fails."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from deepfreeze import wording
from deepfreeze.errors import Error, InstallError, OptionError, ProgramError

_GRACE = 10.0  # seconds for which a program that has hung may end by itself after SIGTERM
_LOOK = 1.0  # seconds between two looks
_TAIL = 25  # lines of a program's output that are shown when it fails


class Program:
    """A program, as it is started. ``str`` of it is its command line."""

    def __init__(self, command: Sequence[str], ranks: int | None, tell: Callable[[str], None]) -> None:
        """``ranks``: with which a launcher starts it, None: it is started as it is; ``tell``: is called with each line of output that is
        shown. ``InstallError`` without a launcher for ``ranks``."""
        self._text = " ".join(command)
        self._command = [*_launcher(ranks), *command]
        self._tell = tell

    def __str__(self) -> str:
        return self._text

    def start(
        self,
        variables: Mapping[str, str],
        log: Path,
        seconds: float,
        which: str,
        todo: str,
        look: Callable[[], None] = lambda: None,
    ) -> int:
        """Starts the program with these environment variables beside those of this process, and waits for its end. Returns its exit code.
        Its output goes to the end of the file ``log``. ``which``: names the start in errors; ``look``: is called about once a second
        meanwhile. SIGTERM and SIGHUP end the program as Ctrl-C does. ``ProgramError``, with ``todo``, if it has not
        ended after so many ``seconds``; ``OptionError`` if it can't be started."""
        try:
            environment = {**os.environ, **variables}
            with _heeding_signals(), open(log, "ab") as output, _started(self._command, environment, output) as process:
                return _waited(process, seconds, look)
        except subprocess.TimeoutExpired:
            self._show(log)
            raise ProgramError(
                where=f"{self}{which}",
                expected=f"an end within {wording.duration(seconds)}",
                found="a program that was still running, and was ended",
                todo=todo,
            ) from None
        except OSError as error:
            todo = "give the command line that starts the program behind --"
            found = error.strerror or str(error)
            raise OptionError(where=str(self), expected="a program", found=found, todo=todo) from None

    def failed(self, code: int, log: Path, which: str) -> Error:
        """The error of a program that has ended with this exit ``code``. Shows the end of its output."""
        self._show(log)
        return ProgramError(
            where=f"{self}{which}",
            expected="a program that trains to the end",
            found=f"one that failed with {_named(code)}; the end of its output is above",
            todo="mend the program",
        )

    def _show(self, log: Path) -> None:
        for text in log.read_text(errors="replace").splitlines()[-_TAIL:]:
            self._tell(f"    {text}")


def _waited(process: subprocess.Popen[bytes], seconds: float, look: Callable[[], None]) -> int:
    """The exit code of the process. ``subprocess.TimeoutExpired`` if it has not ended after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        try:
            return process.wait(max(0.0, min(_LOOK, left)))
        except subprocess.TimeoutExpired:
            if left <= _LOOK:
                raise
        look()


@contextlib.contextmanager
def _heeding_signals() -> Iterator[None]:
    """A SIGTERM in the block, of a scheduler for example, or a SIGHUP ends it as Ctrl-C would."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    try:
        before = [signal.signal(number, interrupt) for number in numbers]
    except ValueError:  # another thread than the main one
        yield
        return
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _launcher(ranks: int | None) -> list[str]:
    if ranks is None:
        return []
    name = next((one for one in ("horovodrun", "mpirun") if shutil.which(one)), None)
    if name is None:
        todo = "leave -np out, and give the command line that starts the ranks behind --"
        raise InstallError(where="-np", expected="horovodrun or mpirun on PATH", found="neither", todo=todo)
    return [name, "-np", str(ranks)]


def _named(code: int) -> str:
    with contextlib.suppress(ValueError):
        if code < 0:
            return signal.Signals(-code).name
    return f"exit code {code}"


@contextlib.contextmanager
def _started(command: Sequence[str], environment: dict[str, str], log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A program in a process group of its own. At the end of the block the group is ended, if it has not ended."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def folder(keep: Path | None, prefix: str) -> Iterator[Path]:
    """The folder for what a command's programs leave: ``keep``, which must be new or empty and stays; or, if that is None, one whose name
    begins with ``prefix``, and which is deleted at the end of the block. ``OptionError`` for one that is not empty, or can't be made."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as made:
            yield Path(made)
        return
    todo = "name a folder that is new or empty"
    try:
        keep.mkdir(parents=True, exist_ok=True)
        full = any(keep.iterdir())
    except OSError as error:
        found = error.strerror or str(error)
        raise OptionError(where=f"--keep {keep}", expected="a folder", found=found, todo=todo) from None
    if full:
        raise OptionError(where=f"--keep {keep}", expected="an empty folder", found="one with files", todo=todo)
    yield keep.absolute()
