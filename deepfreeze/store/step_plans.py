"""The plans of a training's step: the section of plan.json that has the step's profile, and the files in the run's folder ``plans``
(docs/format.md, "Step plan")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepfreeze.errors import CorruptError
from deepfreeze.format import names
from deepfreeze.store import owner
from deepfreeze.store.failures import unreadable
from deepfreeze.store.plan import put_section, read_section
from deepfreeze.store.run import Run

SECTION = "step"
MAX_FILE = 1 << 24  # bytes of a plan
_MOST = 1 << 60  # bytes or steps


@dataclass(frozen=True)
class StepSection:
    """The section of plan.json about a training's step.

    - ``profile``: as ``StepProfile.to_json`` makes it. ``plan``: the name of the plan's file, None as long as there is none.
    - ``every``: steps from one checkpoint of the training to the next. ``memory``: bytes that its captures may hold, None without a bound.
      ``blocks``: bytes of them that the engine's writers take."""

    profile: Mapping[str, Any]
    plan: str | None = None
    every: int = 1
    memory: int | None = None
    blocks: int = 0


def put_profile(run: Run, section: StepSection, attempt: str | None = None) -> None:
    """Keeps the profile in plan.json. Errors as ``put_section``."""
    key = {name: section.profile[name] for name in ("structure", "world_size")}
    content = {name: getattr(section, name) for name in ("plan", "every", "memory", "blocks")}
    put_section(run, SECTION, {"key": key, "profile": dict(section.profile), **content}, attempt)


def read_profile(run: Run) -> StepSection | None:
    """The section; None if the run has no profile. CorruptError if the section is none, and errors as ``read_section``."""
    found = read_section(run, SECTION)
    if found is None:
        return None
    section = StepSection(*(found.get(name) for name in ("profile", "plan", "every", "memory", "blocks")))  # type: ignore[arg-type]
    plan, numbers = section.plan, (section.every, section.blocks, 0 if section.memory is None else section.memory)
    if (
        not isinstance(section.profile, Mapping)
        or not (plan is None or (isinstance(plan, str) and names.is_step_plan(plan)))
        or not all(type(number) is int and 0 <= number < _MOST for number in numbers)
        or section.every < 1
    ):
        raise CorruptError(
            where=run.store.where(names.PLAN_FILE),
            expected=f"a profile, the name of a plan, and the conditions of a training, in the section {SECTION}",
            found="something else",
            todo="profile the training again: Capture(profile=True)",
        )
    return section


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
