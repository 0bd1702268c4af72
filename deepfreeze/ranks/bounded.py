"""The calls of a rank to the other ranks, for every world of several ranks: each call is bounded, and none takes the values of another.

Horovod and MPI match the calls of the ranks by their order, and not by what each rank wants of the others. So every message says which
call it belongs to. Ranks that come with different calls hear of it, each of them.
"""

from __future__ import annotations

import contextlib
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deepfreeze.errors import WorldError
from deepfreeze.ranks.wait import Patience, Wait, name_of_call


@dataclass(frozen=True)
class Message:
    """What one rank says in one call. ``who``, ``call``: see ``Patience`` and ``name_of_call``; ``at_work``: the rank still works on its
    ``value``, which comes with a later message; the ``call`` is then the one for which it works."""

    who: str
    call: str
    value: Any = None
    at_work: bool = False


class Bounded(ABC):
    """A world whose calls are bounded. See ``World`` for the methods without an underscore."""

    def __init__(self, rank: int, size: int, patience: Patience, advice: str) -> None:
        """``advice``: a sentence that says where the ranks are named that are missing, for the error of a call that is given up."""
        self.rank, self.size = rank, size
        self._patience, self._advice = patience, advice

    def broadcast(self, value: Any) -> Any:
        """A ``gather`` to which the other ranks give nothing, so that any two calls of two ranks fit together."""
        return self._gather(name_of_call(), value if self.rank == 0 else None)[0]

    def gather(self, value: Any) -> list[Any]:
        """Sends values by pickle."""
        return self._gather(name_of_call(), value)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Does nothing: for a transport that can't tell the others meanwhile."""
        yield

    def _gather(self, call: str, value: Any) -> list[Any]:
        wait, mine = self._wait(call), self._message(call, value)
        while True:
            found = self._exchange(mine, wait)
            at_work = [rank for rank, one in enumerate(found) if one.at_work]
            if not at_work:
                return [one.value for one in found]
            wait.moved(at_work)

    def _wait(self, call: str) -> Wait:
        return Wait(self._patience, call, self.rank, self.size, self._advice)

    def _message(self, call: str, value: Any = None, at_work: bool = False) -> Message:
        return Message(self._patience.who, call, value, at_work)

    @abstractmethod
    def _exchange(self, mine: Message, wait: Wait) -> list[Message]:
        """Returns the messages of all ranks, by rank; sends ``mine``. ``wait`` may end it. ``WorldError`` if a message is of another call
        (``checked``), or if a rank has ended."""

    def _packed(self, message: Message) -> bytes:
        return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)

    def _checked(self, mine: Message, found: Sequence[bytes | memoryview]) -> list[Message]:
        """The messages in ``found``, the bytes of all ranks. ``WorldError`` unless they are of the call that ``mine`` is of, or of
        ranks at work."""
        messages = [pickle.loads(data) for data in found]
        for rank, theirs in enumerate(messages):
            # A rank at work may come to other calls before the one that it works for: those of a step that it traces.
            if not theirs.at_work and (theirs.who, theirs.call) != (mine.who, mine.call):
                raise self._other_call(mine, rank, f"{theirs.who} in {theirs.call}")
        return messages

    def _other_call(self, mine: Message, rank: int, found: str) -> WorldError:
        return WorldError(
            where=f"rank {self.rank}",
            expected=f"rank {rank} to come to the same call as this rank, {mine.who} in {mine.call}",
            found=f"{found} there",
            todo="give every rank the same callbacks in the same order, and let every rank make the same calls of fit, open and close",
        )
