"""What a ``Resumable`` reads: a source has ``length`` items, by number. There are three kinds: arrays, sequences of items, and sequences of
batches, as Keras's ``PyDataset`` and ``Sequence`` are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import PosixPath, PurePosixPath
from typing import Any, Protocol

import numpy as np

from deepfreeze.data import keras_calls
from deepfreeze.data.nested import leaves, mapped, stacked
from deepfreeze.errors import OptionError

_MOST = 1 << 40  # items, whose order would take 12 TiB: a length beyond it stands for "without end"


class Source(Protocol):
    """``length``: the number of items. ``batched``: whether each item is a batch already. ``plain``: whether reading is nothing but a copy
    in memory. Any thread calls the methods."""

    length: int
    batched: bool
    plain: bool

    def names(self) -> Iterator[str] | None:
        """The file names that are the items, one after the other; None if the items are values."""

    def item(self, number: int) -> Any:
        """One item: a structure of arrays and numbers."""

    def batch(self, numbers: np.ndarray) -> Any:
        """The items of these ``numbers`` (integers of shape (items,)) as one batch: a structure of arrays, whose first dimension is the
        items'."""


class Arrays:
    """Arrays, or nested dicts, tuples and lists of arrays, of one length."""

    batched = False
    plain = True

    def __init__(self, arrays: Any) -> None:
        for path, leaf in leaves(arrays):
            if not _is_array(leaf):
                expected = "an array: a dict or a tuple as a source has arrays alone"
                raise _refused(f"the source's part {path}", expected, f"a {type(leaf).__name__}")
        self._arrays = mapped(np.asarray, arrays)
        lengths = {path: len(leaf) for path, leaf in leaves(self._arrays)}
        self.length = next(iter(lengths.values()), 0)
        for path, length in lengths.items():
            if length != self.length:
                raise OptionError(
                    where=f"the source's array {path}",
                    expected=f"{self.length} items, as the first array has",
                    found=str(length),
                    todo="pass arrays with the same first dimension",
                )

    def names(self) -> None:
        return None

    def item(self, number: int) -> Any:
        return mapped(lambda array: array[number], self._arrays)

    def batch(self, numbers: np.ndarray) -> Any:
        return mapped(lambda array: array.take(numbers, axis=0), self._arrays)


class Items:
    """Anything with ``len`` and ``[i]``. ``load``: makes an item of ``[i]``, such as the file's content of its name."""

    batched = False
    plain = False

    def __init__(self, sequence: Any, load: Callable[[Any], Any] | None) -> None:
        self._sequence, self._load = sequence, load
        self.length = len(sequence)

    def names(self) -> Iterator[str] | None:
        """The items, if the first of them is the name of a file."""
        if self._load is None or not isinstance(self._sequence[0], (str, os.PathLike)):
            return None
        return (_name(self._sequence[number]) for number in range(self.length))

    def item(self, number: int) -> Any:
        found = self._sequence[number]
        item = found if self._load is None else self._load(found)
        if item is None:
            raise _no_item(number, loaded=found is not None)
        return item

    def batch(self, numbers: np.ndarray) -> Any:
        items = [self.item(number) for number in numbers.tolist()]
        try:
            return stacked(items)
        except ValueError as error:
            raise _refused(
                f"the source's items {numbers.tolist()[:3]}",
                "items of one structure and one shape, which are stacked to a batch; arrays side by side are a tuple, Resumable((x, y))",
                str(error)[:200],
            ) from error


class KerasBatches:
    """A ``PyDataset`` or ``Sequence``: its batches are dealt as they are, as items. A list is a tuple, as it is for Keras."""

    batched = True
    plain = False

    def __init__(self, sequence: Any) -> None:
        self._sequence = sequence
        self.length = len(sequence)

    def names(self) -> None:
        return None

    def item(self, number: int) -> Any:
        found = self._sequence[number]
        return tuple(found) if isinstance(found, list) else found

    def batch(self, numbers: np.ndarray) -> Any:
        (number,) = numbers.tolist()
        return self.item(number)


def source_of(given: Any, load: Callable[[Any], Any] | None) -> Source:
    """The source for the argument ``source`` of ``Resumable``. ``OptionError`` if it is none, or empty."""
    source: Source
    if keras_calls.gives_batches(given):
        if load is not None:
            raise _refused("load=", "no load= for a PyDataset or Sequence, which loads by itself", "a function")
        source = KerasBatches(given)
    elif load is None and (isinstance(given, (Mapping, tuple)) or _is_array(given)):
        source = Arrays(given)
    elif (
        hasattr(given, "__len__")
        and hasattr(given, "__getitem__")
        and not isinstance(given, (Mapping, tuple, str, bytes))
        and getattr(given, "shape", None) != ()  # an array of no dimension has no length, although it has ``__len__``
    ):
        source = Items(given, load)
    else:
        expected = "arrays, or an object with len() and [i]"
        raise _refused("the source", expected, f"a {type(given).__name__}")
    if source.length == 0:
        raise _refused("the source", "at least one item", "none")
    if source.length > _MOST:
        raise OptionError(
            where="the source",
            expected="a length: the number of items in one epoch",
            found=f"{source.length} items, a source that repeats without end",
            todo="leave .repeat() out: each pass over a Resumable is the next epoch (fit(epochs=))",
        )
    return source


def _name(file: Any) -> str:
    """The name of a file. Of a path it is that of a copy, because a path keeps its name as text once it was asked for."""
    return os.fspath(PurePosixPath(file) if type(file) in (PosixPath, PurePosixPath) else file)


def _no_item(number: int, loaded: bool) -> OptionError:
    """The refusal of a source whose item ``number`` is None. ``loaded``: whether it is ``load`` that gave None."""
    if loaded:
        return OptionError(
            where="load=",
            expected="an item for each of the source's",
            found=f"None for the source's item {number}",
            todo="return an item, or leave out of the source what has none",
        )
    return OptionError(
        where=f"the source's item {number}",
        expected="an item for each number below len(source)",
        found="None, as a .filter() of grain gives for the items that it leaves out and that len() counts",
        todo="keep the numbers of the others, kept = [n for n in range(len(source)) if source[n] is not None], and pass "
        "Resumable(kept, load=lambda n: source[n])",
    )


def _refused(where: str, expected: str, found: str) -> OptionError:
    return OptionError(
        where=where, expected=expected, found=found, todo="see deepfreeze.data.Resumable for the sources"
    )


def _is_array(thing: Any) -> bool:
    """Whether this is an array in memory: numpy's, a tensor, or pandas's. What reads a file, such as a dataset of h5py, is none."""
    known = isinstance(thing, np.ndarray) or hasattr(thing, "numpy") or hasattr(thing, "to_numpy")
    return known and getattr(thing, "shape", ()) != ()
