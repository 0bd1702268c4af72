"""The bounds within which a search for an engine's setting may choose."""

from __future__ import annotations

from dataclasses import dataclass

from deepfreeze.plan.pccheck import Setting


@dataclass(frozen=True)
class Limits:
    """``most``: the greatest numbers: of ``writers``, of ``transfers``, and of uncommitted checkpoints, as memory, slots and the bytes that
    the run may take allow them. ``behind``: how many of the uncommitted ones must be left waiting for a transfer. ``bound``: what bounds
    the uncommitted ones, as text ("memory"). ``store``: which external store it is, as text; ``options``: the other options that the
    time of a checkpoint depends on, as text."""

    most: Setting
    behind: int
    bound: str
    store: str
    options: str

    def difference(self, other: Limits) -> str | None:
        """The first difference, in words; None if there is none. ``self`` is the older one."""
        if self.store != other.store:
            return f"the external store was {self.store} and is {other.store}"
        if (self.most, self.behind) != (other.most, other.behind):
            return f"the limits were {self.most} and are {other.most}"
        if self.options != other.options:
            return f"the options were {self.options} and are {other.options}"
        return None
