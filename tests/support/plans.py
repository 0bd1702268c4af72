"""A run's ``plan.json`` as a training with ``every="auto"`` leaves it, with made-up values."""

from __future__ import annotations

from deepfreeze.plan.auto_section import AutoSection, Conditions, Decided, Window
from deepfreeze.plan.checkfreq import Profile, algorithm_1

CONDITIONS = Conditions(structure="5a" * 32, world_size=4, cores=2.0, tier="memory")
PROFILE = Profile(iteration=0.132, update=0.0, copy=0.05, persist=0.21, nbytes=205_000_000, cost=0.0091)
SECTION = AutoSection(
    conditions=CONDITIONS,
    overhead=0.035,
    mtbf=None,
    uncommitted=1,
    interval=3,
    step=62,
    reason="store",
    rank=2,
    profile=PROFILE,
    terms=algorithm_1(PROFILE, 0.035),
    decisions=(Decided(22, None, 2, "profile", 0), Decided(62, 2, 3, "store", 2)),
    windows=(Window(32, 2, 0.041, 0.029, 0.053), Window(74, 3, 0.022, -0.004, 0.048)),
)
