"""A finding: a goal beside the figure that a benchmark found. ``benchmarks.goals`` makes a table of them."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = "not measured yet"


@dataclass(frozen=True)
class Finding:
    """A line of the table. ``what``: the thing that was measured; ``goal``, ``found``: in words; ``reached``: the figure reaches the goal;
    ``source``: the benchmark."""

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
