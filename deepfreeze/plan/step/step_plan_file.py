"""The file of a plan of a step, ``RUN/plans/HASH.json`` (docs/format.md, "Step plan"). HASH says which question it answers: the same
profile and options have the same file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from deepfreeze.errors import OptionError
from deepfreeze.format import names
from deepfreeze.format.sealed_json import KEY, seal, unseal
from deepfreeze.format.strict_json import Fields
from deepfreeze.plan.step.baselines import Baseline
from deepfreeze.plan.step.checker import violations
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.profile import MOST_TENSORS, MOST_WINDOWS, StepProfile
from deepfreeze.plan.step.question import PHASES, Question, SavedTensor, StepWindow
from deepfreeze.plan.step.step_plan import StepPlan

FORMAT = 1
MAX_FILE = 1 << 24  # bytes
MOST_PARTS, MOST_EVERY = 100_000, 10_000
_HASH = 32  # digits of a file's name
_MAX_SECONDS, _MAX_BYTES = 1e12, 1 << 60
_TODO = "remove the file, and plan anew"


@dataclass(frozen=True)
class StepPlanFile:
    """The content of the file. ``profile``: the hash of the profile, 64 digits; ``structure``, ``world_size``: the profile's; ``name``:
    that of what was measured; ``baselines``: what the plan is compared with."""

    name: str
    profile: str
    structure: str
    world_size: int
    plan: StepPlan
    baselines: tuple[Baseline, ...]

    @classmethod
    def of(cls, profile: StepProfile, plan: StepPlan, baselines: list[Baseline]) -> StepPlanFile:
        """The file of a plan that was made for a profile. OptionError if the plan breaks a rule of its question: nobody is to use it."""
        wrong = violations(plan.question, plan.parts)
        if wrong:
            raise OptionError(
                where="plan",
                expected="a plan that keeps the rules of its question",
                found=wrong[0],
                todo="report it with the profile; other conditions may have a plan (--what-if)",
            )
        return cls(profile.name, profile.hash, profile.structure, profile.world_size, plan, tuple(baselines))

    @property
    def file_name(self) -> str:
        """HASH.json: 32 digits that follow from profile and question."""
        return names.step_plan(question_hash(self.profile, self.plan.question))

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        plan, asked = self.plan, self.plan.question
        content = {
            "format": FORMAT,
            "name": self.name,
            "profile": self.profile,
            "structure": self.structure,
            "world_size": self.world_size,
            **_options(asked),
            "windows": [asdict(window) for window in asked.windows],
            "tensors": [asdict(tensor) for tensor in asked.tensors],
            "parts": [asdict(part) for part in plan.parts],
            "bound": plan.bound,
            "fine_bound": plan.fine_bound,
            "greedy": plan.greedy,
            "is_best": plan.is_best,
            "baselines": [asdict(one) for one in self.baselines],
        }
        return seal(json.dumps(content, allow_nan=False).removesuffix("}"))

    @classmethod
    def from_bytes(cls, data: bytes, where: object) -> StepPlanFile:
        """Parses the file's bytes. CorruptError (at ``where``) if they are damaged, or if the plan breaks a rule of its own question;
        NewerError if a newer version wrote them."""
        top = unseal(data, where, MAX_FILE, todo=_TODO)
        top.version(FORMAT)
        top.keys(
            *("format", "name", "profile", "structure", "world_size", "every", "memory", "cyclic", "direct", "carry"),
            *("windows", "tensors", "parts", "bound", "fine_bound", "greedy", "is_best", "baselines", KEY),
        )
        asked = _question(top)
        parts = tuple(_part(one, asked) for one in _few(top, "parts", MOST_PARTS))
        wrong = violations(asked, parts)
        if wrong:
            raise top.error("a plan that keeps the rules of its question", wrong[0])
        plan = StepPlan(
            question=asked,
            parts=parts,
            bound=top.number("bound", 0.0, float(_MAX_BYTES)),
            fine_bound=top.number("fine_bound", 0.0, float(_MAX_BYTES)),
            greedy=_or_none(top, "greedy", lambda: top.integer("greedy", 0, _MAX_BYTES)),
            is_best=_truth(top, "is_best"),
        )
        return cls(
            name=top.text("name"),
            profile=top.hexadecimal("profile", 64),
            structure=top.hexadecimal("structure", 64),
            world_size=top.integer("world_size", 1, 1 << 20),
            plan=plan,
            baselines=tuple(_baseline(one) for one in _few(top, "baselines", 16)),
        )

    def check(self, profile: StepProfile, where: object) -> None:
        """OptionError if the plan was made for another profile: for another structure, another number of ranks, or another store."""
        compared = ("structure", "world_size", "profile")
        mine, others = (
            (self.structure, self.world_size, self.profile),
            (profile.structure, profile.world_size, profile.hash),
        )
        words = {"structure": "these tensors", "world_size": "this number of ranks", "profile": "this step and store"}
        for name, own, other in zip(compared, mine, others, strict=True):
            if own != other:
                raise OptionError(
                    where=where,
                    expected=f"a plan for {words[name]} ({str(other)[:12]})",
                    found=f"one for others ({str(own)[:12]})",
                    todo="plan anew: deepfreeze plan RUN --what-if every=1, for example",
                )


def question_hash(profile: str, question: Question) -> str:
    """The hash that names the file of a plan: 32 digits. ``profile``: the profile's hash."""
    text = json.dumps([profile, _options(question), [asdict(window) for window in question.windows]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH]


def _options(question: Question) -> dict[str, Any]:
    return {name: getattr(question, name) for name in ("every", "memory", "cyclic", "direct", "carry")}


def _question(top: Fields) -> Question:
    windows = tuple(_window(one) for one in _few(top, "windows", MOST_WINDOWS))
    return Question(
        windows=windows,
        tensors=tuple(_tensor(one, len(windows)) for one in _few(top, "tensors", MOST_TENSORS)),
        every=top.integer("every", 1, MOST_EVERY),
        memory=_or_none(top, "memory", lambda: top.integer("memory", 0, _MAX_BYTES)),
        cyclic=_truth(top, "cyclic"),
        direct=_truth(top, "direct"),
        carry=top.integer("carry", 0, _MAX_BYTES),
    )


def _few(given: Fields, key: str, most: int) -> list[Fields]:
    """The member as a list of at least one object and at most ``most``."""
    number = len(given.items(key))
    if not 1 <= number <= most:
        raise given.error(f"{key} to have from 1 to {most} members", str(number))
    return given.children(key)


def _own_keys(given: Fields, of: type) -> None:
    given.keys(*(one.name for one in fields(of)))


def _window(given: Fields) -> StepWindow:
    _own_keys(given, StepWindow)
    return StepWindow(
        seconds=given.number("seconds", 0.0, _MAX_SECONDS),
        capacity=given.integer("capacity", 0, _MAX_BYTES),
        busy=given.number("busy", 0.0, 1.0),
        base=given.integer("base", 0, _MAX_BYTES),
        copy_capacity=_or_none(given, "copy_capacity", lambda: given.integer("copy_capacity", 0, _MAX_BYTES)),
        name=given.text("name"),
        phase=given.one_of("phase", PHASES),
    )


def _tensor(given: Fields, windows: int) -> SavedTensor:
    _own_keys(given, SavedTensor)
    update = given.integer("update", 0, windows - 1)
    ready = _or_none(given, "ready", lambda: given.integer("ready", update, windows - 1))
    return SavedTensor(given.text("name"), given.integer("nbytes", 1, _MAX_BYTES), update, ready)


def _part(given: Fields, question: Question) -> PlannedPart:
    _own_keys(given, PlannedPart)
    # No copy is made, and nothing is written, further away from the beginning of the period than this; the rules are stricter.
    away = question.horizon + len(question.windows)
    return PlannedPart(
        tensor=given.integer("tensor", 0, len(question.tensors) - 1),
        begin=given.integer("begin", 0, _MAX_BYTES),
        nbytes=given.integer("nbytes", 0, _MAX_BYTES),
        copy=_or_none(given, "copy", lambda: given.integer("copy", -away, away)),
        write=given.integer("write", -away, away),
    )


def _baseline(given: Fields) -> Baseline:
    _own_keys(given, Baseline)
    return Baseline(
        name=given.text("name"),
        extra=_or_none(given, "extra", lambda: given.integer("extra", 0, _MAX_BYTES)),
        stall=given.number("stall", 0.0, _MAX_SECONDS),
        end=_or_none(given, "end", lambda: given.number("end", -_MAX_SECONDS, _MAX_SECONDS)),
    )


def _or_none(given: Fields, key: str, value: Any) -> Any:
    """None if the member is null, else ``value()``."""
    plain: Mapping[str, Any] = given.plain()
    return None if key in plain and plain[key] is None else value()


def _truth(given: Fields, key: str) -> bool:
    value = given.plain()[key]
    if not isinstance(value, bool):
        raise given.error(f"{key} to be true or false", type(value).__name__)
    return value
