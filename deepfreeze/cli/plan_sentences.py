"""A plan in words: the sentences of ``deepfreeze plan --explain``, and the words that its tables share with them."""

from __future__ import annotations

from deepfreeze import wording
from deepfreeze.plan.auto_section import AutoSection

# What each reason of ``auto_section.REASONS`` means.
REASONS = {
    "profile": "the first steps and two checkpoints were timed",
    "resumed": "an earlier job of the run, or deepfreeze tune, had found it",
    "store": "commits take longer than before",
    "copy": "checkpoints cost more than the budget allows",
    "training": "the steps have become shorter, so checkpoints weigh more",
    "slack": "checkpoints cost less than half of the budget",
    "failures": "with so few failures, more checkpoints would cost more time than they save",
}
# The bounds of ``checkfreq.Bounds``, by the names of ``Bounds.decided_by``.
BOUNDS = {
    "budget": "within the budget",
    "commit": "as fast as checkpoints are committed",
    "failures": "best for so many failures",
}
_DECIDERS = {"budget": "budget", "commit": "time to the commit", "failures": "time between failures"}


def every(steps: int) -> str:
    """An interval in words: "every step", "every 3 steps"."""
    return "every step" if steps == 1 else f"every {steps} steps"


def percent(fraction: float) -> str:
    """0.035 as "3.5 %"."""
    return f"{fraction * 100:.3g} %"


def seconds(time: float) -> str:
    """A time in seconds with three digits where it is short: "9.1 ms", "132 ms", "2.5 h"."""
    return f"{time * 1e3:.3g} ms" if time < 0.9995 else wording.duration(time)


def bounds(section: AutoSection) -> dict[str, int | None]:
    """The bounds in steps, by the names of ``BOUNDS``."""
    terms = section.terms
    return {"budget": terms.by_budget, "commit": terms.by_commit, "failures": terms.by_failures}


def deciding(section: AutoSection) -> tuple[str, ...]:
    """The names of the bounds that are the longest. The first one is ``Bounds.decided_by``."""
    return tuple(name for name, steps in bounds(section).items() if steps == section.terms.interval)


def sentences(section: AutoSection) -> list[str]:
    """The plan in sentences, one paragraph each, for people who know Keras and not the paper."""
    return [_step(section), _budget(section), _commit(section), _failures(section), _longest(section), *_now(section)]


def _step(section: AutoSection) -> str:
    profile, terms, rank = section.profile, section.terms, section.rank
    if profile.cost is not None:
        why = "as measured"
    elif terms.mode == "device":
        why = f"because rank {rank} first copies its part on the device, and training waits for that copy"
    else:
        beside = max(0.0, profile.iteration - profile.update)
        why = f"which is what is left of the copy ({seconds(profile.copy)}) after {seconds(beside)} of it went on beside a step"
    return (
        f"A step takes {seconds(profile.iteration)} on rank {rank}. A checkpoint, of which rank {rank} saves "
        f"{wording.size(profile.nbytes)}, makes the training {seconds(terms.cost)} longer, {why}."
    )


def _budget(section: AutoSection) -> str:
    terms, iteration = section.terms, section.profile.iteration
    if terms.by_budget == 1:
        shares = f"A checkpoint every step makes it {percent(terms.cost / iteration)} longer."
    else:
        fewer = terms.by_budget - 1
        shares = (
            f"A checkpoint {every(terms.by_budget)} makes it {percent(terms.cost / terms.by_budget / iteration)} longer, one "
            f"{every(fewer)} {percent(terms.cost / fewer / iteration)}."
        )
    return (
        f"The budget: checkpoints may make the training {percent(section.overhead)} longer. {shares} The budget therefore allows "
        f"a checkpoint {every(terms.by_budget)}."
    )


def _commit(section: AutoSection) -> str:
    profile, most = section.profile, section.uncommitted
    often = every(section.terms.by_commit)
    if most == 1:
        follows = f"no checkpoint has to wait for an earlier one if it is taken {often}"
    else:
        follows = f"waits for earlier checkpoints stay within the budget if one is taken {often}"
    return (
        f"The store: a checkpoint is committed {seconds(profile.copy + profile.persist)} after its step ({seconds(profile.copy)} for the "
        f"copy, {seconds(profile.persist)} from the hand-over to the commit). At most {wording.count(most, 'checkpoint')} may be under "
        f"way at once. So {follows}."
    )


def _failures(section: AutoSection) -> str:
    best = section.terms.by_failures
    if section.mtbf is None or best is None:
        return "Failures: how often the job fails was not given (mtbf), so failures set no bound."
    return (
        f"Failures: the whole job fails once in {seconds(section.mtbf)}. A checkpoint {every(best)} "
        f"({seconds(best * section.profile.iteration)}) then loses the least time to checkpoints and to repeated steps together."
    )


def _longest(section: AutoSection) -> str:
    known = [name for name, steps in bounds(section).items() if steps is not None]
    names = deciding(section)
    longest = " and ".join(f"the {_DECIDERS[name]}" for name in names)
    others = " or ".join(f"the {_DECIDERS[name]}" for name in known if name not in names)
    verdict = f"{longest} decided" + (f", not {others}" if others else ": they ask for the same")
    return f"The longest of these intervals counts: {every(section.terms.interval)}. {verdict[0].upper()}{verdict[1:]}."


def _now(section: AutoSection) -> list[str]:
    found = [
        f"From step {section.step} on the training takes a checkpoint {every(section.interval)}, because {REASONS[section.reason]}. "
        f"Rank {section.rank} asked for it, and the ranks agree on the longest interval that one of them asks for."
    ]
    if section.interval > section.terms.interval:
        found.append(
            f"That is longer than {every(section.terms.interval)}: the interval also follows the overhead that is measured while the "
            "training goes on, and is never shorter than one execution of the train function (steps_per_execution)."
        )
    elif section.interval < section.terms.interval:
        found.append(
            f"That is shorter than {every(section.terms.interval)}: an interval at most doubles at a time, and changes after four "
            "checkpoints at the earliest."
        )
    if not section.windows:
        return [*found, "The overhead in training is not known yet: it is measured over four intervals."]
    newest = section.windows[-1]
    verdict, but = ("within" if newest.overhead <= section.overhead else "more than"), ""
    if newest.low <= section.overhead < newest.overhead:
        but = ", but not beyond doubt, so the interval stays"
    return [
        *found,
        f"Up to step {newest.step} the last four checkpoints, {every(newest.interval)}, have made the training "
        f"{percent(newest.overhead)} longer (95 % interval: {percent(newest.low)} to {percent(newest.high)}): {verdict} the budget of "
        f"{percent(section.overhead)}{but}.",
    ]
