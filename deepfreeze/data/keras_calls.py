"""The ways in which a Keras asks an input for batches, on Keras 3 and on Keras 2. Neither is imported: a Keras that the program has not
loaded asks for nothing."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

#: The calls of a model that go over data.
FIT, EVALUATE, PREDICT = "fit", "evaluate", "predict"
_KERASES = ("keras", "tf_keras")


@dataclass(frozen=True)
class Call:
    """A call of a model's ``fit``, ``evaluate`` or ``predict`` (``name``). ``steps``: its argument ``steps_per_epoch`` or ``steps``;
    ``workers``: threads or processes that are to ask for batches side by side; ``class_weight``: whether it has this argument."""

    name: str
    steps: int | None
    workers: int
    class_weight: bool


def bases() -> tuple[type, ...]:
    """The classes ``PyDataset`` and ``Sequence`` of the Kerases that are loaded, each once."""
    found = [getattr(getattr(sys.modules.get(name), "utils", None), "Sequence", None) for name in _KERASES]
    return tuple(dict.fromkeys(one for one in found if isinstance(one, type)))


def gives_batches(source: Any) -> bool:
    """Whether ``source`` is a ``PyDataset`` or ``Sequence`` of a Keras that is loaded."""
    return isinstance(source, bases())


def goes_over(frame: FrameType) -> bool:
    """Whether a Keras goes over the data in this ``frame``, which asks for a batch: then it is a generator's. A Keras looks at single
    batches, for their shapes, in ordinary functions."""
    return bool(frame.f_code.co_flags & inspect.CO_GENERATOR)


def is_kerases(frame: FrameType) -> bool:
    """True if this ``frame`` runs code of a Keras."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _KERASES


def calls_over(data: Any, around: FrameType | None = None) -> list[str]:
    """The names of the calls of a Keras's models that go over these ``data`` now, the innermost first: those ``around`` this frame, or
    those of all threads, because a Keras asks for batches in a thread of TensorFlow's."""
    names = []
    for frame in sys._current_frames().values() if around is None else [around]:
        caller: FrameType | None = frame
        while caller is not None:
            name = caller.f_code.co_name
            if name in (FIT, EVALUATE, PREDICT) and is_kerases(caller) and caller.f_locals.get("x") is data:
                names.append(name)
            caller = caller.f_back
    return names


def call_around(frame: FrameType | None) -> Call | None:
    """The innermost call of a model that this thread is in; None outside of one."""
    while frame is not None:
        name, given = frame.f_code.co_name, frame.f_locals
        if name in (FIT, EVALUATE, PREDICT) and hasattr(given.get("self"), "make_train_function"):
            processes = bool(given.get("use_multiprocessing"))
            steps = given.get("steps_per_epoch" if name == FIT else "steps")
            workers = max(given.get("workers") or 1, 2 if processes else 1)
            return Call(name, steps, workers, given.get("class_weight") is not None)
        frame = frame.f_back
    return None


def tell_length(frame: FrameType | None, batches: int) -> None:
    """Tells Keras 3 how many batches the epoch has that it begins: it asks once for all epochs of a ``fit``. ``frame``: the one of the
    input's ``on_epoch_begin``."""
    while frame is not None:
        iterator: Any = frame.f_locals.get("self")
        if frame.f_code.co_name == "_enumerate_iterator" and hasattr(iterator, "_num_batches"):
            iterator._num_batches = batches
            return
        frame = frame.f_back
