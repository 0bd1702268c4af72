"""A rank's wait for the other ranks: it has a bound, and the user hears of it while it lasts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepfreeze.errors import WaitError
from deepfreeze.notices import Notify, unheard

# Seconds after which a wait is reported, and seconds between two reports.
_FIRST, _NEXT = 20.0, 60.0
# The modules whose functions every call passes through: they say nothing about the call.
_PASSED = {"contextlib"} | {
    f"deepfreeze.ranks.{module}" for module in ("wait", "world", "bounded", "horovod_world", "mpi_world")
}


@dataclass(frozen=True)
class Patience:
    """How the ranks of one world wait for each other. ``who``: the object that waits, as the user knows it ("deepfreeze.Checkpoint");
    ``timeout``: seconds after which a rank gives a call up, if the ranks that it waits for give no sign of life; ``notify``: is told of
    long waits, by the thread that waits."""

    who: str = "deepfreeze"
    timeout: float = 600.0
    notify: Notify = unheard


PATIENT = Patience()


class Wait:
    """One wait, from construction until the other ranks have answered. The waiting thread calls all methods."""

    def __init__(
        self,
        patience: Patience,
        call: str,
        rank: int,
        size: int,
        advice: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``call``: the function that has called the other ranks, see ``name_of_call``; ``rank`` of ``size``: this process's; ``advice``:
        where to look for the ranks that are missing; ``clock``: seconds, on any clock that does not go back."""
        self._patience, self._call, self._rank, self._advice, self._clock = patience, call, rank, advice, clock
        self._others = f"rank {1 - rank}" if size == 2 else f"{size - 1} other ranks"
        self._begin = self._moved = clock()
        self._since = _clock_time(time.time())
        self._said, self._at_work = 0, ""

    def look(self) -> float:
        """Reports the wait if that is due. Returns the seconds after which ``look`` is to be called again. ``WaitError`` when no other
        rank has given a sign of life for ``timeout`` seconds."""
        now = self._clock()
        left = self._moved + self._patience.timeout - now
        if left <= 0:
            raise self._given_up(now - self._moved)
        due = self._begin + _FIRST + self._said * _NEXT - now
        if due <= 0:
            self._said += 1
            self._say(now - self._begin)
            due += _NEXT
        return max(0.0, min(left, due))

    def moved(self, ranks: Sequence[int]) -> None:
        """These ranks are at work on what they were called for. The time counts from now on."""
        self._moved = self._clock()
        self._at_work = f"At work there: {', '.join(f'rank {rank}' for rank in ranks[:8])}"

    def interrupted(self, error: BaseException) -> WaitError:
        """The error of later calls, if ``error`` has ended this wait in the middle of a call that can't be taken back."""
        return self._error(f"{type(error).__name__} in the middle of the call")

    def _say(self, seconds: float) -> None:
        waits = f"{self._patience.who} on rank {self._rank} waits for {self._others} since {self._since} ({seconds:.0f} s), in {self._call}"
        if self._at_work:
            self._patience.notify("info", f"{waits}. {self._at_work}")
        else:
            self._patience.notify(
                "warning", f"{waits}. It gives up after {self._patience.timeout:g} s (timeout=). {self._advice}"
            )

    def _given_up(self, seconds: float) -> WaitError:
        return self._error(f"no answer for {seconds:.0f} s, since {_clock_time(time.time() - seconds)}")

    def _error(self, found: str) -> WaitError:
        who = self._patience.who
        return WaitError(
            where=f"{who} on rank {self._rank}",
            expected=f"{self._others} to come to {self._call}",
            found=found,
            todo=f"see whether every rank has the {who.rpartition('.')[2]}, with the same callbacks in the same order, whether a rank has "
            "ended with an exception, and whether one rank works alone for longer (raise timeout= then, on all ranks). "
            f"{self._advice}",
        )


def _clock_time(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def name_of_call() -> str:
    """The function that calls the other ranks, for messages: "same_model.require_same_options". The ranks compare it, too."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") in _PASSED and frame.f_back is not None:
        frame = frame.f_back
    return f"{str(frame.f_globals.get('__name__')).rpartition('.')[2]}.{frame.f_code.co_name}"
