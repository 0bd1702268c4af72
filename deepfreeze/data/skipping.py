"""A ``tf.data`` pipeline that a training goes on in the middle of: what was trained is read again and left out, and the last batch of it is
compared."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from deepfreeze import arguments, launch
from deepfreeze.data.dealing import Dealing
from deepfreeze.data.keras_calls import FIT
from deepfreeze.data.nested import ArraySpec, leaves, mapped
from deepfreeze.data.placed_input import PlacedInput
from deepfreeze.data.standing import Place
from deepfreeze.errors import OptionError
from deepfreeze.format import crc32c

_KEPT = 4096  # checksums of batches that were handed out: far more than anything reads ahead
_MOST = 2**31 - 1


class _Batch(NamedTuple):
    """A batch that was handed out: its ``number`` in its ``epoch``, both from 0, and the ``crc`` of its bytes."""

    epoch: int
    number: int
    crc: int


class Skipping(PlacedInput):
    """An input for ``model.fit`` and for loops over a ``tf.data`` pipeline. After a restart it reads the batches again that were trained,
    leaves them out, and goes on with the next one. A checksum of the last batch that was trained tells whether the pipeline yields the
    same batches in the same order; where it does not, going on is refused.

        data = deepfreeze.data.Skipping(lambda epoch: files.shuffle(1000, seed=epoch).map(decode).batch(32))
        model.fit(data, epochs=10, callbacks=[deepfreeze.Checkpoint("runs/mine", data=data)])

    The object is a ``PyDataset`` of Keras 3, and a ``Sequence`` of Keras 2. Each pass over it is the next epoch.

    Args:
        source: a ``tf.data.Dataset`` of batches that are structures of dense tensors; or a function of the epoch, from 0, that returns the
            dataset of this epoch. A dataset that shuffles anew in each iteration can't be gone on with: a function can pass
            ``seed=epoch``.
        length: how many batches an epoch has; by default what the dataset's ``cardinality()`` says.

    It can be gone on with on as many ranks as before: which rank reads what is the pipeline's matter. Raises ``OptionError``.
    """

    def __init__(self, source: Any, length: int | None = None) -> None:
        super().__init__()
        is_dataset = hasattr(source, "element_spec") and hasattr(source, "skip")
        expected = "a tf.data.Dataset, or a function of the epoch that returns one"
        arguments.require("source", source, is_dataset or callable(source), expected)
        self._of: Callable[[int], Any] = (lambda epoch: source) if is_dataset else source
        first = self._of(0)
        self._spec = first.element_spec
        for _, spec in leaves(self._spec):
            good = type(spec).__name__ == "TensorSpec" and spec.shape.rank is not None
            arguments.require("source", spec, good, "batches of dense tensors of known rank")
        self._whole = _length_of(first) if length is None else arguments.whole_number("length=", length, 1, _MOST)
        self._crcs: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._ready: tuple[int, Iterator[Any]] | None = None  # an epoch, and its iterator behind what was trained

    def __deepcopy__(self, memo: dict[int, Any]) -> Skipping:
        made = super().__deepcopy__(memo)
        assert isinstance(made, Skipping)
        made._crcs, made._ready = self._crcs.copy(), None
        return made

    # The state of a training.

    def go_to(self, epoch: int, items: int, counted: bool = False) -> None:
        with self._lock:
            self._ready = None
            super().go_to(epoch, items, counted)

    def _state(self, place: Place) -> dict[str, Any]:
        """``OptionError`` if the last of the batches was handed out too long ago."""
        epoch, batches = place
        # The first one is compared after a restart; the second one is for a later state, at the end of the epoch.
        wanted = [(epoch, batches - 1), (epoch, 0)] if batches else [(epoch - 1, 0)]
        if wanted[0] not in self._crcs and self._training is not None and (epoch, batches) != (0, 0):
            raise OptionError(
                where="Skipping",
                expected=f"a state after one of the {_KEPT} batches that were handed out last",
                found=f"batch {wanted[0][1]} of epoch {wanted[0][0]}",
                todo="tell of each step: pass data= to deepfreeze.Checkpoint or deepfreeze.capture, or call advance() in the loop",
            )
        return {
            "epoch": epoch,
            "batches": batches,
            "length": self._whole,
            "ranks": launch.horovod_ranks()[1],
            "seen": [[*key, self._crcs[key]] for key in wanted if key in self._crcs],
        }

    def set_state(self, state: Mapping[str, Any], counted: bool = False) -> None:
        """The next pass begins where ``state`` was taken. Reads the batches of its epoch again that were trained, and compares the last of
        them; at the beginning of an epoch, the first batch of the epoch before. ``counted``: see ``go_to``. ``OptionError`` if
        the pipeline yields another batch, or has another length, or if there are other ranks; ``CorruptError`` if the state is none."""
        self._require_state(state, ("epoch", "batches", "length", "ranks", "seen"))
        own = {"length": self._whole, "ranks": launch.horovod_ranks()[1]}
        for name, text in (("length", "batches in an epoch"), ("ranks", "ranks")):
            if state[name] != own[name]:
                raise OptionError(
                    where="the pipeline of Skipping",
                    expected=f"{state[name]} {text}, as in the checkpoint",
                    found=str(own[name]),
                    todo="start as the job did that wrote the checkpoint; deepfreeze.data.Resumable goes on with any number of ranks",
                )
        self.go_to(state["epoch"], state["batches"], counted)
        seen = [_Batch(*values) for values in state["seen"]]
        self._crcs.update({(one.epoch, one.number): one.crc for one in seen})
        if seen:
            iterator = self._behind(seen[0].epoch, seen[0].number)
            if self.batches_done:
                self._ready = seen[0].epoch, iterator

    def _behind(self, epoch: int, number: int) -> Iterator[Any]:
        """An iterator over the batches behind that of this ``number``, which was trained before. Reads up to it, and compares its checksum
        if that is known. ``OptionError`` if it is another batch."""
        if number:
            self.notify("info", f"reading {number + 1} batches of epoch {epoch} again, which are trained already")
        iterator = iter(self._of(epoch).skip(number))
        batch, crc = next(iterator, None), self._crcs.get((epoch, number))
        if batch is None or crc not in (None, _crc(_arrays(batch))):
            raise OptionError(
                where="the pipeline of Skipping",
                expected=f"batch {number} of epoch {epoch} to be the one that was trained before",
                found="another batch" if batch is not None else "no batch",
                todo="make its order repeatable: give each shuffle a seed and reshuffle_each_iteration=False (or pass a function of the "
                "epoch, and seed=epoch), draw random numbers by tf.random.stateless_*, read files in a fixed order, keep "
                "options().deterministic True",
            )
        return iterator

    # The passes.

    def same_on_all_ranks(self) -> dict[str, Any]:
        """The values that must be equal on all ranks, by name; JSON can hold them."""
        return {"length": self._whole}

    def shapes(self) -> Any:
        """The structure of the batches, with an ``ArraySpec`` in the place of each tensor."""
        return mapped(lambda spec: ArraySpec(tuple(spec.shape), np.dtype(spec.dtype.as_numpy_dtype)), self._spec)

    def _dealing(self) -> Dealing:
        return Dealing(self._whole, 1, 1)

    def _batches(self, use: str) -> _Batches:
        with self._lock:
            done = self._standing.upcoming(self._dealing()).items if use == FIT else 0
        return _Batches(self._spec, self._whole, done)

    def _opened(self, place: Place) -> _Pass:
        epoch, done = place
        ready, self._ready = self._ready, None
        if not done:
            iterator = iter(self._of(epoch))
        elif ready is not None and ready[0] == epoch:
            iterator = ready[1]
        else:  # a loop has ended within the epoch, and another one begins
            iterator = self._behind(epoch, done - 1)
        return _Pass(iterator, self._whole - done, lambda number, batch: self._note(epoch, done + number, batch))

    def _shown_to(self, use: str) -> _Pass:
        return _Pass(iter(self._of(0)), self._whole, lambda number, batch: None)

    def _note(self, epoch: int, number: int, batch: Any) -> None:
        """Keeps the checksum of a batch that is handed out, and those of the first batches of this epoch and the one before."""
        with self._lock:
            self._crcs[epoch, number] = _crc(batch)
            while len(self._crcs) > _KEPT:
                oldest = next(key for key in self._crcs if key[1] or key[0] < epoch - 1)
                del self._crcs[oldest]


class _Batches:
    """What a Keras is shown of a pass that began now. Batches of zeros show shapes and dtypes, because reading would shuffle some pipelines
    anew."""

    weighted = False
    uneven = ""

    def __init__(self, spec: Any, length: int, done: int) -> None:
        """``length``: of a whole epoch, of which so many batches are ``done``."""
        self._spec, self._length, self._done = spec, length, done

    def __len__(self) -> int:
        return self._length - self._done

    @property
    def whole(self) -> _Batches:
        """The batches of the whole epoch, trained ones too."""
        return _Batches(self._spec, self._length, 0)

    def make(self, number: int) -> Any:
        """A batch of zeros. A dimension of unknown size has another size in each batch."""

        def zeros(spec: Any) -> np.ndarray:
            return np.zeros([number + 1 if size is None else size for size in spec.shape], spec.dtype.as_numpy_dtype)

        return mapped(zeros, self._spec)


class _Pass(Iterator[Any]):
    """The next ``length`` batches of ``iterator``. ``note``: is called with the number and the batch of each that is handed out. One thread
    at a time takes batches."""

    def __init__(self, iterator: Iterator[Any], length: int, note: Callable[[int, Any], None]) -> None:
        self.length, self._taken = length, 0
        self._iterator: Iterator[Any] | None = iterator
        self._note = note

    def __next__(self) -> Any:
        iterator = self._iterator
        if iterator is None:
            raise StopIteration
        batch = next(iterator, None)
        if batch is None:
            self.stop()
            raise OptionError(
                where="Skipping",
                expected=f"{self.length} batches more in this epoch",
                found=f"a dataset that has ended after {self._taken}",
                todo="pass length=, the number of batches in each epoch",
            )
        arrays = _arrays(batch)
        self._note(self._taken, arrays)
        self._taken += 1
        if self._taken == self.length:
            self.stop()  # an iterator keeps what it has read ahead
        return arrays

    @property
    def finished(self) -> bool:
        """Whether all batches were taken, or ``stop`` was called."""
        return self._iterator is None

    def stop(self) -> None:
        """Drops what is left."""
        self._iterator = None


def _arrays(batch: Any) -> Any:
    return mapped(lambda tensor: tensor.numpy(), batch)


def _crc(batch: Any) -> int:
    """The checksum of the bytes of all arrays of a batch, in their order."""
    crc = 0
    for _, array in leaves(batch):
        data = np.ascontiguousarray(array)
        crc = crc32c.extend(crc, b"\0".join(data.reshape(-1).tolist()) if data.dtype == object else data)
    return crc


def _length_of(dataset: Any) -> int:
    length = int(dataset.cardinality())
    if length < 1:
        found = {-1: "a dataset that never ends", 0: "an empty dataset"}.get(length, "a dataset of unknown length")
        todo = "pass length=, the number of batches in an epoch"
        raise OptionError(where="source", expected="a dataset whose length is known", found=found, todo=todo)
    return length
