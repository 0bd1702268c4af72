"""The path of a training's run. The user gives a path, or a function that is asked for one when training begins."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from deepfreeze import wording
from deepfreeze.errors import OptionError
from deepfreeze.ranks.world import World, on_rank_0
from deepfreeze.store.store import Store
from deepfreeze.store.stores import directory

_FUNCTION = "a path, or a function of no arguments that returns one"


class RunPath:
    """The option ``run`` of one ``Checkpoint``. Copies of a callback each need a run of their own: a function gives each copy one, and a
    path serves one copy alone, in place of a callback that only serves to be copied.

    ``place``: what takes the place of the program's own run, given its absolute path: a rehearsal has its own directory."""

    def __init__(self, given: Any, place: Callable[[str], str] = str) -> None:
        """``given``: a path, or a function of no arguments. ``OptionError`` if it is neither, or the path can't be a run's."""
        self._function: Callable[[], Any] | None = None
        self._own: str | None = None
        self._copied = [False]  # shared with all copies
        self.place = place
        if callable(given) and not isinstance(given, (str, bytes, os.PathLike, Store)):
            self._function = _without_arguments(given)
        else:
            self._own = directory(given)

    @classmethod
    def of(cls, given: Any) -> RunPath:
        """The run of a callback. ``given``: a ``RunPath``, which is taken as it is, or what the constructor takes."""
        return given if isinstance(given, cls) else cls(given)

    @property
    def text(self) -> str:
        """The run as the ranks compare it, before a function is asked: the path in its place, or "a function"."""
        return "a function" if self._function is not None else self.path()

    def own(self) -> str:
        """The absolute path of the program's own run. Rank 0 asks the function, once; the others know the path after ``agree``.
        ``OptionError`` if the function returns no path, and the function's own errors."""
        if self._own is None:
            assert self._function is not None
            self._own = directory(self._function())
        return self._own

    def path(self) -> str:
        """The path in place of the program's own run, as ``own``: on another rank than rank 0 not to be asked before ``agree``."""
        return self.place(self.own())

    def agree(self, world: World) -> str:
        """Collective, when all ranks have the same ``text``. Gives every rank the path that rank 0's function returns, and returns the path
        in its place."""
        if self._function is not None:
            self._own = on_rank_0(world, self.own)
        return self.path()

    def copy(self) -> RunPath:
        """The run of a copy of the callback: the function again, which the copy asks anew; a path only once. ``OptionError`` at the second
        copy with a path."""
        if self._function is not None:
            return RunPath(self._function, self.place)
        if self._copied[0]:
            line = f'Checkpoint(lambda: f"{wording.near(self.own())}-{{next(numbers)}}")'
            raise OptionError(
                where="copy.deepcopy(Checkpoint)",
                expected="a function for run=, which gives each copy a run of its own",
                found=f"the path {self.own()}, of which there is a copy already: both would train in one run",
                todo=f"pass a function, such as {line} with numbers = itertools.count()",
            )
        self._copied[0] = True
        other = RunPath(self.own(), self.place)
        other._copied = self._copied
        return other


def _without_arguments(function: Callable[..., Any]) -> Callable[[], Any]:
    """The function. ``OptionError`` if it wants arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        todo = 'pass a path, "runs/nt3", or for copies of the callback a function, lambda: f"runs/{...}"'
        raise OptionError(where="run=", expected=_FUNCTION, found=f"{function!r:.200}: {error}", todo=todo) from None
    except ValueError:
        pass  # a function of C, which does not show its arguments
    return function
