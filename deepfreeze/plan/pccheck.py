"""How many checkpoints should be on their way at once, with how many writers, in how many transfers: the search of PCcheck (Strati,
Friedman, Klimovic, ASPLOS 2025, section 4). It talks to nobody: it says which setting is to be tried next, and is told what that has
shown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace

MOST_CHECKPOINTS = 38  # of a search; with the two of the profile before it 40
# By so much of the time of a checkpoint a setting must be better than one tried before it. Below that it is taken for noise.
GAIN = 0.05
_WRITERS = (1, 2, 4, 8)  # those below the engine's own number are tried beside it; the paper tries 1 to 4
_AGAIN = 2  # how often a setting is tried that takes no checkpoint beyond those that fill the engine
_STEADY = 2  # checkpoints beyond them, where some wait while others are written
# Why a search is over, as ``Search.ended``:
# - gain: one checkpoint more on its way gains less than ``GAIN``.
# - limit: as many as memory, storage and options allow were tried.
# - steps: checkpoints are committed faster than the training can take them.
# - checkpoints, time: the search would have taken too many checkpoints, or too much of the training's time.
# - store: a checkpoint of a trial has failed, because the store had no room for it, for example.
# - training: the training has ended.
ENDS = ("gain", "limit", "steps", "checkpoints", "time", "store", "training")


@dataclass(frozen=True)
class Setting:
    """The setting of an engine. ``writers`` (the paper's p): threads that write; ``transfers``: checkpoints that are written to the
    external store at once; ``uncommitted`` (N): checkpoints that may be captured and not yet committed. All are 1 or more."""

    writers: int
    transfers: int
    uncommitted: int

    def __str__(self) -> str:
        return f"{self.uncommitted} uncommitted, {self.writers} writers, {self.transfers} transfers"


@dataclass(frozen=True)
class Trial:
    """A setting to try: so many ``checkpoints`` are to be taken with it, one after the other, as fast as steps and setting allow. The first
    is taken when no older checkpoint is on its way."""

    setting: Setting
    checkpoints: int


@dataclass(frozen=True)
class Tried:
    """The result of a trial. Times are in seconds.

    - ``checkpoints``: how many were committed.
    - ``commit`` (Tw): from the hand-over of a checkpoint to its commit, while as many are on their way as the setting allows.
    - ``period`` (Tw / N): from one commit to the next then.
    - ``under_way``: the most that were on their way at once.
    - ``stall``: by how much the trial has lengthened the training."""

    setting: Setting
    checkpoints: int
    period: float
    commit: float
    under_way: int
    stall: float = 0.0

    @property
    def is_filled(self) -> bool:
        """True if as many checkpoints as the setting allows were on their way at once. Else the trial tells nothing of the setting."""
        return self.under_way >= self.setting.uncommitted


@dataclass(frozen=True)
class Taken:
    """A checkpoint of a trial. ``handed``: when it was handed over, in seconds; ``under_way``: how many were on their way then, with this
    one; ``commit``: seconds from the hand-over to its commit."""

    handed: float
    under_way: int
    commit: float


def result(setting: Setting, taken: Sequence[Taken], stall: float = 0.0) -> Tried:
    """The result of a trial whose checkpoints are ``taken``, at least one, in the order in which they were handed over.

    Written one after the other, those behind the first N tell, because the first N have found the engine empty. They tell Tw, as far as
    they have found N - 1 others; and N commits in succession tell how long N checkpoints take, because a step may go by before the next one
    is handed over, in which Tw is short. Where several are written at once, their commits come together, so that a few of them may look
    faster than they are. Then the time from the first hand-over to the last commit tells, of the first N or of all: it has the filling of
    the engine in it, and so is never too short."""
    most, ends = setting.uncommitted, sorted(one.handed + one.commit for one in taken)
    steady = [one.commit for one in taken[most:] if one.under_way >= most]
    if steady and setting.transfers == 1:
        period = max(statistics.median(steady), ends[-1] - ends[-1 - most]) / most
    else:
        first = taken[:most]
        begin, filled = taken[0].handed, max(one.handed + one.commit for one in first)
        period = min((filled - begin) / len(first), (ends[-1] - begin) / len(taken))
    commit = period * min(most, len(taken))
    return Tried(
        setting=setting,
        checkpoints=len(taken),
        period=max(period, 1e-9),
        commit=commit,
        under_way=max(one.under_way for one in taken),
        stall=stall,
    )


class Search:
    """Finds the setting that commits checkpoints fastest: N* and what belongs to it.

    First one checkpoint alone is timed with as many writers as the engine has (8, if nobody says otherwise), and with 1, 2 and 4. Its own
    number stays unless fewer are faster. Then so many checkpoints are taken in succession that 2, 3, ... of them are on their way at once,
    and are written one after the other, or several at a time. The least Tw / N wins. The search ends where one more gains less than 5 %.

    How it is used: as long as ``trial`` is not None, the caller tries it, and calls ``add``; or ``again`` if something else has disturbed
    the trial, or ``fail`` if a checkpoint of it has failed. ``tried``: all results, in order; ``ended``: one of ``ENDS``, None while the
    search goes on."""

    def __init__(
        self,
        most: Setting,
        iteration: float = 0.0,
        time: float = math.inf,
        behind: int = 0,
        known: Iterable[Tried] = (),
    ) -> None:
        """``most``: the greatest numbers that may be tried; ``iteration``: seconds of a step without checkpoints, 0 if there is no
        training; ``time``: seconds by which the search may lengthen the training; ``behind``: how many of the uncommitted checkpoints must
        be left waiting for a transfer; ``known``: results of an earlier search, whose settings are not tried again."""
        self.tried: list[Tried] = []
        self.ended: str | None = None
        self._most, self._iteration, self._time, self._behind = most, iteration, time, behind
        self._known = {one.setting: one for one in known}
        self._checkpoints, self._stall = 0, 0.0
        self._steps = self._trials()
        self.trial: Trial | None = None
        self._go_on(None)

    @property
    def best(self) -> Tried | None:
        """The result of the setting that has won so far, None before the first."""
        return best_of(self.tried)

    @property
    def chosen(self) -> Setting | None:
        """The setting to use: the best one's, with as many uncommitted checkpoints as leave so many waiting as must be."""
        best = self.best
        if best is None:
            return None
        least = best.setting.transfers + self._behind
        return replace(best.setting, uncommitted=max(best.setting.uncommitted, min(least, self._most.uncommitted)))

    def add(self, tried: Tried) -> None:
        """Takes in what the present trial has shown."""
        self._stall += tried.stall
        self._go_on(tried)

    def again(self) -> None:
        """The present trial is to be tried again: its checkpoints were not alone with the training."""
        assert self.trial is not None
        self._take(self.trial)

    def fail(self) -> None:
        """A checkpoint of the present trial was not committed. What was tried before counts."""
        self.end("store")

    def end(self, why: str) -> None:
        """Ends the search with what it has found so far. ``why``: one of ``ENDS``."""
        self._steps.close()
        self.trial, self.ended = None, why

    def _go_on(self, tried: Tried | None) -> None:
        try:
            trial = self._steps.send(tried)  # type: ignore[arg-type]  # None begins the search
        except StopIteration as done:
            self.trial, self.ended = None, done.value
            return
        # What a wait costs is known from the best setting so far: each checkpoint beyond those that fill the engine waits.
        over, best = trial.checkpoints - trial.setting.uncommitted, self.best
        if best is not None and self._stall + over * (best.period - self._iteration) > self._time:
            trial = replace(trial, checkpoints=trial.setting.uncommitted)  # shows less, and waits for nothing
        self._take(trial)

    def _take(self, trial: Trial) -> None:
        """The trial is the next one, if its checkpoints and the time so far are not too much."""
        self._checkpoints += trial.checkpoints
        if self._checkpoints > MOST_CHECKPOINTS:
            self.end("checkpoints")
        elif self._stall > self._time:
            self.end("time")
        else:
            self.trial = trial

    def _trials(self) -> Generator[Trial, Tried, str]:
        """Yields the trials, is sent what each has shown, and returns why the search is over."""
        yield from self._writers()
        best = self._won()
        if best.period <= self._iteration:
            return "steps"
        for uncommitted in range(2, self._most.uncommitted + 1):
            before, filled = best, False
            for transfers in self._transfers(uncommitted, before.setting.transfers):
                writers = max(before.setting.writers, min(transfers, self._most.writers))
                tried = yield from self._tried_with(Setting(writers, transfers, uncommitted))
                self.tried.append(tried)
                filled |= tried.is_filled
            if not filled:
                return "steps"
            best = self._won()
            # Where one of them must wait, two can't be written at once, and show nothing of what more could.
            if best == before and uncommitted >= 2 + self._behind:
                return "gain"
        return "limit"

    def _tried_with(self, setting: Setting) -> Generator[Trial, Tried, Tried]:
        """Tries a setting with several on their way. Where all of them are written at once, it is tried twice, and the slower result
        counts: a burst into a store that is idle now and then looks faster than it is."""
        if setting in self._known:
            return self._known[setting]
        if setting.transfers < setting.uncommitted:
            return (yield Trial(setting, setting.uncommitted + _STEADY))
        twice = []
        for _ in range(_AGAIN):
            twice.append((yield Trial(setting, setting.uncommitted)))
        slower = max(twice, key=lambda one: one.period)
        return replace(
            slower,
            checkpoints=sum(one.checkpoints for one in twice),
            under_way=min(one.under_way for one in twice),
            stall=sum(one.stall for one in twice),
        )

    def _writers(self) -> Generator[Trial, Tried, None]:
        """Times one checkpoint alone, by each number of writers: the engine's own number first, which wins if it is as fast."""
        for writers in [self._most.writers, *(fewer for fewer in _WRITERS if fewer < self._most.writers)]:
            trial = Trial(Setting(writers, 1, 1), 1)
            if trial.setting in self._known:
                self.tried.append(self._known[trial.setting])
                continue
            twice = []
            for _ in range(_AGAIN):
                twice.append((yield trial))
            # Of two the faster: the first one may have found the threads, or the store, asleep.
            faster = min(twice, key=lambda one: one.period)
            self.tried.append(replace(faster, checkpoints=_AGAIN, stall=sum(one.stall for one in twice)))

    def _won(self) -> Tried:
        best = self.best
        assert best is not None
        return best

    def _transfers(self, uncommitted: int, before: int) -> Sequence[int]:
        """The numbers of transfers to try with so many ``uncommitted`` checkpoints: those of the best setting with one fewer (``before``),
        and one more. If that setting wrote all of its checkpoints at once, but for those that must wait, this one does so too: then one
        more alone."""
        most = max(1, min(uncommitted - self._behind, self._most.transfers))
        if before >= most:
            return [most]
        return [most] if 1 < before == most - 1 else [before, before + 1]


def best_of(tried: Iterable[Tried]) -> Tried | None:
    """The result whose setting is to be used: the least ``period``, but the simpler setting where it takes at most ``GAIN`` longer. Results
    of trials that did not fill the engine don't count. ``tried``: in the order of a search: the engine's own number of writers and fewer
    transfers come first."""
    best: Tried | None = None
    filled = [one for one in tried if one.is_filled]
    for uncommitted in sorted({one.setting.uncommitted for one in filled}):
        found = _first_of_the_fastest([one for one in filled if one.setting.uncommitted == uncommitted])
        if best is None or found.period <= (1 - GAIN) * best.period:
            best = found
    return best


def _first_of_the_fastest(found: Sequence[Tried]) -> Tried:
    """The first one that is, within ``GAIN``, as fast as the fastest. ``found``: in the order of a search."""
    fastest = min(one.period for one in found)
    return next(one for one in found if (1 - GAIN) * one.period <= fastest)
