"""Which steps of one ``fit`` are captured: those that a policy asks for, less those that the ranks agree to skip.

An execution of the train function runs one step or several, and captures at most one. What is decided here follows from the
steps and from what was agreed alone, so all ranks decide alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepfreeze.plan.policy import NEVER, Policy


@dataclass(frozen=True)
class Execution:
    """What an execution has done: ``steps`` run, the step ``captured``, the step ``skipped``, and the first step that was due
    and was neither (``missed``); None for what there was not."""

    steps: int
    captured: int | None
    skipped: int | None
    missed: int | None


class Schedule:
    """``step``: where the last execution ended; ``target``: the step that is to be captured next, or ``NEVER``."""

    def __init__(self, policy: Policy, step: int, captures: bool, inside: bool = True) -> None:
        """``captures=False``: nothing is captured in the first execution. ``inside=False``: captures are taken between two
        executions only, so that of a step within one is taken at its end."""
        self._policy = policy
        self._inside = inside
        self._skipped = -1
        self.step = step
        self.target = policy.next_step(step) if captures else NEVER

    def ended(self, step: int) -> Execution:
        """An execution has ended at ``step``."""
        if self.target <= step and not self._inside:
            self.target = step
        captured = self.target if self.target <= step else None
        skipped = self._skipped if self.step < self._skipped <= step else None
        due = self._policy.next_step(max(s for s in (self.step, self._skipped, self.target) if s <= step))
        done = Execution(step - self.step, captured, skipped, due if due <= step else None)
        self.step = step
        return done

    def aim(self, skip: int) -> bool:
        """Moves the target on if it is passed, or is the step to ``skip`` (0: none). Whether it has moved."""
        if self.step < self.target < NEVER and skip != self.target:
            return False
        self.target = self._policy.next_step(self.step)
        if self.target == skip:
            self._skipped, self.target = skip, self._policy.next_step(skip)
        return True

    def within(self, steps: int) -> bool:
        """Whether the target is in the next execution, if that runs as many ``steps``."""
        return self.target <= self.step + steps

    def after_next(self, steps: int) -> int | None:
        """The step that is due in the execution after the next one, if both run as many ``steps``."""
        due = self._policy.next_step(self.step + steps)
        return due if due <= self.step + 2 * steps else None

    def stop(self) -> None:
        """Nothing more is captured."""
        self.target = NEVER
