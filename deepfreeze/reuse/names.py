"""The names in a call of ``transfer``: which are meant, and what each is called in the model.

A name is a path of components (``encoder/dense_1/kernel``). Patterns and renamed prefixes cover whole components.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deepfreeze.errors import OptionError
from deepfreeze.format.strict_json import short

Names = str | Sequence[str] | None
Renaming = Mapping[str, str] | Callable[[str], str] | None

_NEAR = 3  # names suggested for one that is not there


class Patterns:
    """What ``include`` (None: everything) and ``exclude`` choose. OptionError if either is no pattern, nor several."""

    def __init__(self, include: Names, exclude: Names) -> None:
        self._include = (
            None if include is None else [_Pattern.of(text, "include=") for text in _several(include, "include=")]
        )
        self._exclude = [_Pattern.of(text, "exclude=") for text in _several(exclude, "exclude=")]

    def against(self, *names: str) -> str | None:
        """Why something that goes by any of these names is left out; None if it is chosen."""
        if any(pattern.covers(name) for pattern in self._exclude for name in names):
            return "excluded"
        if self._include is None or any(pattern.covers(name) for pattern in self._include for name in names):
            return None
        return "not included"

    def check(self, names: Sequence[str]) -> None:
        """OptionError if a pattern covers none of ``names``: it is a slip of the pen."""
        for pattern in [*(self._include or ()), *self._exclude]:
            if not any(pattern.covers(name) for name in names):
                raise _unknown(pattern.where, "a pattern", pattern.text, names)


@dataclass(frozen=True)
class _Pattern:
    """A glob, and the argument it stands in."""

    text: str
    where: str
    glob: re.Pattern[str]

    @staticmethod
    def of(text: object, where: str) -> _Pattern:
        if not isinstance(text, str) or not text.strip("/"):
            todo = 'pass a pattern such as "conv*", or a list of such'
            raise OptionError(where=where, expected="patterns of names", found=short(text), todo=todo)
        return _Pattern(text, where, re.compile(fnmatch.translate(text.strip("/"))))

    def covers(self, name: str) -> bool:
        """Whether it fits the name, or the name of something that this one is below."""
        return any(self.glob.match(part) for part in _leading(name))


@dataclass(frozen=True)
class Renamed:
    """``name`` in the model, of which ``rest`` is what renaming did not touch: its last components, or nothing."""

    name: str
    rest: str


class Rename:
    """From a checkpoint's names to the model's: a mapping of names or prefixes, "" for the root; or a function.

    OptionError if it is neither, or makes something else than a name.
    """

    def __init__(self, rename: Renaming) -> None:
        self._function: Callable[[str], str] | None = None
        self._entries: dict[str, str] = {}
        if rename is None:
            return
        if isinstance(rename, Mapping):
            for old, new in rename.items():
                if not isinstance(old, str) or not isinstance(new, str):
                    raise _no_name(f"{short(old)}: {short(new)}")
                self._entries[old.strip("/")] = new.strip("/")
        elif callable(rename):
            self._function = rename
        else:
            raise _no_name(short(rename))

    def __call__(self, name: str) -> Renamed:
        """What a weight of the checkpoint is called in the model."""
        if self._function is not None:
            made = self._function(name)
            if not isinstance(made, str) or not made:
                raise _no_name(f"{short(made)} for {name}")
            return Renamed(made, "")
        old = max((old for old in self._entries if _is_below(name, old)), key=len, default=None)
        if old is None:
            return Renamed(name, name)
        rest = name[len(old) :].lstrip("/")
        made = _join(self._entries[old], rest)
        if not made:
            raise _no_name(f"nothing for {name}")
        return Renamed(made, rest)

    def original(self, name: str) -> str:
        """What the checkpoint would call a variable of the model, as far as a mapping tells; else the name itself."""
        entries = self._entries.items()
        found = max((pair for pair in entries if _is_below(name, pair[1])), key=lambda pair: len(pair[1]), default=None)
        if found is None:
            return name
        old, new = found
        return _join(old, name[len(new) :].lstrip("/")) or name

    def check(self, names: Sequence[str]) -> None:
        """OptionError if an entry renames none of ``names``."""
        for old in self._entries:
            if not any(_is_below(name, old) for name in names):
                raise _unknown("rename=", "a name, or the beginning of one,", old, names)


def near(text: str, names: Iterable[str]) -> list[str]:
    """The names, or what they are below, that are most like ``text``; the best first."""
    known = sorted({part for name in names for part in _leading(name)})
    return difflib.get_close_matches(re.sub(r"[*?\[\]]", "", text).strip("/"), known, _NEAR, 0.4)


def _several(value: Names, where: str) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    try:
        return list(value)
    except TypeError:
        todo = 'pass a pattern such as "conv*", or a list of such'
        raise OptionError(where=where, expected="patterns of names", found=short(value), todo=todo) from None


def _leading(name: str) -> Iterator[str]:
    """The name, and the names of all that it is below."""
    while name:
        yield name
        name = name.rpartition("/")[0]


def _is_below(name: str, prefix: str) -> bool:
    return not prefix or name == prefix or name.startswith(f"{prefix}/")


def _join(prefix: str, rest: str) -> str:
    return f"{prefix}/{rest}" if prefix and rest else prefix or rest


def _unknown(where: str, what: str, text: str, names: Sequence[str]) -> OptionError:
    alike = near(text, names)
    found = f"{text!r}, which is none of {len(names)}" + (f"; like it are {', '.join(alike)}" if alike else "")
    todo = "correct it: list(deepfreeze.read(run)) has the checkpoint's names"
    return OptionError(where=where, expected=f"{what} that fits a weight", found=found, todo=todo)


def _no_name(found: str) -> OptionError:
    todo = 'pass {"old": "new"} with names or the beginnings of names, or a function of a name that returns one'
    return OptionError(where="rename=", expected="names for names", found=found, todo=todo)
