"""The plans of a training's step: the section of plan.json that has the step's profile, and the files in the run's folder ``plans``
(docs/format.md, "Step plan")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepfreeze.errors import CorruptError
from deepfreeze.format import names
from deepfreeze.store import owner
from deepfreeze.store.failures import unreadable
from deepfreeze.store.plan import put_section, read_section
from deepfreeze.store.run import Run

SECTION = "step"
MAX_FILE = 1 << 24  # bytes of a plan


def put_profile(run: Run, profile: Mapping[str, Any], plan: str | None = None, attempt: str | None = None) -> None:
    """Keeps the profile in plan.json. ``plan``: the name of the plan's file, None as long as there is none. Errors as ``put_section``."""
    key = {name: profile[name] for name in ("structure", "world_size")}
    put_section(run, SECTION, {"key": key, "profile": dict(profile), "plan": plan}, attempt)


def read_profile(run: Run) -> tuple[Mapping[str, Any], str | None] | None:
    """The profile and the name of its plan's file; None if the run has no profile. CorruptError if the section is none of these, and
    errors as ``read_section``."""
    section = read_section(run, SECTION)
    if section is None:
        return None
    profile, plan = section.get("profile"), section.get("plan")
    if not isinstance(profile, Mapping) or not (plan is None or (isinstance(plan, str) and names.is_step_plan(plan))):
        raise CorruptError(
            where=run.store.where(names.PLAN_FILE),
            expected=f"a profile, and the name of a plan, in the section {SECTION}",
            found="something else",
            todo="profile the training again: Capture(profile=True)",
        )
    return profile, plan


def put(run: Run, name: str, data: bytes, attempt: str | None = None) -> None:
    """Writes a plan's file. Errors as ``owner.put``."""
    owner.put(run, f"{names.STEP_PLANS_DIR}/{name}", data, attempt)


def read(run: Run, name: str) -> tuple[bytes, str] | None:
    """The bytes of a plan's file, and its path for messages; None if there is none. RunError if the system does not read it."""
    path = f"{names.STEP_PLANS_DIR}/{name}"
    try:
        return run.store.read(path, MAX_FILE), str(run.store.where(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(run.store.where(path), error) from error
