"""What a job knows of its run's committed checkpoints, for retention: their marks in memory, read once and kept in marks.json.

The holder of the run's lock changes marks, on one thread.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from deepfreeze.errors import CorruptError, Error, NewerError, NotFoundError, RunError
from deepfreeze.format import manifest_values, names
from deepfreeze.format.marks import Mark, MarksFile
from deepfreeze.format.strict_json import is_printable
from deepfreeze.notices import Notify
from deepfreeze.store import owner
from deepfreeze.store.retention import Committed, History, Verdict, judge, text_of
from deepfreeze.store.run import Run
from deepfreeze.store.tags import by_checkpoint, read_marks, tags

# The newest marks are compared with the manifests when they are read: an attempt that was killed may have committed these steps anew.
_DOUBTED = 8


@dataclass(frozen=True)
class Measurement:
    """Metrics that were taken at ``step``. ``epoch``: the number of epochs done, None in a hand-written loop."""

    step: int
    metrics: Mapping[str, float]
    epoch: int | None = None


class Marks:
    """The marks of one run's committed checkpoints."""

    def __init__(self, run: Run, marks: Mapping[int, Mark], resumed: int | None = None) -> None:
        """``resumed``: the step from which the present attempt went on."""
        self.run, self._marks, self._resumed = run, dict(marks), resumed
        self._in_flight: set[int] = set()
        self._open: list[Measurement] = []  # of which it is not known yet whose they are
        self._measured = (-1, -1 if resumed is None else resumed)  # the steps of the last two measurements
        # Given since the newest checkpoint, for one that comes later may be the newest up to their steps. Before the first of them:
        # ``_measured``, and the newest checkpoint's mark.
        self._given: list[Measurement] = []
        self._before: tuple[tuple[int, int], Mark | None] = (self._measured, None)
        self._gone: set[int] = set()  # steps that somebody has removed, or that ``retain`` has returned
        self._new: set[int] = set()  # steps that this attempt has committed, without metrics so far

    @classmethod
    def read(cls, run: Run, notify: Notify, resumed: int | None = None) -> Marks:
        """The marks of ``run``, from marks.json; and from the manifests of the checkpoints that the file does not have, and of the newest
        ones. A damaged file counts as none, of which ``notify`` is told: the metrics in it are lost. RunError if the run can't be read."""
        known: dict[int, Mark] = {}
        try:
            found = read_marks(run)
            known = {mark.step: mark for mark in found.marks} if found is not None else {}
        except NewerError:
            raise
        except CorruptError as error:
            notify("warning", f"{error} The metrics of earlier checkpoints are not known any more.")
        there = run.step_dirs()
        marks = {}
        for step in there:
            mark = known.get(step)
            if mark is None or step in there[-_DOUBTED:]:
                try:
                    mark = _of_manifest(run, step, mark)
                except NotFoundError:
                    continue  # removed since it was listed
                except RunError:
                    raise  # the store may give the manifest the next time, and the mark has the checkpoint's metrics
                except Error:
                    if mark is None:
                        continue  # no checkpoint
            marks[step] = mark
        return cls(run, marks, resumed)

    def captured(self, step: int) -> None:
        """A checkpoint of ``step`` is on its way."""
        self._in_flight.add(step)

    def failed(self, step: int) -> None:
        """The checkpoint of ``step`` will not be committed."""
        self._in_flight.discard(step)

    def committed(self, step: int, attempt: str, time: int, diverged: bool) -> None:
        """The checkpoint of ``step`` is committed."""
        self._in_flight.discard(step)
        self._take_back(step)
        self._marks[step] = Mark(step, attempt, time, diverged)
        self._new.add(step)

    def measured(self, measurement: Measurement) -> None:
        """Metrics were taken at ``measurement.step``. They belong to the newest checkpoint up to that step, if it is newer than the one of
        an earlier measurement's step. All metrics of one step belong to one checkpoint."""
        self._open.append(measurement)

    def settle(self) -> None:
        """Gives each measurement to its checkpoint. A measurement waits while a checkpoint is on its way that may be the newest one."""
        waiting = []
        for one in sorted(self._open, key=lambda one: one.step):
            last = self._step_before(one)
            if any(last < step <= one.step for step in self._in_flight):
                waiting.append(one)
                continue
            newest = max(self._marks, default=-1)
            if one.step >= newest:
                if not self._given:
                    self._before = (self._measured, self._marks.get(newest))
                self._given.append(one)
            if one.step > self._measured[1]:
                self._measured = (self._measured[1], one.step)
            known = self._marks.keys() | self._gone
            own = max((step for step in known if last < step <= one.step), default=None)
            if own is not None and own not in self._gone:  # else they come too late, and are no older one's
                before = self._marks[own]
                metrics = {**before.metrics, **one.metrics}
                self._marks[own] = replace(before, metrics=metrics, epoch=one.epoch or before.epoch, measured=one.step)
                self._new.discard(own)
        self._open = waiting

    def _step_before(self, one: Measurement) -> int:
        """The step of the measurement before ``one``: the checkpoints up to it are not ``one``'s. -1 if ``one`` comes late."""
        before, last = self._measured
        if one.epoch is not None or one.step > last:
            return last
        return before if one.step == last else -1

    def _take_back(self, step: int) -> None:
        """Takes the measurements since the newest checkpoint back from it if the new one of ``step`` is the newest up to some of them: a
        training's last step is captured after its last epoch's end."""
        if any(step <= one.step for one in self._given):
            self._measured, mark = self._before
            if mark is not None and mark.step in self._marks:
                self._marks[mark.step] = mark
            self._open = self._given + self._open
        self._given = []

    def history(self, tagged: Mapping[tuple[int, str], tuple[str, ...]], loop: bool = False) -> History:
        """The checkpoints as rules see them. ``tagged``: the tags of each (step, attempt). ``loop``: the training is a hand-written loop,
        in which metrics of any checkpoint may come later. An epoch's metrics come at its end, so of a ``fit`` only that checkpoint waits
        which may turn out to be an ended epoch's newest."""
        awaited = self._new if loop else {self._newest_up_to(one.step) for one in self._open}
        checkpoints = (
            Committed(
                step=step,
                attempt=mark.attempt,
                time=mark.time,
                diverged=mark.diverged,
                tags=tagged.get((step, mark.attempt), ()),
                metrics=mark.metrics,
                epoch=mark.epoch,
                measured=mark.measured,
                awaited=step in awaited,
            )
            for step, mark in sorted(self._marks.items())
            if step not in self._gone
        )
        return History(tuple(checkpoints), self._resumed)

    def _newest_up_to(self, step: int) -> int | None:
        return max((one for one in self._marks if one <= step), default=None)

    def judge(
        self, rule: Any, keep_pending: int = 0, loop: bool = False, uncommitted: Iterable[int] = (), now: int = 0
    ) -> Verdict:
        """Which checkpoints stay, with the tags read anew. ``uncommitted``: steps that count as committed ``now``, in seconds since 1970.
        RunError, CorruptError if the tags can't be read."""
        history = self.history(by_checkpoint(tags(self.run)), loop)
        more = [Committed(step, "", now) for step in uncommitted if step not in self._marks]
        checkpoints = sorted((*history.checkpoints, *more), key=lambda one: one.step)
        return judge(replace(history, checkpoints=tuple(checkpoints)), rule, keep_pending)

    def unwanted(self, rule: Any, keep_pending: int, loop: bool, now: int) -> dict[int, int]:
        """The steps on their way that ``retain`` would remove right after their commit, because newer ones are committed; each with the
        newest committed step. ``now``: in seconds since 1970. RunError, CorruptError if the tags can't be read."""
        newest = max(self._marks, default=-1)
        older = [step for step in self._in_flight if step < newest and step not in self._marks]
        found: dict[int, int] = {}
        tagged = by_checkpoint(tags(self.run)) if older else {}
        for step in older:
            # Each by itself: of several that are on their way some may fail.
            trial = self._copy()
            trial.committed(step, "", now, False)
            trial.settle()
            if step in judge(trial.history(tagged, loop), rule, keep_pending).remove:
                found[step] = newest
        return found

    def _copy(self) -> Marks:
        """Another object that knows the same, and may be told more."""
        one = copy.copy(self)
        vars(one).update({name: copy.copy(value) for name, value in vars(self).items() if name != "run"})
        return one

    def retain(self, rule: Any, keep_pending: int, loop: bool, write: Callable[[bytes], None]) -> Verdict:
        """Judges the checkpoints by ``rule``, has ``write`` store marks.json, and returns which stay and which go. The tags are looked at
        twice, before and after marks.json says what goes; a checkpoint goes if both looks let it go. Steps that an earlier call has let go
        and that are still there go again: they may go at any moment, so no rule counts on them. Raises RunError if the run or its tags
        can't be read, CorruptError if a tag is damaged; nothing more may be removed then."""
        self.settle()
        there = set(self.run.step_dirs())  # somebody may have removed checkpoints by hand
        self._gone |= self._marks.keys() - there
        self._marks = {step: mark for step, mark in self._marks.items() if step in there}
        self._new &= self._marks.keys()
        told = self._gone & there

        def judged(before: Verdict | None) -> Verdict:
            """Judges with the tags read anew. What ``before`` keeps stays."""
            try:
                found = self.judge(rule, keep_pending, loop)
            except BaseException:
                self._write(rule, write, told, {step: mark.reason for step, mark in self._marks.items()})
                raise  # nothing is removed, and the metrics so far are not lost with this job
            keep = dict(found.keep) if before is None else {**before.keep, **found.keep}
            going = (set(found.remove) | told) - keep.keys()
            verdict = Verdict({step: keep[step] for step in sorted(keep)}, tuple(sorted(going)))
            if before is None or verdict.remove != before.remove:
                self._write(rule, write, verdict.remove, verdict.keep)
            return verdict

        # The tags count that are there after marks.json says which steps go; see store/tags.
        verdict = judged(None)
        if verdict.remove:
            verdict = judged(verdict)
        self._gone.update(verdict.remove)
        return verdict

    def _write(
        self, rule: Any, write: Callable[[bytes], None], going: Iterable[int], reasons: Mapping[int, str]
    ) -> None:
        marks = tuple(
            replace(mark, reason=_printable(str(reasons.get(step, "")))) for step, mark in sorted(self._marks.items())
        )
        write(MarksFile(self.run.run_id, _printable(text_of(rule)), tuple(sorted(going)), marks).to_bytes())

    @property
    def metric_names(self) -> set[str]:
        """The names of all metrics that checkpoints have."""
        return {name for mark in self._marks.values() for name in mark.metrics}


