"""Kills an action in its middle: the action runs in a forked child of this process, and SIGKILL ends the child right before a chosen
call to the system, made by Python or by the engine."""

from __future__ import annotations

import functools
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import veloc_bindings
from tests.support import faults

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
    """For each call of the action in turn: calls ``prepare``, runs the action in a child that is killed before that call, and yields
    the call as text. At the end yields "the end", after a run of the action that nobody killed.

    Python's calls come first. The engine's calls follow, kind by kind (all opens, then all mkdirs, ...), if ``engine`` is the path of a
    testing library. ``points`` picks some numbers out of a range, for Python's calls and for each kind of the engine's; by default all."""
    with tempfile.NamedTemporaryFile() as said:

        def python(number: int) -> None:
            _count_down(number, said.fileno())

        def native(call: str, number: int) -> None:
            plan = f"kill-before:{call}::{number + 1}"
            os.environ |= {
                "DEEPFREEZE_LIBRARY": engine or "",
                "DEEPFREEZE_FAULT": plan,
                "DEEPFREEZE_FAULT_LOG": said.name,
            }
            veloc_bindings._library._loaded = None  # so that this child takes the engine of the tests
            # An engine reads the variables when it is loaded, and with them others that the action may set yet.
            if engine is not None and engine in Path("/proc/self/maps").read_text():
                faults.plan(plan, said.name)

        for arm in (python, *(functools.partial(native, call) for call in ENGINE_CALLS if engine)):
            for number in points(range(MOST)):
                prepare()
                os.ftruncate(said.fileno(), 0)
                if not _killed(functools.partial(arm, number), action):
                    break
                yield os.pread(said.fileno(), 4096, 0).decode().strip()
    yield "the end"


def in_a_child(action: Callable[[], Any]) -> None:
    """Runs the action in a forked child, and nobody kills it. What the action changes in its process is gone afterwards."""
    _killed(lambda: None, action)


def _killed(arm: Callable[[], None], action: Callable[[], Any]) -> bool:
    """Forks a child that calls ``arm`` and then the action; whether the child was killed. Fails if the action fails."""
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
    """Has this process killed before its call number ``number`` (from 0), after writing that call to the descriptor ``said``."""
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
