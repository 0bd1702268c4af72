"""The ranks of ``hvd.init()``, and how they reach each other outside of the train function."""

from __future__ import annotations

import contextlib
import functools
import itertools
import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from deepfreeze import launch
from deepfreeze.errors import Error, WorldError
from deepfreeze.ranks.bounded import Bounded, Message
from deepfreeze.ranks.caller import Caller
from deepfreeze.ranks.wait import PATIENT, Patience, Wait, name_of_call

T = TypeVar("T")

# The names by which Horovod matches our ops, and which its own messages show. No op of the program has them.
_GATHER, _MAXIMUM = "deepfreeze.gather", "deepfreeze.maximum"
# In front of each message: its length in bytes, and the number of the call.
_HEADER = struct.Struct("<QQ")
# Seconds between two signs of life of a rank at work, at most; a quarter of ``timeout`` if that is less.
_BEAT = 10.0
_ADVICE = f"Horovod names them each minute: Missing ranks, {_GATHER} or {_MAXIMUM}"

#: The thread of all Horovod calls of this process.
caller = Caller()
# Each call has a number, the same on all ranks. So a call that one rank has given up is not taken for a later call of the others.
_numbers = itertools.count(1)


class HorovodWorld(Bounded):
    """The ranks of ``hvd.init()``. Uses Horovod's own transport, so it works under MPI and gloo. A rank at work tells the others so."""

    in_graph = True

    def __init__(self, hvd: Any, patience: Patience = PATIENT) -> None:
        super().__init__(hvd.rank(), hvd.size(), patience, _ADVICE)
        self._hvd = hvd

    def maximum(self, values: Any) -> Any:
        """Adds an allreduce to the graph, which Horovod matches by the op's name in the graph: how long it may wait is Horovod's affair. An
        array is reduced at once, and in bounded time."""
        if not isinstance(values, np.ndarray):
            return self._hvd.allreduce(values, op=self._hvd.Max)
        reduce = functools.partial(_ops(self._hvd)[1], values)
        return self._call(lambda: reduce().numpy(), self._wait(name_of_call()))

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """See ``World``."""
        alive = self._message(name_of_call(), at_work=True)
        with caller.working(lambda: self._send(alive), min(_BEAT, self._patience.timeout / 4)):
            yield

    def _exchange(self, mine: Message, wait: Wait) -> list[Message]:
        number, found = self._call(lambda: self._send(mine), wait)
        messages = []
        for rank in range(self.size):
            length, theirs = _HEADER.unpack_from(found)
            messages.append(found[_HEADER.size : _HEADER.size + length])
            if theirs != number:
                raise self._other_call(mine, rank, f"call {theirs} in place of call {number}")
            found = found[_HEADER.size + length :]
        return self._checked(mine, messages)

    def _send(self, message: Message) -> tuple[int, memoryview]:
        """On the caller's thread: returns the number of the call, and the messages of all ranks, one behind the other."""
        data = self._packed(message)
        number = next(_numbers)
        sent = np.frombuffer(_HEADER.pack(len(data), number) + data, np.uint8)
        return number, memoryview(_ops(self._hvd)[0](sent).numpy())

    def _call(self, action: Callable[[], T], wait: Wait) -> T:
        """Runs ``action`` on the caller's thread. ``WorldError`` if Horovod ends it, because a rank has ended."""
        try:
            return caller.call(action, wait)
        except Exception as error:
            said = next((line for line in str(error).splitlines() if "Horovod" in line), "")
            if isinstance(error, Error) or not said:
                raise
            raise WorldError(
                where=f"{self._patience.who} on rank {self.rank}",
                expected="all ranks to go on",
                found=said.partition("} ")[2][:400] or said[:400],
                todo="see which rank has ended first, and why",
            ) from error


@functools.cache
def _ops(hvd: Any) -> tuple[Callable[[np.ndarray], Any], Callable[[np.ndarray], Any]]:
    """``hvd.allgather`` of bytes and ``hvd.allreduce`` of int64, each in a graph: outside of one Horovod gives no op a name of its own."""
    tf = launch.tensorflow()

    def function(op: Callable[[Any], Any], dtype: Any) -> Callable[[np.ndarray], Any]:
        return tf.function(op, autograph=False, input_signature=[tf.TensorSpec([None], dtype)])

    gather = function(lambda data: hvd.allgather(data, name=_GATHER), tf.uint8)
    return gather, function(lambda values: hvd.allreduce(values, op=hvd.Max, name=_MAXIMUM), tf.int64)
