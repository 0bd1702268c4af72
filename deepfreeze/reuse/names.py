"""The names in a call of ``transfer``: which weights the patterns choose, and what ``rename`` makes of a name.

A name is a path of components (``encoder/dense_1/kernel``). A pattern, or a prefix to rename, covers whole components.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deepfreeze.errors import OptionError
from deepfreeze.format.strict_json import short
from deepfreeze.matching.match import Renamed

Names = str | Sequence[str] | None
Renaming = Mapping[str, str] | Callable[[str], str] | None

_SUGGESTIONS = 3  # how many names are suggested in place of an unknown one


class Patterns:
    """The choice of weights by the options ``include`` (None: all) and ``exclude``. OptionError if one of them is neither a pattern nor a
    list of patterns."""

    def __init__(self, include: Names, exclude: Names) -> None:
        self._include = (
            None if include is None else [_Pattern.of(text, "include=") for text in _as_list(include, "include=")]
        )
        self._exclude = [_Pattern.of(text, "exclude=") for text in _as_list(exclude, "exclude=")]

    def reason_to_skip(self, *names: str) -> str | None:
        """Why a weight that the user may call by any of these names is left out: "excluded" or "not included"; None if it is chosen."""
        if any(pattern.covers(name) for pattern in self._exclude for name in names):
            return "excluded"
        if self._include is None or any(pattern.covers(name) for pattern in self._include for name in names):
            return None
        return "not included"

    def check(self, names: Sequence[str]) -> None:
        """OptionError if a pattern covers none of ``names``, all names of both sides: the pattern is mistyped then."""
        for pattern in [*(self._include or ()), *self._exclude]:
            if not any(pattern.covers(name) for name in names):
                raise _unknown(pattern.where, "a pattern", pattern.text, names)


@dataclass(frozen=True)
class _Pattern:
    """A pattern of names. ``where``: the option it stands in, for messages."""

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
        """Whether the pattern matches the name or a beginning of it up to a ``/``: "conv*" covers ``conv1/kernel``."""
        return any(self.glob.match(prefix) for prefix in _prefixes(name))


class Rename:
    """Makes the model's names of a checkpoint's names, as the option ``rename`` says: a mapping of names or prefixes, "" for the root of
    all names; or a function from name to name. OptionError for another value, also when a call gives no name.
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
        """The name in the model of the checkpoint's weight ``name``. OptionError if there is none."""
        if self._function is not None:
            new_name = self._function(name)
            if not isinstance(new_name, str) or not new_name:
                raise _no_name(f"{short(new_name)} for {name}")
            return Renamed(new_name, "")
        old = max((old for old in self._entries if _is_below(name, old)), key=len, default=None)
        if old is None:
            return Renamed(name, name)
        rest = name[len(old) :].lstrip("/")
        new_name = _join(self._entries[old], rest)
        if not new_name:
            raise _no_name(f"nothing for {name}")
        return Renamed(new_name, rest)

    def original(self, name: str) -> str:
        """The name in the checkpoint of the model's variable ``name``, if ``rename`` is a mapping that has it; else ``name`` itself."""
        entries = self._entries.items()
        longest = max((entry for entry in entries if _is_below(name, entry[1])), key=lambda e: len(e[1]), default=None)
        if longest is None:
            return name
        old, new = longest
        return _join(old, name[len(new) :].lstrip("/")) or name

    def check(self, names: Sequence[str]) -> None:
        """OptionError if an entry of the mapping renames none of ``names``, the checkpoint's names."""
        for old in self._entries:
            if not any(_is_below(name, old) for name in names):
                raise _unknown("rename=", "a name, or the beginning of one,", old, names)


def near(text: str, names: Iterable[str]) -> list[str]:
    """The names, or beginnings of names up to a ``/``, that are most similar to ``text``, the best first: at most 3."""
    prefixes = sorted({prefix for name in names for prefix in _prefixes(name)})
    return difflib.get_close_matches(re.sub(r"[*?\[\]]", "", text).strip("/"), prefixes, _SUGGESTIONS, 0.4)


def _as_list(value: Names, where: str) -> list[str]:
    """The patterns of an option, which may be one pattern, several, or None."""
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    try:
        return list(value)
    except TypeError:
        todo = 'pass a pattern such as "conv*", or a list of such'
        raise OptionError(where=where, expected="patterns of names", found=short(value), todo=todo) from None


def _prefixes(name: str) -> Iterator[str]:
    """The name and its beginnings up to a ``/``, the longest first: ``a/b/c``, ``a/b``, ``a``."""
    while name:
        yield name
        name = name.rpartition("/")[0]


def _is_below(name: str, prefix: str) -> bool:
    """Whether ``prefix`` is the name, or its beginning up to a ``/``, or ""."""
    return not prefix or name == prefix or name.startswith(f"{prefix}/")


def _join(prefix: str, rest: str) -> str:
    return f"{prefix}/{rest}" if prefix and rest else prefix or rest


def _unknown(where: str, what: str, text: str, names: Sequence[str]) -> OptionError:
    suggestions = near(text, names)
    similar = f"; like it are {', '.join(suggestions)}" if suggestions else ""
    found = f"{text!r}, which is none of {len(names)}{similar}"
    todo = "correct it: list(deepfreeze.read(run)) has the checkpoint's names"
    return OptionError(where=where, expected=f"{what} that fits a weight", found=found, todo=todo)


def _no_name(found: str) -> OptionError:
    todo = 'pass {"old": "new"} with names or the beginnings of names, or a function of a name that returns one'
    return OptionError(where="rename=", expected="names for names", found=found, todo=todo)
