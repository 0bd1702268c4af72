"""``plan.json``: what a run's trainings have measured and decided, so that the next one need not begin anew (docs/format.md, "Plan")."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deepfreeze.errors import CorruptError
from deepfreeze.format.names import is_id
from deepfreeze.format.sealed_json import KEY, seal, unseal
from deepfreeze.format.strict_json import Fields, short

FORMAT = 1
MAX_PLAN = 1 << 20  # bytes: a bound on what a reader allocates
SECTION_KEY = "key"  # the member of each section that says when the section holds
REPLACED = "remove the file, or let the next training replace it"

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}\Z")


@dataclass(frozen=True)
class PlanFile:
    """The content of plan.json. ``sections``: by name; each is an object for ``json`` with a member ``key``, itself an object. One room
    writes and reads a section, and the others keep it as it is."""

    run_id: str
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The file's bytes. ValueError if ``from_bytes`` would refuse them."""
        if not is_id(self.run_id):
            raise ValueError(f"a plan has a run id, and {self.run_id!r} is none")
        try:
            _check(self.sections, "plan.json")
            text = _text({"format": FORMAT, "run_id": self.run_id, "sections": self.sections})
        except (CorruptError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"no plan can have these sections: {error}") from None
        data = seal(text.removesuffix("}"))
        if len(data) > MAX_PLAN:
            raise ValueError(f"a plan has at most {MAX_PLAN} bytes, and this one would have {len(data)}")
        return data

    @classmethod
    def from_bytes(cls, data: bytes, where: object) -> PlanFile:
        """Parses the file's bytes. CorruptError (at ``where``) if they are damaged, NewerError if a newer version wrote them."""
        top = unseal(data, where, MAX_PLAN, todo=REPLACED)
        top.version(FORMAT)
        top.keys("format", "run_id", "sections", KEY)
        sections = top.child("sections").plain()
        _check(sections, where)
        try:
            _text(sections)  # whoever keeps a section writes it again
        except (ValueError, RecursionError) as error:
            raise top.error("sections of finite numbers", str(error)[:80]) from None
        return cls(top.hexadecimal("run_id", 32), sections)

    def with_section(self, name: str, section: Mapping[str, Any]) -> PlanFile:
        """A plan whose section ``name`` is this one, and whose others are as they were."""
        return PlanFile(self.run_id, {**self.sections, name: section})


def _text(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _check(sections: Mapping[str, Any], where: object) -> None:
    """CorruptError unless each section has a name that can be one, and a key."""
    for name, section in sections.items():
        if not isinstance(name, str) or not _NAME.match(name):
            expected = "names of sections of 1 to 64 lower-case letters, digits, _ and -, a letter first"
            raise CorruptError(where=where, expected=expected, found=short(name), todo=REPLACED)
        Fields(section, where, f"sections.{name}", REPLACED).child(SECTION_KEY)
