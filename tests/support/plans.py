"""A run's ``plan.json`` as a training with ``every="auto"``, or with ``Budget``, leaves it, with made-up values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deepfreeze.plan.auto_section import AutoSection, Conditions, Decided, Window
from deepfreeze.plan.budget_section import BudgetSection
from deepfreeze.plan.checkfreq import Profile, algorithm_1
from deepfreeze.plan.limits import Limits
from deepfreeze.plan.pccheck import Setting, Tried
from tests.support import configs, files

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

BUDGET = BudgetSection(
    conditions=CONDITIONS,
    limits=Limits(Setting(8, 4, 4), 0, "memory and slots", "lustre at /scratch", "io=direct, state=full"),
    ended="gain",
    iteration=0.132,
    nbytes=205_000_000,
    chosen=Setting(4, 2, 2),
    tried=(
        Tried(Setting(4, 1, 1), 2, 0.21, 0.21, 1, 0.02),
        Tried(Setting(4, 2, 2), 4, 0.12, 0.24, 2, 0.01),
        Tried(Setting(4, 3, 3), 6, 0.118, 0.354, 3),
    ),
    auto=SECTION,
)


def section_json(**changes: Any) -> dict[str, Any]:
    """The section as it is in the file, some of its members changed."""
    return {**json.loads(json.dumps(SECTION.to_json())), **changes}


def budget_json(**changes: Any) -> dict[str, Any]:
    """The section ``budget`` as it is in the file, some of its members changed."""
    return {**json.loads(json.dumps(BUDGET.to_json())), **changes}


def plan_bytes(run_id: str = files.RUN_ID, **sections: Any) -> bytes:
    """The bytes of a plan.json with these sections, or else with ``auto``, by hand from docs/format.md."""
    whole = {"format": 1, "run_id": run_id, "sections": sections or {"auto": section_json()}}
    return configs.sign(json.dumps(whole).encode())


def write_plan(run: Path, data: bytes | None = None) -> Path:
    """Writes plan.json."""
    file = run / "plan.json"
    file.write_bytes(plan_bytes() if data is None else data)
    return file
