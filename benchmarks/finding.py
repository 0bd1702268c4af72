"""What was found about a goal, for the table of all goals: ``benchmarks.goals``."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = "not measured yet"


@dataclass(frozen=True)
class Finding:
    """One goal: in words, what was found in words, whether that reaches it, and which benchmark says so."""

    what: str
    goal: str
    found: str
    reached: bool
    source: str
    sure: bool = True  # another run would say the same
    applies: bool = True  # False: what the goal asks for did not come about

    @property
    def verdict(self) -> str:
        """For the table."""
        if self.found == UNKNOWN or not self.applies:
            return "-"
        return ("yes" if self.reached else "**no**") + ("" if self.sure else ", within noise")
