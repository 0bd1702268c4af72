"""SIGKILL in the middle of a change: an action runs in a child of this process, which dies right before one of the calls that
the action makes to the system."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from typing import Any

# What makes, names, replaces, deletes or makes durable. To die before one of them is to die after the one before it.
CALLS = ("open", "mkdir", "write", "ftruncate", "fsync", "link", "replace", "rename", "unlink", "rmdir")
LIMIT = 120  # seconds; no child comes near it unless something hangs


def before_each_call(action: Callable[[], Any], prepare: Callable[[], Any] = lambda: None) -> Iterator[str]:
    """For each call in turn: prepares, runs the action in a child that is killed before that call, and yields what it was to be.
    The last one is "the end": of an action that nobody killed."""
    number, reached = 0, "a call"
    while reached != "the end":
        prepare()
        reached = _killed_before(action, number)
        yield reached
        number += 1


def _killed_before(action: Callable[[], Any], number: int) -> str:
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _count_down(number, writes)
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writes)
    with open(reads) as said:
        call = said.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL and call, f"the child died of signal {os.WTERMSIG(status)}"
        return call
    assert os.WEXITSTATUS(status) == 0, "the action failed in the child: see above"
    return "the end"


def _count_down(number: int, says: int) -> None:
    """From now on this process is killed before its call of that number, having said which one it is."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LIMIT)
    write, left = os.write, [number]

    def deadly(name: str, call: Callable) -> Callable:
        def count(*arguments: Any, **options: Any) -> Any:
            # What is only read changes nothing.
            if name != "open" or (arguments[1] if len(arguments) > 1 else options.get("flags", 0)) & os.O_ACCMODE:
                if left[0] == 0:
                    write(says, f"{name}{arguments[:2]}".encode())
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
            return call(*arguments, **options)

        return count

    for name in CALLS:
        setattr(os, name, deadly(name, getattr(os, name)))
