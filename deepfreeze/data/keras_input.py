"""An input that a Keras may ask for batches: a ``PyDataset`` of Keras 3, and a ``Sequence`` of Keras 2."""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import Any, Protocol

from deepfreeze.data import keras_calls
from deepfreeze.data.keras_calls import FIT
from deepfreeze.errors import OptionError

_PASSES = 8  # that are remembered


class Shown(Protocol):
    """The batches of a pass that began now, as a Keras is shown them for their shapes. ``len()``: how many the pass has; ``whole``: how
    many the whole epoch has, trained ones too; ``weighted``: whether each batch has sample weights; ``uneven``: why they have, for a
    message."""

    @property
    def whole(self) -> int: ...

    @property
    def weighted(self) -> bool: ...

    @property
    def uneven(self) -> str: ...

    def __len__(self) -> int: ...

    def make(self, number: int) -> Any:
        """The batch of this number, from 0, or one of the same shapes and dtypes. Counts for no pass."""


class Pass(Protocol):
    """The ``length`` batches of a pass, in order. One thread at a time takes them; any thread may call ``stop``."""

    @property
    def length(self) -> int: ...

    @property
    def finished(self) -> bool:
        """Whether all batches were taken, or ``stop`` was called."""

    def __iter__(self) -> Iterator[Any]: ...

    def stop(self) -> None:
        """Drops what is left."""


class KerasInput:
    """An input as a Keras sees it. A subclass says what a pass over the data is (``_batches``, ``_begun``).

    ``fit`` shuffles the indices of an input by default, by Python's global generator. So an index is only a ticket: the n-th batch that
    is asked for in a pass is the n-th batch of the order. A Keras goes over the data in a generator, a new one for each pass, in a thread
    of TensorFlow's that reads ahead: so the generator tells which pass a request belongs to. It may still ask when training was
    interrupted and the next pass has begun. Requests outside of a generator are looks at the shapes, and count for no pass."""

    use_multiprocessing = False
    max_queue_size = 10

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._counted = False  # Keras counts the batches of an interrupted epoch that were trained before
        self._next_call = FIT  # the call of a model that the next pass is for
        # Keras's generators, the call that each is for, and its batches.
        self._passes: deque[tuple[FrameType, str, Pass]] = deque(maxlen=_PASSES)
        self._shown: bool | None = None  # whether the batches at which Keras has looked had sample weights

    @property  # type: ignore[misc]  # object's can also be set
    def __class__(self) -> type:
        # Keras may be loaded after this object was made, and two Kerases may be: so it is an instance of whatever they ask for.
        return _joined((type(self), *keras_calls.bases()))

    def _batches(self, use: str) -> Shown:
        """The batches of a pass that began now. ``use``: the call of a model that it is for, ``FIT`` also for loops."""
        raise NotImplementedError

    def _begun(self, use: str) -> Pass:
        """Begins a pass."""
        raise NotImplementedError

    @property
    def workers(self) -> int:
        """1: with several Keras would ask in no fixed order. The threads of ``threads=`` read ahead instead."""
        return 1

    @workers.setter
    def workers(self, value: int) -> None:
        _one_worker(value)

    def __getitem__(self, index: int) -> Any:
        """The next batch of a pass, whatever the ``index``, if a Keras goes over the data; else, for a look, the batch number ``index`` of
        the pass that comes next. ``IndexError`` if there is none."""
        asker = sys._getframe(1)
        if not keras_calls.goes_over(asker):
            return self._look(index, asker)
        with self._lock:
            batches = self._pass_of(asker)
            if batches is None:
                self._require_shown(self._batches(self._next_call))
                if self._next_call == FIT:
                    self._stop_training()
                batches = self._begun(self._next_call)
                self._passes.append((asker, self._next_call, batches))
                self._next_call = FIT
        for batch in batches:
            return batch
        raise IndexError(index)

    def __len__(self) -> int:
        """How many batches the next pass has on this rank: those of an epoch, or what is left of an interrupted one."""
        return self._length(sys._getframe(1))

    @property
    def num_batches(self) -> int:
        """As ``len``, for Keras 3."""
        return self._length(sys._getframe(1))

    def on_epoch_begin(self) -> None:
        """Keras 3 begins a pass."""
        frame = sys._getframe(1)
        self._look_around(frame)
        batches = self._batches(self._next_call)
        self._require_shown(batches)
        keras_calls.tell_length(frame, self._seen_length(batches))

    def on_epoch_end(self) -> None:
        """Keras has ended a pass. Nothing is to be done: the next one begins by itself."""

    def _seen_length(self, batches: Shown) -> int:
        """The number of batches that Keras is told."""
        return batches.whole if self._counted else len(batches)

    def _look(self, index: int, asker: FrameType) -> Any:
        self._look_around(asker)
        batches = self._batches(self._next_call)
        self._shown = batches.weighted
        if not 0 <= index < len(batches):
            raise IndexError(index)
        return batches.make(index)

    def _length(self, asker: FrameType) -> int:
        with self._lock:
            batches = self._pass_of(asker)
            if batches is not None:
                return batches.length
        self._look_around(asker)
        batches_to_come = self._batches(self._next_call)
        return len(batches_to_come) if keras_calls.goes_over(asker) else self._seen_length(batches_to_come)

    def _pass_of(self, asker: FrameType) -> Pass | None:
        return next((batches for frame, _, batches in self._passes if frame is asker), None)

    def _stop_training(self) -> None:
        for _, use, batches in self._passes:
            if use == FIT:
                batches.stop()

    def _look_around(self, frame: FrameType) -> None:
        """Finds out for which call of a model the next pass is. ``OptionError`` if the call has an argument that can't hold."""
        call = keras_calls.call_around(frame)
        if call is None:
            return
        self._next_call = call.name
        _one_worker(call.workers)
        if call.class_weight and self._batches(FIT).weighted:
            raise OptionError(
                where="fit(class_weight=)",
                expected="None, for the batches have sample weights, because the ranks do not divide the last one of an epoch",
                found="class weights, which Keras does not take beside sample weights",
                todo='pass Resumable(last="drop"), or items (x, y, sample_weight) with the weights of their classes',
            )
        if call.name == FIT and call.steps is not None:
            raise OptionError(
                where="fit(steps_per_epoch=)",
                expected="None: an epoch is all that the input has",
                found=str(call.steps),
                todo="leave steps_per_epoch out",
            )

    def _require_shown(self, batches: Shown) -> None:
        """``OptionError`` if the batches have sample weights, and those that Keras was shown had none."""
        if batches.weighted and self._shown is False:
            raise OptionError(
                where='Resumable(last="weighted")',
                expected="batches without sample weights, as Keras was shown when fit began",
                found=batches.uneven,
                todo="call open before fit, or pass global_batch= in place of batch_size=",
            )


def _one_worker(value: int) -> None:
    if value != 1:
        raise OptionError(
            where="fit(workers=, use_multiprocessing=)",
            expected="one worker, for with several Keras asks for batches in no fixed order",
            found=str(value),
            todo="leave both out: a Resumable reads ahead by itself (threads=), a tf.data pipeline by prefetch()",
        )


@functools.cache
def _joined(classes: tuple[type, ...]) -> type:
    """A class that is a subclass of all ``classes``."""
    return type(classes[0].__name__, classes, {}) if classes[1:] else classes[0]
