"""SIGKILL in the middle of a change: an action runs in a child of this process, which dies right before one of the calls that
the action makes to the system, from Python or in the engine."""

from __future__ import annotations

import functools
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import veloc_bindings

# What makes, names, replaces, deletes or makes durable. To die before one of them is to die after the one before it.
CALLS = ("open", "mkdir", "write", "pwrite", "ftruncate", "fsync", "link", "replace", "rename", "unlink", "rmdir")
# The same in the engine, as native/testing/fault_env.h calls them.
ENGINE_CALLS = ("open", "mkdir", "pwrite", "ftruncate", "fsync", "fdatasync", "fsync_dir", "rename", "unlink", "rmdir")
LIMIT = 120  # seconds; no child comes near it unless something hangs
MOST = 10_000  # calls of one kind; no action comes near it


def before_each_call(
    action: Callable[[], Any],
    prepare: Callable[[], Any] = lambda: None,
    engine: str | None = None,
    points: Callable[[range], Iterable[int]] = iter,
) -> Iterator[str]:
    """For each call in turn: prepares, runs the action in a child that is killed before that call, and yields what it was to be.
    Python's calls come first; then, if ``engine`` is the path of a testing library that this process has not loaded, the engine's,
    kind by kind. The last one is "the end": of an action that nobody killed. ``points`` picks among the numbers of Python's calls
    and of each kind of the engine's; by default all are tried."""
    with tempfile.NamedTemporaryFile() as said:

        def python(number: int) -> None:
            _count_down(number, said.fileno())

        def native(call: str, number: int) -> None:
            os.environ["DEEPFREEZE_FAULT"] = f"kill-before:{call}::{number + 1}"
            os.environ["DEEPFREEZE_FAULT_LOG"] = said.name
            os.environ["DEEPFREEZE_LIBRARY"] = engine or ""
            veloc_bindings._library._loaded = None  # so this child loads one of its own, with this plan

        for arm in (python, *(functools.partial(native, call) for call in ENGINE_CALLS if engine)):
            for number in points(range(MOST)):
                prepare()
                os.ftruncate(said.fileno(), 0)
                if not _killed(functools.partial(arm, number), action):
                    break
                yield os.pread(said.fileno(), 4096, 0).decode().strip()
    yield "the end"


def in_a_child(action: Callable[[], Any]) -> None:
    """Runs the action in a child that nobody kills: what it changes of its process is gone with it."""
    _killed(lambda: None, action)


def _killed(arm: Callable[[], None], action: Callable[[], Any]) -> bool:
    """Whether a child that is armed before the action dies of it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LIMIT)
            arm()
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, f"the child died of signal {os.WTERMSIG(status)}"
        return True
    assert os.WEXITSTATUS(status) == 0, "the action failed in the child: see above"
    return False


def _count_down(number: int, said: int) -> None:
    """From now on this process is killed before its call of that number, having said which one it is."""
    say, left = os.pwrite, [number]

    def deadly(name: str, call: Callable) -> Callable:
        def count(*arguments: Any, **options: Any) -> Any:
            # What is only read changes nothing.
            if name != "open" or (arguments[1] if len(arguments) > 1 else options.get("flags", 0)) & os.O_ACCMODE:
                if left[0] == 0:
                    say(said, f"{name}{arguments[:2]}".encode(), 0)
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
            return call(*arguments, **options)

        return count

    for name in CALLS:
        setattr(os, name, deadly(name, getattr(os, name)))
