"""From a profile of a step to the plan that is kept: chooses the size of parts, plans, and sets the baselines beside the plan."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from deepfreeze.errors import InstallError, OptionError
from deepfreeze.plan.step.baselines import baselines
from deepfreeze.plan.step.checkflow import SECONDS, planned
from deepfreeze.plan.step.equal_parts import MOST_PARTS
from deepfreeze.plan.step.greedy import greedy
from deepfreeze.plan.step.highs import Solver
from deepfreeze.plan.step.parts import cut
from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.plan.step.question import MOST_COUNTS, Question
from deepfreeze.plan.step.step_plan import StepPlan
from deepfreeze.plan.step.step_plan_file import StepPlanFile
from deepfreeze.plan.step.usage import peak
from deepfreeze.wording import size

_SMALLEST_PART = 1 << 20  # bytes
# Of MOST_PARTS: tensors are cut into equal parts, so there are more parts than bytes over the size of a part.
_SHARE = 0.75


def question(
    profile: StepProfile,
    *,
    every: int = 1,
    memory: int | None = None,
    blocks: int = 0,
    cyclic: bool = True,
    direct: bool = False,
    faster: float = 1.0,
) -> Question:
    """The question for a profile. Small tensors that are updated in one window are treated as one.

    ``memory``: bytes that captures may hold, None for as few as possible; ``blocks``: those of them that the engine's writers take;
    ``faster``: by so much the store is faster than measured. ``OptionError`` if memory leaves no room for a single part."""
    largest = part_size(profile.nbytes)
    asked = profile.question(every=every, cyclic=cyclic, direct=direct, faster=faster, at_least=largest, carry=largest)
    if asked.counts > MOST_COUNTS:
        raise OptionError(
            where=f"every={every}",
            expected=f"at most {MOST_COUNTS} counts of parts, one for each tensor in each window of a period",
            found=f"{asked.counts}, of {len(asked.tensors)} tensors and {len(asked.windows)} windows",
            todo="plan for a shorter interval: --what-if every=1, for example",
        )
    if memory is None:
        return asked
    largest = max(math.ceil(tensor.nbytes / k) for tensor, k in zip(asked.tensors, parts(asked), strict=True))
    if memory < blocks + largest:
        raise OptionError(
            where=f"memory={size(memory)}",
            expected=f"room for the writers' blocks ({size(blocks)}) and for the largest part ({size(largest)})",
            found=size(memory),
            todo=f"give at least {size(blocks + largest)}, or an engine with fewer writers or smaller chunk_bytes",
        )
    return replace(asked, memory=asked.base + memory - blocks, blocks=blocks)


def unsteady(profile: StepProfile) -> str:
    """The warning for a profile that is not steady."""
    return (
        f"the step changes from batch to batch: its time has a spread of {profile.spread:.0%} (90th percentile minus 10th, over the "
        "median). The plan counts on the shortest fifth of the steps, so that short steps have a plan too"
    )


def part_size(nbytes: int) -> int:
    """The most bytes of a part, for a checkpoint of so many: few enough parts for the solver."""
    return max(_SMALLEST_PART, math.ceil(nbytes / (_SHARE * MOST_PARTS)))


def parts(asked: Question) -> list[int]:
    """Into how many parts each tensor is cut at first."""
    return cut(asked.tensors, part_size(asked.nbytes))


def greedy_file(profile: StepProfile, asked: Question) -> StepPlanFile | None:
    """The greedy plan of a question, which needs no solver, with the baselines; None if that way finds none. Nothing is known of the
    smallest peak then, but that it is no smaller than without a checkpoint."""
    made = greedy(asked, parts(asked))
    if made is None:
        return None
    least, held = float(asked.base), peak(asked, made)
    plan = StepPlan(asked, tuple(made), bound=least, fine_bound=least, greedy=held, is_best=False)
    return StepPlanFile.of(profile, plan, baselines(asked, parts(asked)))


def plan_or_greedy(
    profile: StepProfile, asked: Question, stop: Callable[[], bool] = lambda: False
) -> tuple[StepPlanFile, InstallError | None]:
    """The plan as ``plan_file`` makes it, or without HiGHS the greedy one, with the error that says how to install HiGHS. Errors as
    ``plan_file``; ``InstallError`` if there is no greedy plan either."""
    try:
        return plan_file(profile, asked, stop), None
    except InstallError as error:
        made = greedy_file(profile, asked)
        if made is None:
            raise
        return made, error


def plan_file(profile: StepProfile, asked: Question, stop: Callable[[], bool] = lambda: False) -> StepPlanFile:
    """The plan of a question that was made for the profile, with its baselines. ``stop``: as for ``Solver``. Errors as
    ``checkflow.planned``."""
    made = planned(asked, part_size(asked.nbytes), Solver(SECONDS, stop))
    return StepPlanFile.of(profile, made, baselines(asked, parts(asked)))
