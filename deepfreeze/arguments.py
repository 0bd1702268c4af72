"""Checks of the values that users pass as arguments. A check raises ``OptionError``, which names the argument (``where``: "keep=" or
"Engine(slots=)"), the values that it may have, and the value that was passed."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import re
import signal
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, TypeVar

from deepfreeze.errors import OptionError

T = TypeVar("T")
_NOT_HEARD = {
    signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGCHLD,
}  # fmt: skip


def require(where: str, value: Any, good: bool, expected: str) -> None:
    """Raises ``OptionError`` for ``value`` unless it is ``good``. ``expected``: text, the values that the argument may have."""
    if not good:
        raise OptionError(where=where, expected=expected, found=repr(value)[:200], todo=f"pass {where} as described")


def is_number(value: Any, kind: type) -> bool:
    """Whether ``value`` is a number of this kind (``Integral`` or ``Real``), of Python or numpy. True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


def whole_number(where: str, value: Any, low: int, high: int, multiple_of: int = 1, otherwise: str = "") -> int:
    """``value`` as Python's own int, from ``low`` to ``high``. ``otherwise``: text for the error, what else the argument may be."""
    expected = f"a whole number from {low} to {high}"
    expected += (f", a multiple of {multiple_of}" if multiple_of > 1 else "") + otherwise
    good = is_number(value, Integral) and low <= value <= high and value % multiple_of == 0
    require(where, value, good, expected)
    return int(value)


def seconds(where: str, value: Any) -> float:
    """``value`` as Python's own float, more than 0 and less than 1e9."""
    require(where, value, is_number(value, Real) and 0 < value < 1e9, "seconds, more than 0")
    return float(value)


def fraction(where: str, value: Any) -> float:
    """``value`` as Python's own float, more than 0 and at most 1."""
    require(where, value, is_number(value, Real) and 0 < value <= 1, "a fraction, more than 0 and at most 1")
    return float(value)


_UNITS = {"B": 1} | {
    f"{prefix}{kind}": base**power
    for kind, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate(("k" if base == 1000 else "K", "M", "G", "T", "P"), 1)
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]+)\s*")


def size(where: str, value: Any) -> int:
    """A number of bytes, 1 or more: ``value`` itself, or what its text says, such as "1.5 GB" or "800 MiB"."""
    nbytes = int(value) if is_number(value, Integral) else 0
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        units = {name.lower(): factor for name, factor in _UNITS.items()}
        nbytes = int(float(match[1]) * units.get(match[2].lower(), 0))
    require(where, value, 0 < nbytes < 2**63, 'a number of bytes, or text such as "1.5 GB" or "800 MiB"')
    return nbytes


def signal_number(where: str, value: Any) -> signal.Signals:
    """The signal that ``value`` stands for: its number, or its name ("SIGTERM"). Signals that no handler can take, and those by which a
    fault of the process itself ends it, are refused."""
    found = getattr(signal.Signals, value, None) if isinstance(value, str) else None
    if is_number(value, Integral) and int(value) in {one.value for one in signal.Signals}:
        found = signal.Signals(int(value))
    good = isinstance(found, signal.Signals) and found not in _NOT_HEARD
    require(where, value, good, 'a signal that a program can handle, such as signal.SIGUSR1 or "SIGUSR1"')
    assert found is not None
    return found


def signal_name(number: int) -> str:
    """The name of a signal, its number if it has none."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return str(number)


def one_of(where: str, value: Any, allowed: Iterable[Any]) -> None:
    """Raises ``OptionError`` unless ``value`` is among ``allowed``. The types count too: 1 is not True."""
    allowed = tuple(allowed)
    good = any(type(value) is type(choice) and value == choice for choice in allowed)
    require(where, value, good, "one of " + ", ".join(map(repr, allowed)))


def unknown(where: str, kind: str, known: Iterable[str], todo: str | None = None) -> OptionError:
    """The error for the argument ``where`` ("inflight=") that ``kind`` does not have. It has the nearest of the ``known`` names, unless
    ``todo`` says what to do."""
    known = tuple(known)
    near = difflib.get_close_matches(where.rstrip("="), known, 1)
    todo = todo or (f"did you mean {near[0]}=" if near else f"the options are {', '.join(known)}")
    return OptionError(where=where, expected=f"an option of {kind}", found="an unknown name", todo=todo)


def suggesting(cls: type[T]) -> type[T]:
    """Decorates a dataclass of options: its constructor raises ``OptionError`` for an unknown keyword and names the nearest known one."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    plain = cls.__init__

    @functools.wraps(plain)
    def init(self: Any, *args: Any, **given: Any) -> None:
        for name in given:
            if name not in names:
                raise unknown(f"{name}=", f"deepfreeze.{cls.__name__}", names)
        plain(self, *args, **given)

    cls.__init__ = init  # type: ignore[method-assign]
    return cls
