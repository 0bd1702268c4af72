"""An input that a Keras may ask for batches: a ``PyDataset`` of Keras 3, and a ``Sequence`` of Keras 2."""

from __future__ import annotations

import functools
import sys
import threading
from types import FrameType
from typing import Any, Protocol

from deepfreeze.data import keras_calls
from deepfreeze.data.keras_calls import EVALUATE, FIT
from deepfreeze.data.passes import Pass, Passes
from deepfreeze.errors import OptionError
from deepfreeze.notices import Notify


class Shown(Protocol):
    """The batches of a pass that began now, as a Keras is shown them for their shapes. ``len()``: how many the pass has; ``whole``: those
    of the whole epoch, trained ones too; ``weighted``: whether each batch has sample weights; ``uneven``: why they have, for a message."""

    @property
    def whole(self) -> Shown: ...

    @property
    def weighted(self) -> bool: ...

    @property
    def uneven(self) -> str: ...

    def __len__(self) -> int: ...

    def make(self, number: int) -> Any:
        """The batch of this number, from 0, or one of the same shapes and dtypes. Counts for no pass."""


class KerasInput:
    """An input as a Keras sees it. A subclass says what a pass over the data is (``_batches``, ``_begun``).

    ``fit`` shuffles the indices of an input by default, by Python's global generator. So an index is only a ticket: the n-th batch that
    is asked for in a pass is the n-th batch of the order. A Keras goes over the data in a generator, a new one for each pass, in a thread
    of TensorFlow's that reads ahead: so the generator tells which pass a request belongs to. It may still ask when training was
    interrupted and the next pass has begun. Requests outside of a generator are looks at the shapes, and count for no pass.

    While a ``fit`` goes over the data, its own generators alone train. Whatever else goes over them then, such as a loop in a callback,
    gets what ``evaluate`` gets: batches that count for no epoch."""

    use_multiprocessing = False
    max_queue_size = 10
    notify: Notify

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._counted = False  # Keras counts the batches of an interrupted epoch that were trained before
        self._fit_begins_pass = False  # a ``fit`` has asked for what it asks before each of its passes
        self._passes = Passes()
        self._beside_is_told = False
        # For each call of a model: whether the batches at which Keras has looked had sample weights. Those of ``predict`` never have.
        self._shown: dict[str, bool] = {}

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
        the pass that comes next, or of its whole epoch if Keras counts that. ``IndexError`` if there is none."""
        asker = sys._getframe(1)
        if not keras_calls.goes_over(asker):
            return self._look(index, asker)
        with self._lock:
            batches = self._passes.of(asker)
            if batches is None:
                batches = self._begin(asker)
        for batch in batches:
            return batch
        raise IndexError(index)

    def __len__(self) -> int:
        """How many batches the next pass has on this rank: those of an epoch, or what is left of an interrupted one; if Keras counts the
        whole of it, the whole epoch's."""
        return self._length(sys._getframe(1))

    @property
    def num_batches(self) -> int:
        """As ``len``, for Keras 3."""
        return self._length(sys._getframe(1))

    def on_epoch_begin(self) -> None:
        """Keras 3 begins a pass."""
        frame = sys._getframe(1)
        use = self._look_around(frame)
        batches = self._batches(use)
        self._require_shown(batches, use)
        keras_calls.tell_length(frame, len(self._seen(batches)))

    def on_epoch_end(self) -> None:
        """Keras has ended a pass. Nothing is to be done: the next one begins by itself."""

    def _seen(self, batches: Shown) -> Shown:
        """The batches of which Keras is told the number. Keras looks at them too, also where a pass has fewer."""
        return batches.whole if self._counted else batches

    def _look(self, index: int, asker: FrameType) -> Any:
        use = self._look_around(asker)
        seen = self._seen(self._batches(use))
        self._shown[use] = seen.weighted
        if not 0 <= index < len(seen):
            raise IndexError(index)
        return seen.make(index)

    def _length(self, asker: FrameType) -> int:
        if not keras_calls.goes_over(asker):
            return len(self._seen(self._batches(self._look_around(asker))))
        with self._lock:
            batches = self._passes.of(asker)
        if batches is not None:
            return batches.length
        return len(self._batches(self._use_of(keras_calls.is_kerases(asker)) or EVALUATE))

    def _begin(self, generator: FrameType) -> Pass:
        """Begins the pass of this ``generator``."""
        use = self._use_of(keras_calls.is_kerases(generator)) or self._told_beside()
        self._require_shown(self._batches(use), use)
        if use == FIT:
            self._passes.stop_training()
            self._fit_begins_pass = False
        batches = self._begun(use)
        self._passes.begin(generator, batches, trains=use == FIT)
        return batches

    def _use_of(self, kerases: bool) -> str | None:
        """The call of a model that a pass is for that begins now, ``FIT`` for a loop of the program's own. ``kerases``: a Keras goes over
        it. None for a pass beside that of a ``fit``."""
        calls = keras_calls.calls_over(self)
        if not kerases or not calls:
            return None if FIT in calls else FIT
        beside = calls[0] == FIT and self._passes.training and not self._fit_begins_pass
        return None if beside else calls[0]

    def _told_beside(self) -> str:
        """Warns of a pass beside that of a ``fit``, once. Returns what it is for."""
        if not self._beside_is_told:
            self._beside_is_told = True
            self.notify(
                "warning",
                f"a loop goes over the {type(self).__name__} while fit goes over it: the loop gets all items, as evaluate does, and they "
                "count for no epoch. copy.deepcopy(data) is an input of its own",
            )
        return EVALUATE

    def _look_around(self, frame: FrameType) -> str:
        """The call of a model that the next pass is for, which the ``frame`` is in; ``FIT`` outside of one. ``OptionError`` if the call has
        an argument that can't hold, and for a ``fit`` within another one over the same data."""
        call = keras_calls.call_around(frame)
        if call is None:
            return FIT
        _one_worker(call.workers)
        if call.name == FIT and keras_calls.is_kerases(frame):
            if keras_calls.calls_over(self, frame).count(FIT) > 1:
                raise OptionError(
                    where=f"fit over a {type(self).__name__}",
                    expected="one fit at a time, which trains each item of an epoch once",
                    found="a fit within another one, over the same data",
                    todo="give one of the two copy.deepcopy(data), an input of its own",
                )
            self._fit_begins_pass = True
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
        return call.name

    def _require_shown(self, batches: Shown, use: str) -> None:
        """``OptionError`` if the ``batches`` of a pass have sample weights, and those that Keras was shown for this ``use`` had
        none."""
        if batches.weighted and self._shown.get(use) is False:
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
