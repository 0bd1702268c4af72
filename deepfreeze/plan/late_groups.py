"""Which groups of tensors are captured late: a late group is copied beside the next step's forward and backward pass (the snapshot of
CheckFreq, section 4.1), any other one beside the rest of its own step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: ``Capture(when=)``: each group in its own step; each group late; late if nothing is left in its own step.
UPDATE, LATE, AUTO = "update", "late", "auto"
WHEN = (UPDATE, LATE, AUTO)

# From which part of the step on a copy has nothing left to run beside: the last fifth of a step is updates, for the most part.
_LAST_PART = 0.8


class LateGroups:
    """The choice of one rank. ``late``: the numbers of the groups, from 0, whose next capture is late. Ranks may choose differently,
    because their graphs have both ways of each group."""

    def __init__(self, when: str, groups: int) -> None:
        """``when``: one of ``WHEN``; ``groups``: how many there are."""
        self._when = when
        self._stays: set[int] = set()
        self.late = frozenset(range(groups)) if when == LATE else frozenset()

    def stay(self, groups: Iterable[int]) -> None:
        """These groups are never captured late from now on."""
        self._stays.update(groups)
        self.late -= self._stays

    def learn(self, notes: Sequence[tuple[float, bool]]) -> None:
        """Takes in one capture and chooses for the next one. ``notes``: for each group, at which part of the step it was updated (from 0.0
        to 1.0, the step's end; negative if that is unknown), and whether holding its tensors has cost memory: TensorFlow copies some
        variables each time that they are read, and one that is written to while it is held."""
        self.stay(group for group, (_, apart) in enumerate(notes) if apart)
        if self._when == AUTO:
            at_the_end = {group for group, (updated, _) in enumerate(notes) if updated >= _LAST_PART}
            self.late = frozenset(at_the_end - self._stays)
