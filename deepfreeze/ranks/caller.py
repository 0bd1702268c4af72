"""The thread on which a rank calls the others, so that the thread that trains can give a call up: a call of Horovod's ends only when every
rank has made it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar, cast

from deepfreeze.errors import WaitError
from deepfreeze.ranks.wait import Wait

T = TypeVar("T")


class _Job(Generic[T]):
    """One call. ``done``: set when it has ended, with a ``result`` or a ``failure``."""

    def __init__(self, action: Callable[[], T]) -> None:
        self._action: Callable[[], T] | None = action
        self.done = threading.Event()
        self.result: T | None = None
        self.failure: BaseException | None = None

    def run(self) -> None:
        assert self._action is not None
        try:
            self.result = self._action()
        except BaseException as error:
            self.failure = error
        self._action = None  # and with it the values that were sent
        self.done.set()


class _Work:
    """A time in which this rank is at work on what the others wait for. ``beat`` tells them so, every ``every`` seconds until ``over``."""

    def __init__(self, beat: Callable[[], object], every: float) -> None:
        self.beat, self.every = beat, every
        self.over = threading.Event()


class Caller:
    """The thread of one process. It begins with the first call, and makes the calls one after the other, in the order in which they were
    given. After a call that was given up it can make no other one: the call may end at any time, or never.

    ``call`` and ``working`` are for one thread at a time."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | _Work] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._given_up: WaitError | None = None

    def call(self, action: Callable[[], T], wait: Wait) -> T:
        """Runs ``action`` on the thread, and returns or raises what it does. ``WaitError`` when ``wait`` says so, and from then on in each
        call at once. Another exception, such as that of Ctrl-C, may end the wait too: the call itself goes on then, before the next one."""
        if self._given_up is not None:
            raise again(self._given_up)
        job = _Job(action)
        self._put(job)
        try:
            while not job.done.wait(wait.look()):
                pass
        except WaitError as error:
            self._given_up = error
            raise
        if job.failure is not None:
            raise job.failure
        return cast(T, job.result)

    @contextlib.contextmanager
    def working(self, beat: Callable[[], object], every: float) -> Iterator[None]:
        """While the block runs, the thread calls ``beat`` each ``every`` seconds. No ``beat`` begins after the block."""
        work = _Work(beat, every)
        if self._given_up is None:
            self._put(work)
        try:
            yield
        finally:
            work.over.set()

    def _put(self, one: _Job | _Work) -> None:
        # A forked child has the object, but not the thread.
        if self._thread is None or not self._thread.is_alive():
            self._jobs = SimpleQueue()
            self._thread = threading.Thread(target=self._run, args=(self._jobs,), name="deepfreeze-ranks", daemon=True)
            self._thread.start()
        self._jobs.put(one)

    @staticmethod
    def _run(jobs: SimpleQueue[_Job | _Work]) -> None:
        work: _Work | None = None
        while True:
            try:
                one = jobs.get(timeout=None if work is None else work.every)
            except Empty:
                assert work is not None
                if work.over.is_set():
                    work = None
                else:
                    _Job(work.beat).run()  # a failure of the transport is one of the next call too, which raises it
                continue
            if isinstance(one, _Work):
                work = one
            else:
                work = None
                one.run()
            del one  # the results are the caller's


def again(error: WaitError) -> WaitError:
    """The error of a call after one that was given up."""
    return WaitError(
        where=error.where,
        expected="to reach the other ranks",
        found=f"an earlier call that was given up ({error.expected})",
        todo="end this process: the calls of the ranks no longer fit together",
    )