def _of_manifest(run: Run, step: int, known: Mark | None = None) -> Mark:
    """The mark of a checkpoint from its manifest; ``known`` if it is the same checkpoint's. CorruptError, NotFoundError."""
    manifest = run.manifest(step)
    if known is not None and known.attempt == manifest.attempt:
        return known
    created = datetime.fromisoformat(manifest.created.replace("Z", "+00:00"))
    mark = Mark(step, manifest.attempt, max(0, int(created.timestamp())), manifest.diverged > 0)
    measured = manifest_values.measured_at(manifest.values, step)
    if measured is None:
        return mark
    # A job that was killed has not told retention of these metrics: whoever committed its checkpoint did not have them.
    epoch, metrics = measured
    return replace(mark, metrics=finite(metrics), epoch=epoch, measured=step)


def _printable(text: str) -> str:
    return "".join(one if is_printable(one) else "?" for one in text)


def finite(values: Mapping[str, Any]) -> dict[str, float]:
    """The values that are finite numbers and have printable names, as Python's own floats."""
    found = {}
    for name, value in values.items():
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):  # the last for an integer that no float has
            continue
        if isinstance(name, str) and is_printable(name) and math.isfinite(number):
            found[name] = number
    return found


def write(run: Run, data: bytes, attempt: str | None = None) -> None:
    """Writes marks.json. The caller and the errors are ``owner.put``'s."""
    owner.put(run, names.MARKS_FILE, data, attempt)
