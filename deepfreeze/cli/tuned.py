"""The result of a search for an engine's setting, as people read it: for ``deepfreeze tune`` and ``deepfreeze plan``."""

from __future__ import annotations

from collections.abc import Sequence

from deepfreeze import wording
from deepfreeze.cli.output import table
from deepfreeze.cli.plan_sentences import every, seconds
from deepfreeze.plan.budget_section import BudgetSection
from deepfreeze.plan.limits import Limits
from deepfreeze.plan.pccheck import GAIN, Setting, Tried

# Each of ``pccheck.ENDS`` in words.
ENDS = {
    "gain": f"one more checkpoint on its way gains less than {GAIN * 100:g} %",
    "limit": "as many as there is room for were tried",
    "steps": "checkpoints are committed faster than steps come",
    "checkpoints": "it took as many checkpoints as a search may take",
    "time": "it took as much time as a search may take",
    "store": "a checkpoint failed with one more on its way",
    "training": "the training ended before (or is still at it): the next job searches anew",
}
_HEADS = (">on their way (N)", ">writers", ">transfers", ">taken", ">Tw", ">Tw / N", "?>longer, each", "")
LEGEND = """
N: checkpoints on their way at once (captured, and not yet committed); writers: threads of each rank that write; transfers: checkpoints that
are written to the store at once; taken: checkpoints of the trial; Tw: from the hand-over of a checkpoint to its commit, with N on their
way; Tw / N: from one commit to the next; longer, each: by how much each checkpoint of the trial has made training longer, its waits
included. A trial is "not filled" where commits were faster than steps, so that there were never N on their way.
"""


def setting(chosen: Setting) -> str:
    """A setting in words: "2 checkpoints on their way at once, 4 writers, 1 transfer at a time"."""
    way = (
        "1 checkpoint on its way at a time"
        if chosen.uncommitted == 1
        else f"{chosen.uncommitted} checkpoints on their way at once"
    )
    return f"{way}, {wording.count(chosen.writers, 'writer')}, {wording.count(chosen.transfers, 'transfer')} at a time"


def limits(found: Limits) -> str:
    """The limits in words."""
    by = f" ({found.bound})"
    return f"at most {found.most.uncommitted} on their way{by}, {found.most.writers} writers, {found.most.transfers} transfers"


def trials(tried: Sequence[Tried], chosen: Setting | None, training: bool = True) -> None:
    """Prints the table of all trials. ``training``: they were made beside a training."""
    heads = _HEADS if training else tuple(name for name in _HEADS if "longer" not in name)
    table(heads, [_row(one, chosen, training) for one in tried])


def _row(one: Tried, chosen: Setting | None, training: bool) -> tuple[str, ...]:
    numbers = (one.setting.uncommitted, one.setting.writers, one.setting.transfers, one.checkpoints)
    longer = (seconds(one.stall / one.checkpoints) if one.stall else "0 ms",) if training else ()
    verdict = "chosen" if one.setting == chosen else "" if one.is_filled else "not filled"
    return (*map(str, numbers), seconds(one.commit), seconds(one.period), *longer, verdict)


def sentences(section: BudgetSection) -> list[str]:
    """The search in sentences, one paragraph each."""
    alone = [one for one in section.tried if one.setting.uncommitted == 1]
    more = [one for one in section.tried if one.setting.uncommitted > 1]
    step = f"A step without a checkpoint took {seconds(section.iteration)} when the engine was tried."
    found = [f"The engine: {limits(section.limits)}. {step}"]
    if alone:
        fastest = min(alone, key=lambda one: one.period)
        found[0] += (
            f" One checkpoint alone is committed after {seconds(fastest.period)} with "
            f"{wording.count(fastest.setting.writers, 'writer')}: the store takes {wording.size(section.rate or 0)}/s of rank 0's part of "
            f"{wording.size(section.nbytes)}."
        )
    if more:
        tried = "; ".join(
            f"{one.setting.uncommitted} with {wording.count(one.setting.transfers, 'transfer')} at a time: {seconds(one.period)}"
            for one in more
        )
        found.append(f"Several on their way at once, and how long each checkpoint takes then (Tw / N): {tried}.")
    chosen = "No setting was chosen" if section.chosen is None else f"Chosen: {setting(section.chosen)}"
    found.append(f"{chosen}. The search {outcome(section)}.")
    return found


def outcome(section: BudgetSection) -> str:
    """The reason why the search was over."""
    return f"was over because {ENDS[section.ended]}"


def pace(tried: Tried) -> str:
    """The pace at which a setting brings checkpoints to the store."""
    return f"a checkpoint in {seconds(tried.period)} (Tw / N), each {seconds(tried.commit)} after its hand-over (Tw)"


def interval(section: BudgetSection) -> str:
    """The interval that was chosen, in words."""
    auto = section.auto
    return (
        "not chosen"
        if auto is None
        else f"{every(auto.interval)} (steps without a checkpoint take {seconds(section.iteration)})"
    )
