"""How many bytes a run may take on the external store (``storage=``): what it takes now, what its retention rule keeps of it, and whether
one more checkpoint fits. PCcheck (ASPLOS 2025, section 3) calls the bound S: the checkpoints that are kept and those on their way.

What counts are the folders of checkpoints: committed ones, partial ones, and those that are being deleted. Not counted are ``damaged/`` and
``abandoned/``, which nobody removes but a person, and the run's small files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from deepfreeze import wording
from deepfreeze.errors import OptionError
from deepfreeze.format import names
from deepfreeze.store.failures import refused
from deepfreeze.store.retention import Committed, History, judge, metrics_of, text_of
from deepfreeze.store.run import Run

_TRIES = 20  # how often a run is looked at that changes meanwhile
_MOST_NAMED = 4  # kept checkpoints that a message names
_LOOKED_AT = 64  # checkpoints of a run of which it is found out how many a rule keeps


@dataclass(frozen=True)
class Bound:
    """``limit``: bytes that the run may take; ``checkpoint``: bytes that one checkpoint takes at most, its records included."""

    limit: int
    checkpoint: int

    @property
    def most(self) -> int:
        """How many checkpoints there may be at once."""
        return self.limit // self.checkpoint

    def require(self, rule: Any, waiting: int = 0) -> None:
        """``OptionError`` unless there is room for the checkpoints that ``rule`` keeps of any run, for so many that are ``waiting`` for
        metrics, and for one more."""
        kept = most_kept(rule, _LOOKED_AT)
        if kept + waiting + 1 <= self.most:
            return
        more = "" if kept <= _LOOKED_AT else " or more"
        wait = f", beside {waiting} that may wait for their metrics (keep_pending=)" if waiting else ""
        raise OptionError(
            where="storage=",
            expected=f"room for {kept + waiting + 1}{more} checkpoints of {wording.size(self.checkpoint)}: {kept}{more} that "
            f"keep={text_of(rule)} keeps, and the one that is being written{wait}",
            found=wording.size(self.limit),
            todo="raise storage=, or keep fewer checkpoints",
        )


@dataclass(frozen=True)
class Usage:
    """The bytes that a run takes. ``uncommitted``: the steps that were on their way when the run was looked at; ``taken``: bytes of all
    other checkpoints, and of what failed and removed ones have left; ``keeps``: the steps that stay once the uncommitted ones are
    committed, each with its reason; ``kept``: bytes of these; ``leftovers``: whether failed steps, or removals, have left something;
    ``newest``: the newest step that was handed to the engine, or announced, before the run was looked at, -1 for none."""

    uncommitted: frozenset[int]
    taken: int
    keeps: Mapping[int, str]
    kept: int
    leftovers: bool = False
    newest: int = -1

    def fits(self, bound: Bound, since: int = 0) -> bool:
        """Whether the run may have one more checkpoint on its way. ``since``: how many checkpoints were handed to the engine since the run
        was looked at."""
        return self.taken + (len(self.uncommitted) + since + 1) * bound.checkpoint <= bound.limit

    def is_full(self, bound: Bound) -> bool:
        """Whether one more checkpoint will not fit, however long one waits: the retention rule keeps too much."""
        return self.kept + bound.checkpoint > bound.limit

    def warning(self, bound: Bound) -> str:
        """The message for the user if the run ``is_full``."""
        steps = sorted(self.keeps)
        named = [f"step {step} ({self.keeps[step]})" for step in steps[:_MOST_NAMED]]
        if len(steps) > _MOST_NAMED:
            named.append(f"{len(steps) - _MOST_NAMED} more")
        return (
            f"storage=: checkpoints are skipped: {wording.size(bound.limit)} have no room for one more of "
            f"{wording.size(bound.checkpoint)}, beside {wording.size(self.kept)} that stay: {', '.join(named)}. "
            "Raise storage=, keep fewer, or remove tags (deepfreeze untag)"
        )


def measure(run: Run, uncommitted: Collection[int], checkpoint: int, keeps: Mapping[int, str]) -> Usage | None:
    """What ``run`` takes now. ``uncommitted``: steps on their way, of which whatever lies there counts as one ``checkpoint``; ``keeps``: as
    in ``Usage``. None if the run changes too fast for an answer. RunError if the run can't be listed."""
    before = _listed(run)
    for _ in range(_TRIES):
        usage = _measure(run, before, uncommitted, checkpoint, keeps)
        after = _listed(run)
        # A folder that gets another name meanwhile may be missing in the list, or seem empty.
        if before == after:
            return usage
        before = after
    return None


def _measure(
    run: Run, folders: Collection[str], uncommitted: Collection[int], checkpoint: int, keeps: Mapping[int, str]
) -> Usage:
    taken, sizes, leftovers = 0, {}, False
    written = {partial[0] for name in folders if (partial := names.parse_partial_dir(name)) is not None}
    for name in folders:
        step, partial = names.parse_step_dir(name), names.parse_partial_dir(name)
        # A step that is committed and not reported yet; but not one of an earlier attempt that is being written anew.
        if step in uncommitted and step not in written:
            continue
        if partial is not None and partial[0] in uncommitted:
            continue
        nbytes = run.store.nbytes(name) or 0
        taken += nbytes
        if step is not None:
            sizes[step] = nbytes
        leftovers = leftovers or step is None
    kept = sum(sizes.get(step, checkpoint) for step in keeps)
    return Usage(frozenset(uncommitted), taken, keeps, kept, leftovers)


def _listed(run: Run) -> set[str]:
    """The names of the folders of checkpoints: committed, partial, and on their way out."""
    try:
        listed = run.store.list()
    except OSError as error:
        raise refused(run.path, error) from error
    kinds = (names.parse_step_dir, names.parse_partial_dir, names.parse_trash_dir)
    return {name for name in listed if any(kind(name) is not None for kind in kinds)}


def most_kept(rule: Any, most: int) -> int:
    """The most checkpoints that stay at once, of a run that was resumed and goes on for ``most`` checkpoints and more; ``most`` + 1 and
    more are not told apart. Metrics get ever better, or ever worse, whichever keeps more. Tags and epochs, of which nobody knows how many
    there will be, are left out."""
    return max(_most_kept(rule, most, sign) for sign in (1, -1))


def _most_kept(rule: Any, most: int, sign: int) -> int:
    history: tuple[Committed, ...] = (Committed(0, "0"),)
    found = 1
    for step in range(1, most + 2):
        metrics = dict.fromkeys(metrics_of(rule), float(sign * step))
        history = (*history, Committed(step, "1", time=step, metrics=metrics, measured=step))
        kept = judge(History(history, resumed=0), rule).keep
        history = tuple(one for one in history if one.step in kept)
        found = max(found, len(history))
        if found > most:
            break
    return found
