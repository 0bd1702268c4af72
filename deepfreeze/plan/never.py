"""The policy that asks for nothing."""

from __future__ import annotations

from dataclasses import dataclass

# A step that no training reaches: as the step to capture next it means that nothing will be captured.
NEVER = 2**62


@dataclass(frozen=True)
class Never:
    """No checkpoint while training goes on. The last step is still saved (``final=True``), and so is the step at which a signal, or
    the job's end, ends training (``signals=``, ``ends_at=``)."""

    def next_step(self, step: int) -> int:
        """``NEVER``."""
        return NEVER
