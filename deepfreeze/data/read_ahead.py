"""Batches that are made by threads before they are asked for, and handed out in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any


class ReadAhead(Iterator[Any]):
    """The results of ``make(0)`` to ``make(length - 1)``, in this order. At most ``threads`` threads make them, and at most ``ahead``
    results wait to be taken. With 0 threads ``make`` is called by the caller, when a result is asked for.

    A thread lives only while there is a result to make. When enough of them wait it ends, and the next one that is taken starts another.
    So nothing has to be closed: where nobody takes results any more there is soon no thread, and at the end of the process only a result
    that is asked for is still made. One thread at a time takes results. An exception of ``make`` is raised where its result would have
    been taken, and ends the whole."""

    def __init__(self, make: Callable[[int], Any], length: int, threads: int, ahead: int) -> None:
        self.length = length
        self._make: Callable[[int], Any] | None = make
        self._threads, self._ahead = threads, ahead
        self._made: dict[int, tuple[Any, BaseException | None]] = {}
        self._taken = self._begun = self._running = 0
        self._changed = threading.Condition()

    @property
    def finished(self) -> bool:
        """Whether all results were taken, or ``stop`` was called."""
        return self._make is None

    def stop(self) -> None:
        """Ends the whole: what is left is dropped, and a thread that is making a result ends when it has made it."""
        with self._changed:
            self._make = None
            self._made.clear()
            self._changed.notify_all()

    def __next__(self) -> Any:
        make, number = self._make, self._taken
        if make is None:
            raise StopIteration
        if self._threads:
            with self._changed:
                self._start()
                self._changed.wait_for(lambda: number in self._made or self.finished)
                if self.finished:
                    raise StopIteration
                result, failure = self._made.pop(number)
        else:
            result, failure = _result(make, number)
        with self._changed:
            self._taken += 1
            if failure is not None or self._taken == self.length:
                self.stop()
            self._start()
        if failure is not None:
            raise failure
        return result

    def _wanted(self) -> int:
        """How many more results are to be begun."""
        if self._make is None:
            return 0
        ahead = self._ahead if threading.main_thread().is_alive() else 1
        return min(self.length, self._taken + ahead) - self._begun

    def _start(self) -> None:
        """Starts threads for what is wanted. The caller holds the lock."""
        for _ in range(min(self._wanted(), self._threads - self._running)):
            threading.Thread(target=self._run, name="deepfreeze-data").start()
            self._running += 1  # the thread waits for the lock until the caller gives it back

    def _run(self) -> None:
        while True:
            with self._changed:
                make, number = self._make, self._begun
                if make is None or self._wanted() <= 0:
                    self._running -= 1
                    return
                self._begun += 1
            made = _result(make, number)
            with self._changed:
                if not self.finished:
                    self._made[number] = made
                self._changed.notify_all()


def _result(make: Callable[[int], Any], number: int) -> tuple[Any, BaseException | None]:
    try:
        return make(number), None
    except BaseException as error:
        return None, error
