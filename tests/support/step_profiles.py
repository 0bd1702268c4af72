"""Profiles of a step that nobody has measured, and plans for them."""

from __future__ import annotations

from typing import Any

from deepfreeze.plan.step.greedy import greedy
from deepfreeze.plan.step.profile import ProfiledWindow, StepProfile
from deepfreeze.plan.step.question import SavedTensor
from deepfreeze.plan.step.step_plan import StepPlan
from deepfreeze.plan.step.usage import peak

MEGABYTE = 1_000_000


def profile(windows: int = 20, seconds: float = 0.05, rate: float = 1e9) -> StepProfile:
    """A step of one second, in which the store takes a gigabyte; 600 MB are saved."""
    phases = ["forward"] * 8 + ["backward"] * 8 + ["update"] * 3 + ["between"]
    made = tuple(
        ProfiledWindow(f"w{n}", phases[n * 20 // windows], n * seconds, seconds, seconds * 0.9, 0.1, 0.5, 0, rate, 5e9)
        for n in range(windows)
    )
    tensors = (
        *(SavedTensor(f"dense_{n}", 100 * MEGABYTE, (19 - n) * windows // 20) for n in range(5)),
        SavedTensor("bias", 99 * MEGABYTE, 18 * windows // 20),
        SavedTensor("metrics", MEGABYTE, 0, ready=windows - 1),
    )
    return StepProfile("a test", "0" * 64, 2, 0.1, made, tensors)


def plan(made: StepProfile, **options: Any) -> StepPlan:
    """The greedy plan of a profile."""
    asked = made.question(**options)
    parts = greedy(asked, [10 if tensor.nbytes > MEGABYTE else 1 for tensor in asked.tensors])
    assert parts is not None
    return StepPlan(asked, tuple(parts), 0.0, 0.0, peak(asked, parts), False)
