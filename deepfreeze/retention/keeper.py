"""Retention of one training, on rank 0: hears of commits and metrics, asks the rule which checkpoints stay, and tells the engine which go.

A thread of its own asks, because the store may be slow: it lists the run, reads the tags and writes marks.json after a commit. The training
thread leaves a note and goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from deepfreeze.engine.target import Target
from deepfreeze.errors import Error, OptionError, RunError
from deepfreeze.events.event import Captured, Diverged, Event, External, Failed, Superseded
from deepfreeze.retention.usage import Usage, measure
from deepfreeze.store import marks
from deepfreeze.store.failures import is_full
from deepfreeze.store.marks import Marks, Measurement
from deepfreeze.store.retention import is_late, metrics_of, text_of
from deepfreeze.store.writable_run import WritableRun

# Seconds after which the engine is asked again to remove what failed steps have left.
_REMOVES_AGAIN = 1.0
_NEXT = "add it to compile(metrics=), validate each epoch, or correct the name in keep="


class Keeper:
    """Retention for the trainings of one callback or loop. A listener of events. It does nothing until ``open``, and nothing at all on
    other ranks than rank 0. The training thread calls all methods; another thread may call ``on`` in its place."""

    def __init__(self, rule: Any, keep_pending: int, loop: bool) -> None:
        """``rule``: of ``store.retention``; ``keep_pending``: how many checkpoints may wait for their metrics; ``loop``: the training is a
        hand-written loop."""
        self._rule, self._pending, self._loop = rule, keep_pending, loop
        self._worker: _Worker | None = None
        self._differ: set[int] = set()  # steps in flight at which the ranks differ
        self._seen: dict[str, None] = {}  # names of metrics
        self._measured = self._warned = False

    @property
    def most_waiting(self) -> int:
        """How many checkpoints may stay beside those that the rule keeps, because their metrics may still come. In a ``fit`` it is none:
        an epoch's metrics come at its end, and its newest checkpoint stays in any case."""
        return self._pending if self._loop and is_late(self._rule) else 0

    def open(
        self,
        target: Target,
        resumed: int,
        remove: Callable[[Iterable[int]], None],
        supersede: Callable[[int, int], None] = lambda step, by: None,
    ) -> None:
        """Starts the thread, for an attempt that goes on from the step ``resumed``. ``remove``: has committed checkpoints removed;
        ``supersede``: has the checkpoint of a step that is on its way given up for a newer one that is committed. Both are called from any
        thread, and do not wait."""
        self._differ, self._measured, self._warned = set(), False, False
        self._worker = _Worker(target, resumed, remove, supersede, self._rule, self._pending, self._loop)

    def on(self, event: Event) -> None:
        """Notes what has happened to a checkpoint."""
        worker, step = self._worker, event.step
        if worker is None or step is None:
            return
        if isinstance(event, Captured):
            worker.put(lambda known: known.captured(step), wake=False)
        elif isinstance(event, Diverged):
            self._differ.add(step)
        elif isinstance(event, (Failed, Superseded)):
            self._differ.discard(step)
            worker.put(lambda known: known.failed(step))
        elif isinstance(event, External):
            now, diverged = event.t // 10**9, step in self._differ
            self._differ.discard(step)
            worker.put(lambda known: known.committed(step, worker.attempt, now, diverged))

    def measured(self, step: int, values: Mapping[str, Any], epoch: int | None = None) -> str | None:
        """Metrics were taken at ``step``: at the end of an epoch, of which ``epoch`` is the number (1 for the first), or in a hand-written
        loop. Values that are no finite numbers count as seen, and no rule gets them. Returns a warning for the user, None if there is
        nothing to say."""
        if self._worker is None:
            return None
        self._seen |= dict.fromkeys(values)
        self._measured = True
        measurement = Measurement(step, marks.finite(values), epoch)
        self._worker.put(lambda known: known.measured(measurement))
        missing = self._missing()
        if not missing or self._warned:
            return None
        self._warned = True
        there = ", ".join(self._seen) or "none"
        return f"keep={text_of(self._rule)}: no metric {', '.join(missing)} so far; the metrics there are: {there}"

    def notices(self) -> list[str]:
        """Warnings for the user since the last call: why checkpoints could not be judged, each cause once, and what is lost."""
        return self._worker.take_notices() if self._worker is not None else []

    def judge(self) -> None:
        """Has the rule asked now, and not only after the next commit. Never waits."""
        if self._worker is not None:
            self._worker.put(lambda known: None)

    def ask_for_usage(self, uncommitted: Iterable[int], checkpoint: int, newest: int) -> None:
        """Has the thread find out what the run takes, while these steps are on their way, of ``checkpoint`` bytes each. ``newest``: the
        newest step that was handed to the engine, -1 for none. Never waits."""
        if self._worker is not None:
            self._worker.ask_for_usage(frozenset(uncommitted), checkpoint, newest)

    def usage(self, seconds: float) -> Usage | None:
        """The answer to the last question. Waits for it for at most ``seconds``; None if it is not there by then."""
        return self._worker.usage(seconds) if self._worker is not None else None

    @property
    def last_usage(self) -> Usage | None:
        """The newest answer, whichever question it is to; None if there is none yet. Never waits."""
        return self._worker.last_usage if self._worker is not None else None

    def finish(self, seconds: float) -> bool:
        """Waits, for at most ``seconds``, until the engine has been told of all that goes. Returns whether it has."""
        return self._worker is None or self._worker.finish(seconds)

    def close(self, seconds: float) -> None:
        """As ``finish``; then ends the thread. Nothing is removed after this call, also if the thread hangs in the store."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close(seconds)

    def require_metrics(self) -> None:
        """To be called at the end of a training. ``OptionError`` if the rule asks for a metric that was never seen. A ``fit`` that ended
        before its first epoch did could not see any."""
        if self._worker is not None and (self._loop or self._measured) and (missing := self._missing()):
            raise OptionError(
                where=f"keep={text_of(self._rule)}",
                expected=f"the metric {', '.join(missing)}",
                found=", ".join(self._seen) or "no metrics",
                todo="call checkpoint.log(step, name=value), or correct the name" if self._loop else _NEXT,
            )

    def _missing(self) -> list[str]:
        """The metrics that the rule asks for and that no job of the run has seen, as far as that is known: a training that is resumed
        just before its end may have none of its own."""
        known = self._worker.metric_names if self._worker is not None else None
        return [] if known is None else [n for n in metrics_of(self._rule) if n not in self._seen and n not in known]


class _Worker:
    """The thread of one attempt, and the notes that it has to work off."""

    def __init__(
        self,
        target: Target,
        resumed: int,
        remove: Callable[[Iterable[int]], None],
        supersede: Callable[[int, int], None],
        rule: Any,
        keep_pending: int,
        loop: bool,
    ) -> None:
        self._supersede = supersede
        self.attempt, self._target, self._resumed = target.attempt, target, resumed
        self._rule, self._pending, self._loop = rule, keep_pending, loop
        self._remove: Callable[[Iterable[int]], None] | None = remove
        self._removing = (
            threading.RLock()
        )  # held while ``remove`` or ``supersede`` is called, so that ``close`` can rely on its end
        self._known: Marks | None = None
        self._changed = threading.Condition()
        self._notes: list[Callable[[Marks], None]] = []
        self._unread: list[Callable[[Marks], None]] = []  # the thread's own: notes until the marks are read
        self._asked = self._done = 0  # how many times the rule is to be asked, and was
        self._ended = False
        self._notices: list[str] = []
        self._said = ""
        self._removed = -_REMOVES_AGAIN  # when what failed steps have left was to be removed last
        self._question: tuple[frozenset[int], int, int] | None = None  # the arguments of ``ask_for_usage``
        self._answers = self._questions = 0
        self.last_usage: Usage | None = None
        # Of the checkpoints from which training goes on; None until the first commit, at which marks.json is read.
        self.metric_names: frozenset[str] | None = None if resumed else frozenset()
        self._thread = threading.Thread(target=self._run, name="deepfreeze-keeper", daemon=True)
        self._thread.start()

    def put(self, note: Callable[[Marks], None], wake: bool = True) -> None:
        """Adds a note. ``wake``: the rule is asked after it."""
        with self._changed:
            self._notes.append(note)
            if wake:
                self._asked += 1
                self._changed.notify_all()

    def take_notices(self) -> list[str]:
        """The messages since the last call."""
        if not self._notices:
            return []
        with self._changed:
            notices, self._notices = self._notices, []
        return notices

    def ask_for_usage(self, uncommitted: frozenset[int], checkpoint: int, newest: int) -> None:
        """See ``Keeper.ask_for_usage``."""
        with self._changed:
            self._question = uncommitted, checkpoint, newest
            self._questions += 1
            self._changed.notify_all()

    def usage(self, seconds: float) -> Usage | None:
        """See ``Keeper.usage``."""
        with self._changed:
            answered = self._changed.wait_for(lambda: self._answers == self._questions, seconds)
            return self.last_usage if answered else None

    def finish(self, seconds: float) -> bool:
        """Waits until all notes are worked off; see ``Keeper.finish``."""
        with self._changed:
            return self._changed.wait_for(lambda: self._done == self._asked, seconds)

    def close(self, seconds: float) -> None:
        """See ``Keeper.close``."""
        own = threading.current_thread() is self._thread  # Python frees a forgotten training on any thread
        try:
            if not own:
                self.finish(seconds)
        finally:  # also after Ctrl-C: from now on this thread may not call the engine
            with self._removing:
                self._remove = None
            with self._changed:
                self._ended = True
                self._changed.notify_all()
        if not own:
            self._thread.join(seconds if self._done == self._asked else 0)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._done < self._asked or self._question is not None)
                if self._ended:
                    return
                notes, self._notes, asked = self._notes, [], self._asked
                question, self._question, questions = self._question, None, self._questions
            self._unread += notes
            said = self._tried(self._ask) if self._done < asked else ""
            usage = None
            if question is not None:
                usage, failed = self._measured(*question)
                said = said or failed
            with self._changed:
                if said and said != self._said:
                    self._notices.append(f"{self._target.run}: no older checkpoint is removed: {said}")
                self._said, self._done = said, asked
                if question is not None:
                    self.last_usage, self._answers = usage, questions
                self._changed.notify_all()

    def _tried(self, action: Callable[[], Any]) -> str:
        """Calls ``action``. Returns why it has failed, "" if it has not."""
        try:
            action()
        except Error as error:
            return str(error)
        except Exception as error:  # a rule of the user's own may raise anything
            return f"{text_of(self._rule)} has failed: {error!r}"
        return ""

    def _read(self) -> Marks:
        """The marks, read if that was not done before."""
        if self._known is None:
            self._known = Marks.read(WritableRun.open(self._target.run), self._notify, self._resumed)
            if self._resumed:
                self.metric_names = frozenset(self._known.metric_names)
        return self._known

    def _measured(self, uncommitted: frozenset[int], checkpoint: int, newest: int) -> tuple[Usage | None, str]:
        """Finds out what the run takes: None where the store does not tell, or the run changes too fast. The text says what has failed,
        "" if nothing has. A damaged tag, or a rule that raises, leaves the answer without the checkpoints that stay: there may be room all
        the same."""
        keeps: dict[int, str] = {}
        found: list[Usage | None] = []

        def judge() -> None:
            verdict = self._read().judge(self._rule, self._pending, self._loop, uncommitted, int(time.time()))
            keeps.update(verdict.keep)

        def look() -> None:
            found.append(measure(self._read().run, uncommitted, checkpoint, keeps))

        said = self._tried(judge)
        said = self._tried(look) or said
        usage = found[0] if found else None
        if usage is None:
            return None, said
        if usage.leftovers:
            said = self._tried(self._tidy) or said
        return replace(usage, newest=newest), said

    def _tidy(self) -> None:
        """Has the engine remove what failed steps and removals have left. Once is not enough: other ranks may not know yet that a step has
        failed, and their part of the step is in the same folder."""
        now = time.monotonic()
        with self._removing:
            if self._remove is not None and now - self._removed > _REMOVES_AGAIN:
                self._removed = now
                self._remove(())

    def _ask(self) -> None:
        """Works off the notes, asks the rule, and tells the engine which checkpoints go, and which need not come."""
        known = self._read()
        for note in self._unread:
            note(known)
        self._unread = []
        going = known.retain(self._rule, self._pending, self._loop, self._store).remove
        with self._removing:
            if going and self._remove is not None:
                self._remove(going)
        unwanted = known.unwanted(self._rule, self._pending, self._loop, int(time.time()))
        with self._removing:
            for step, by in unwanted.items():
                if self._remove is not None:
                    self._supersede(step, by)

    def _notify(self, level: str, message: str) -> None:
        with self._changed:
            self._notices.append(message)

    def _store(self, data: bytes) -> None:
        assert self._known is not None
        try:
            marks.write(self._known.run, data, self.attempt)
        except RunError as error:
            # On a full store removing is the remedy. A tag, which marks.json protects, can't be made there either.
            if not is_full(error.__cause__):
                raise
