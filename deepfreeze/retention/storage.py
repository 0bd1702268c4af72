"""Keeps the run within the bytes that it may take (``storage=``): has training wait until there is room, or leave checkpoints out."""

from __future__ import annotations

import time
from collections.abc import Callable

from deepfreeze import wording
from deepfreeze.errors import WaitError
from deepfreeze.events.events import Events
from deepfreeze.freeze.saver import Saver
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.ranks.world import World, on_rank_0
from deepfreeze.retention.keeper import Keeper
from deepfreeze.retention.usage import Bound, Usage

# Seconds between two looks at what the run takes, while training waits for room: from short to long.
_SHORT, _LONG = 0.002, 0.05
_AGAIN = 1.0  # the same, while it does not wait
_ANSWER = 0.5  # seconds between two questions, if the store gives no answer
_JUDGES_AGAIN = 0.2  # seconds after which the retention rule is asked again, while training waits for room


class Storage:
    """The bound of one training. Without a bound, the methods do nothing and there is always room. The training thread of every rank calls
    all methods; rank 0 alone looks at the run, by way of ``Keeper``, and waits.

    Rank 0 waits for *room* before a checkpoint is captured, or handed over, while older ones are committed and removed. No other rank
    writes anything of a step before rank 0 has begun the step (``Opening.bounded``), so the run never takes more. A run is *full* where the
    retention rule keeps so much that waiting would not help. Rank 0 proposes that to all ranks, and they capture no checkpoint meanwhile.
    Several ranks still save a step that was announced before a tag has made the run full."""

    def __init__(self, limit: int | None, agreement: Agreement, world: World, keeper: Keeper, events: Events) -> None:
        """Takes a field of the control word if there is a bound. ``limit``: the option ``storage``."""
        self._limit, self._world, self._keeper, self._events = limit, world, keeper, events
        self._field = None if limit is None else agreement.field("storage")
        self._saver: Saver | None = None
        self._admitted = False  # rank 0 has waited for the next checkpoint already
        self._handed: list[int] = []  # the last steps that were handed to the engine
        self._asked = 0.0  # when the run was looked at last, in seconds
        self._said: Usage | None = None
        self._skipped = -1  # the last step that all ranks have agreed to skip because the run is full

    def open(self, saver: Saver, rule: object, take: Callable[[], None]) -> None:
        """Collective. To be called when the session's ``saver`` is open, before its first checkpoint. ``take``: takes the engine's reports,
        while rank 0 waits. ``OptionError`` if ``rule`` keeps too much for any run of these checkpoints."""
        self._saver, self._take = saver, take
        if self._limit is not None:
            on_rank_0(self._world, lambda: self._bound.require(rule, self._keeper.most_waiting))
            self._keeper.judge()  # an earlier job may have kept more
            self._ask()

    @property
    def _bound(self) -> Bound:
        assert self._limit is not None and self._saver is not None
        return Bound(self._limit, self._saver.checkpoint_nbytes)

    @property
    def limited(self) -> bool:
        """Whether there is a bound."""
        return self._limit is not None

    @property
    def _decides(self) -> bool:
        return self._limit is not None and self._world.rank == 0

    def _ask(self, armed: int | None = None) -> None:
        """Asks what the run takes. ``armed``: the step that the next execution captures, None if there is none."""
        saver = self._saver
        assert saver is not None
        self._asked = time.monotonic()
        coming = {step for step in (saver.pending, armed) if step is not None}
        newest = max([*self._handed, *coming], default=-1)
        self._keeper.ask_for_usage([*saver.engine.unfinished, *coming], self._bound.checkpoint, newest)

    def propose(self, due: int | None, armed: int | None) -> int:
        """To be called once after each execution. ``due``: the step that is due in the execution after the next one, ``armed``: the one
        that the next execution captures; None if there is none. Returns ``due`` if it is to be skipped, because the run is full, else 0."""
        if not self._decides or self._saver is None:
            return 0
        assert self._field is not None
        if due is not None and not self._surely_fits(int(armed is not None)):
            # The answer must know of every checkpoint on its way, or several would follow the last one that fits.
            self._ask(armed)
            self._keeper.usage(_ANSWER)
        elif time.monotonic() - self._asked > _AGAIN:
            self._ask(armed)  # without a due step too, for the last one may come at any time
        usage, bound = self._keeper.last_usage, self._bound
        full = usage is not None and usage.is_full(bound)
        self._field.propose(int(full))
        if full and usage is not None:
            self._warn(usage)
        return due if full and due is not None else 0

    def skips(self, step: int) -> None:
        """The ranks have agreed to skip ``step`` (0: none), for whatever reason. To be called on every rank after each execution."""
        if step and self._field is not None and self._field.agreed:
            self._skipped = step

    def leaves_out(self) -> bool:
        """Whether a step that was not announced must not be captured: the ranks have agreed that the run is full. A rank that is alone
        looks now. ``WaitError`` as ``admit``."""
        if self._field is None or self._saver is None:
            return False
        if self._world.size > 1:
            return bool(self._field.agreed)
        self._admitted = self._await_room(self._saver)
        return not self._admitted

    def has_skipped(self, step: int) -> bool:
        """Whether ``step`` was skipped for want of room in the run."""
        return step == self._skipped

    def has_room(self) -> bool:
        """Whether there was room for one more checkpoint when rank 0 looked last. Never waits."""
        return not self._decides or self._saver is None or self._surely_fits()

    def _surely_fits(self, more: int = 0) -> bool:
        """Whether the run has room for one checkpoint and so many ``more``, even if nothing was removed since the newest answer."""
        usage = self._keeper.last_usage
        if usage is None:
            return False
        self._handed = [step for step in self._handed if step >= usage.newest]
        return usage.fits(self._bound, more + sum(step > usage.newest for step in self._handed))

    def admit(self) -> None:
        """To be called before a step is captured that is due. Waits on rank 0 until there is room for its checkpoint, or the run is full.
        ``WaitError`` if nothing moves for the time-out."""
        if self._decides and self._saver is not None:
            self._admitted = self._await_room(self._saver)

    def hands_over(self, step: int) -> bool:
        """To be called before the checkpoint of ``step`` is handed over. Waits as ``admit`` unless that has found room already. Returns
        False if the checkpoint must be dropped, because the run is full and this rank is alone. Several ranks had to know of that one
        execution before: they hand it over, and skip the next ones."""
        if not self._decides or self._saver is None:
            return True
        room, self._admitted = self._admitted or self._await_room(self._saver), False
        if room or self._world.size > 1:
            self._handed.append(step)
            return True
        return False

    def _await_room(self, saver: Saver) -> bool:
        """Waits until there is room for one more checkpoint. Returns False if the run is full. The loop polls, because commits reach
        retention only through the engine's reports, which this thread takes."""
        if self._surely_fits():
            return True
        begin, pause = time.monotonic(), _SHORT
        judged = begin
        while True:
            self._take()
            self._events.flush()  # retention hears of the commits
            self._ask()
            # Not an earlier answer, which does not know of the checkpoint that was captured last.
            usage, bound = self._keeper.usage(_ANSWER), self._bound
            if usage is not None and usage.fits(bound):
                return True
            if usage is not None and not usage.uncommitted and usage.is_full(bound):
                self._warn(usage)
                return False
            if time.monotonic() - judged > _JUDGES_AGAIN:
                self._keeper.judge()  # somebody may have removed a tag
                judged = time.monotonic()
            time.sleep(pause)
            pause = min(2 * pause, _LONG)
            if saver.engine.stalled(begin):
                taken = "an unknown number of bytes" if usage is None else wording.size(usage.taken)
                raise WaitError(
                    where="storage=",
                    expected=f"room for a checkpoint of {wording.size(bound.checkpoint)} in {wording.size(bound.limit)}",
                    found=f"{taken} taken, and nothing moved for {time.monotonic() - begin:.0f} s",
                    todo="see whether the external store hangs, and whether older checkpoints can be removed there",
                )

    def _warn(self, usage: Usage) -> None:
        """Warns the user that the run is full: once for each set of checkpoints that stay."""
        if self._said is None or self._said.keeps.keys() != usage.keeps.keys():
            self._events.warn(usage.warning(self._bound))
        self._said = usage
