"""The resumable input: the same items in the same order, wherever and however often a training is interrupted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from deepfreeze import arguments, launch
from deepfreeze.data.batches import Augment, Batches
from deepfreeze.data.dealing import Dealing
from deepfreeze.data.fingerprint import fingerprint
from deepfreeze.data.keras_calls import FIT, PREDICT
from deepfreeze.data.nested import ArraySpec, mapped
from deepfreeze.data.order import order
from deepfreeze.data.placed_input import PlacedInput
from deepfreeze.data.read_ahead import ReadAhead
from deepfreeze.data.source import source_of
from deepfreeze.data.standing import Place
from deepfreeze.errors import OptionError
from deepfreeze.format.strict_json import MAX_INT

_MOST = 2**31 - 1  # of items in a batch, and of ranks
_THREADS = 4  # that read ahead, unless the user says how many


class Resumable(PlacedInput):
    """An input for ``model.fit`` and for loops that goes on in the middle of an epoch: no item is trained twice in an epoch, and none is
    left out, whatever number of ranks trains the rest.

    The object is a ``PyDataset`` of Keras 3, and a ``Sequence`` of Keras 2. Over it each pass (an epoch of ``fit``, a ``for`` loop, an
    iteration of ``dataset()``) is the next epoch. The order of an epoch follows from ``seed`` and the epoch's number alone.

    Args:
        source: arrays, or dicts and tuples of arrays (also nested) with the same first dimension; or anything with ``len`` and ``[i]``,
            such as a list of items or of file names, or a ``grain`` dataset: each ``[i]`` is an item, a structure of arrays and numbers,
            and a batch stacks items; or a ``PyDataset`` or ``Sequence``: each ``[i]`` is a batch already and is dealt as one item.
        batch_size: items of a batch on each rank.
        global_batch: items of a step on all ranks together; the ranks divide it. With it training is the same on any number of ranks.
        seed: a whole number, the same on all ranks.
        load: a function that makes an item of ``source[i]``, such as the content of a file name.
        augment: a function of an item and a generator (numpy's ``Generator``) that gives the item as it is trained. The generator is
            keyed by seed, epoch and item. Its ``seed_pair`` is for operations of TensorFlow:
            ``tf.image.stateless_random_flip_left_right(image, seed=rng.seed_pair)``. Of a ``PyDataset`` the item is a batch.
        last: the items at the end of an epoch that do not fill a global batch: "weighted" trains them, with sample weights where the ranks
            get unequal shares, so that Horovod's mean over the ranks is the mean over the items; "drop" leaves them out.
        shuffle: False: the source's own order in each epoch.
        rank, ranks: this process and the number of processes; Horovod's if they are not given and ``hvd.init()`` was called, else 0 of 1.
        threads: how many threads read ahead; 0 reads when Keras asks. By default none for plain arrays, else up to 4. ``load`` and
            ``augment`` are called in these threads, several at a time.

    Every batch has sample weights, as a third element, where the last batch of an epoch is dealt unevenly; its items are (x, y) or
    (x, y, sample_weight) then. Their own weights are multiplied.

    Raises ``OptionError``.
    """

    def __init__(
        self,
        source: Any,
        batch_size: int | None = None,
        *,
        global_batch: int | None = None,
        seed: int = 0,
        load: Callable[[Any], Any] | None = None,
        augment: Augment | None = None,
        last: str = "weighted",
        shuffle: bool = True,
        rank: int | None = None,
        ranks: int | None = None,
        threads: int | None = None,
    ) -> None:
        super().__init__()
        self._source = source_of(source, load)
        self._batch_size, self._global_batch = _batch(batch_size, global_batch, self._source.batched)
        self._seed = arguments.whole_number("seed=", seed, 0, MAX_INT)
        arguments.one_of("shuffle=", shuffle, (True, False))
        self._shuffle, self._augment, self._last = shuffle, augment, last
        self._given_ranks = _ranks(rank, ranks)
        if threads is None:
            plain = self._source.plain and augment is None
            threads = 0 if plain else min(_THREADS, len(os.sched_getaffinity(0)))
        self._threads = arguments.whole_number("threads=", threads, 0, 1024)
        self._order: tuple[int, np.ndarray] | None = None  # an epoch, and its order
        self._fingerprint: int | None = None
        # The calls of a model whose batches have sample weights: once they have them, all later ones have.
        self._weighted: set[str] = set()
        self._left_out_is_told = False
        self._dealing()

    # The state of a training.

    def begin(self, epoch: int, items: int = 0) -> None:
        """The next pass is the one over ``epoch``, from 0, of which ``items`` are trained already."""
        epoch = arguments.whole_number("epoch=", epoch, 0, MAX_INT)
        self.go_to(epoch, arguments.whole_number("items=", items, 0, self._source.length))

    def set_state(self, state: Mapping[str, Any], counted: bool = False) -> None:
        """The next pass begins where ``state`` was taken. ``counted``: see ``go_to``. ``OptionError`` if the state is of another source,
        seed or order, ``CorruptError`` if it is none."""
        own = self.state()
        self._require_state(state, tuple(own))
        for name in ("seed", "shuffle"):
            if state[name] != own[name]:
                raise OptionError(
                    where=f"Resumable({name}=)",
                    expected=f"{state[name]}, as in the checkpoint",
                    found=str(own[name]),
                    todo=f"pass {name}={state[name]}: in another order items of the epoch would be trained twice",
                )
        for name, text in _SOURCE.items():
            if state[name] != own[name]:
                raise OptionError(
                    where="the source of Resumable",
                    expected=f"{text} {state[name]}, as in the checkpoint",
                    found=str(own[name]),
                    todo="pass the items with which training began, in the same order, or begin a new run",
                )
        self.go_to(state["epoch"], state["items"], counted)
        dealing, done = self._dealing(), int(state["items"])
        if done and not dealing.batches(done):  # the next pass is the next epoch
            self._tell_left_out(state["epoch"], dealing, done)

    def same_on_all_ranks(self) -> dict[str, Any]:
        """The values that must be equal on all ranks, by name; JSON can hold them."""
        place = {"epoch", "items"}
        own = {name: value for name, value in self._state(Place(0, 0)).items() if name not in place}
        return own | {"batch_size": self._batch_size, "global_batch": self._global_batch, "last": self._last}

    def _state(self, place: Place) -> dict[str, Any]:
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self._source)
        return {
            "seed": self._seed,
            "shuffle": self._shuffle,
            "epoch": place.epoch,
            "items": place.items,
            "length": self._source.length,
            "fingerprint": self._fingerprint,
        }

    # The ranks.

    @property
    def rank(self) -> int:
        """The number of this process among ``ranks``."""
        return self._given_ranks[0] if self._given_ranks else launch.horovod_ranks()[0]

    @property
    def ranks(self) -> int:
        """The number of processes over which the items are dealt."""
        return self._given_ranks[1] if self._given_ranks else launch.horovod_ranks()[1]

    def _dealing(self) -> Dealing:
        ranks = self.ranks
        return Dealing(self._source.length, ranks, self._global_batch or self._batch_size * ranks, self._last)

    # The passes.

    def dataset(self) -> Any:
        """A ``tf.data.Dataset`` for loops. Each iteration over it is a pass: the next epoch, or what is left of the interrupted one.
        ``OptionError`` if the program has not imported TensorFlow."""
        tf: Any = sys.modules.get("tensorflow")
        if tf is None:
            raise OptionError(
                where="Resumable.dataset()",
                expected="TensorFlow in this process",
                found="it is not imported",
                todo="import tensorflow, or iterate over the object itself",
            )
        signature = mapped(lambda spec: tf.TensorSpec(spec.shape, spec.dtype), self.shapes())
        return tf.data.Dataset.from_generator(lambda: iter(self), output_signature=signature).prefetch(tf.data.AUTOTUNE)

    def shapes(self) -> Any:
        """The structure of the batches, with an ``ArraySpec`` in the place of each array. ``OptionError`` if the first batch and the last
        one have other structures."""
        batches = self._batches(FIT).whole  # what is left of an epoch may be its last batch alone
        looks = [batches.make(number) for number in {0, len(batches) - 1}]
        try:
            return mapped(_spec, *looks)
        except ValueError as error:
            raise OptionError(
                where="the source's batches",
                expected="the same structure and dimensions in each",
                found=str(error),
                todo="give all items the same structure, and arrays as many dimensions",
            ) from error

    def _batches(self, use: str) -> Batches:
        with self._lock:
            place = self._standing.upcoming(self._dealing()) if use == FIT else Place(0, 0)
            return self._batches_at(place, use)

    def _batches_at(self, place: Place, use: str) -> Batches:
        """The batches from ``place`` on: to train, in the epoch's order; else all items in the source's order."""
        dealing = self._dealing()
        if use == PREDICT:  # each rank has all items
            dealing = replace(dealing, ranks=1, global_batch=dealing.global_batch // dealing.ranks, last="weighted")
        elif dealing.needs_weights(0) or dealing.needs_weights(place.items):
            self._weighted.add(use)
        return Batches(
            source=self._source,
            order=self._order_of(place.epoch) if use == FIT and self._shuffle else None,
            dealing=dealing,
            rank=0 if use == PREDICT else self.rank,
            seed=self._seed,
            epoch=place.epoch,
            done=place.items,
            augment=self._augment,
            weighted=use in self._weighted,
        )

    def _order_of(self, epoch: int) -> np.ndarray:
        with self._lock:
            if self._order is None or self._order[0] != epoch:
                self._order = None  # its memory is free for the next one
                self._order = epoch, order(self._seed, epoch, self._source.length)
            return self._order[1]

    def _opened(self, place: Place) -> ReadAhead:
        batches = self._batches_at(place, FIT)
        if not self._left_out_is_told:
            self._left_out_is_told = self._tell_left_out(place.epoch, batches.dealing, place.items)
        return self._read(batches)

    def _shown_to(self, use: str) -> ReadAhead:
        return self._read(self._batches(use))

    def _read(self, batches: Batches) -> ReadAhead:
        return ReadAhead(batches.make, len(batches), self._threads, 2 * self._threads)

    def _tell_left_out(self, epoch: int, dealing: Dealing, done: int) -> bool:
        """Tells how many items no step trains if the ``epoch`` goes on from ``done``. Returns whether there are any."""
        left_out = dealing.left_out(done)
        if left_out:
            self.notify(
                "info",
                f"epoch {epoch} leaves {left_out} of {dealing.length} items out: they do not fill a global batch of "
                f'{dealing.global_batch} (last="drop")',
            )
        return left_out > 0


_SOURCE = {"length": "number of items", "fingerprint": "fingerprint"}


def _batch(batch_size: Any, global_batch: Any, batched: bool) -> tuple[int, int]:
    """``batch_size`` and ``global_batch``, 0 for the one that does not hold. Of a source of batches each is one item."""
    if batched and (batch_size, global_batch) == (None, None):
        return 1, 0
    given = [
        (f"{name}=", value)
        for name, value in (("batch_size", batch_size), ("global_batch", global_batch))
        if value is not None
    ]
    if batched or len(given) != 1:
        expected = "neither: a PyDataset or Sequence gives batches" if batched else "one of the two"
        found = "both" if len(given) == 2 else given[0][0] if given else "neither"
        todo = "leave it out" if batched else "pass batch_size= for each rank, or global_batch= for all ranks together"
        raise OptionError(where="batch_size=, global_batch=", expected=expected, found=found, todo=todo)
    ((name, value),) = given
    number = arguments.whole_number(name, value, 1, _MOST)
    return (number, 0) if batch_size is not None else (0, number)


def _ranks(rank: Any, ranks: Any) -> tuple[int, int] | None:
    if rank is None and ranks is None:
        return None
    ranks = arguments.whole_number("ranks=", ranks, 1, _MOST)
    return arguments.whole_number("rank=", rank, 0, ranks - 1), ranks


def _spec(*parts: Any) -> ArraySpec:
    """Shape and dtype of a leaf of batches: None for dimensions in which they differ, and for the items. ValueError if the arrays have
    not as many dimensions as each other."""
    arrays = [np.asarray(part) for part in parts]
    if len({array.ndim for array in arrays}) > 1:
        raise ValueError(f"arrays of the shapes {', '.join(str(array.shape) for array in arrays)} in one place")
    sizes = zip(*(array.shape[1:] for array in arrays), strict=True)
    return ArraySpec((None, *(one[0] if len(set(one)) == 1 else None for one in sizes)), arrays[0].dtype)
