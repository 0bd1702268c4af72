"""Which steps of one ``fit`` are captured: those that a policy asks for, less those that the ranks agree to skip.

An execution of the train function runs one step or several, and captures at most one. Every decision here follows from the numbers
of the steps and from what the ranks agreed on, and from nothing else. So all ranks decide alike.
"""

from __future__ import annotations

import operator
from typing import NamedTuple

from deepfreeze.errors import OptionError
from deepfreeze.plan.never import NEVER
from deepfreeze.plan.policy import Policy


class Execution(NamedTuple):
    """One execution of the train function, after it has ended.

    - ``steps``: the number of steps that it ran.
    - ``captured``: the number of the step that it captured, None if it captured none.
    - ``skipped``: the step that was due in it and that the ranks had agreed to skip, None if there was none.
    - ``missed``: the first step that was due in it and was neither captured nor skipped, None if there was none.

    Example: a checkpoint is due every 2 steps, and one execution ran steps 1 to 5. Then ``steps=5, captured=2, skipped=None, missed=4``.
    An execution can't give more than one checkpoint, so a due step behind the captured one is left out."""

    steps: int
    captured: int | None
    skipped: int | None
    missed: int | None


class Schedule:
    """``step``: the step at which the last execution ended; ``target``: the step to capture next, or ``NEVER``; ``captured``: the newest
    step that was captured, -1 if there is none. The policy is asked about steps from ``step`` on alone. Most methods ask it, and raise
    ``OptionError`` if it raises, or returns no step after the given one."""

    def __init__(self, policy: Policy, step: int, captures: bool, inside: bool = True) -> None:
        """``step``: the step at which training begins. ``captures=False``: nothing is captured until ``aim`` sets a target after the first
        execution. ``inside=False``: captures are taken between two executions only. A step that is due inside of an execution is then
        captured at that execution's end, under the number of its last step."""
        self._policy = policy
        self._inside = inside
        self._skipped, self._stopped = -1, False
        self._since, self._served = (
            0,
            NEVER,
        )  # the wish that was served last, and the step that is to be captured for it
        self._asked = 0  # the step from which on a checkpoint is wanted soon, 0 if none is
        self.step = step
        self.captured = -1
        self.target = self._due(step) if captures else NEVER

    def ended(self, step: int, inside: bool = True) -> Execution:
        """Takes in that an execution has ended at ``step``. To be called once after each execution, before the other methods.
        ``inside=False``: this execution could not capture, as with ``inside=False`` none can."""
        if self.target <= step and not (self._inside and inside):
            self.target = step
        captured = self.target if self.target <= step else None
        skipped = self._skipped if self.step < self._skipped <= step else None
        missed = None
        if not step < self.target < NEVER:
            due = self._due(max(s for s in (self.step, self._skipped, self.target) if s <= step))
            missed = due if due <= step else None
        execution = Execution(step - self.step, captured, skipped, missed)
        self.step = step
        return execution

    def aim(self, skip: int) -> bool:
        """Moves the target on if the last execution has passed it, or if it is the step to ``skip`` (0: no step). Returns whether
        the target has moved."""
        before = self.target
        if not self.step < self.target < NEVER:
            self.target = self._due(self.step)
        if self.target == skip:
            self._skipped, self.target = skip, self._due(skip)
        return self.target != before

    def serve(self, since: int, steps: int) -> bool:
        """The ranks have agreed to capture a step soon, from step ``since`` on (0: they have not). To be called after each execution as
        long as they agree on it, behind ``aim`` and ``reconsider``. ``steps``: the number of steps that the next execution runs. The step
        is behind the next execution, so that it can be skipped as any other. A step that is due before serves as well. Returns whether
        the target has moved."""
        self._asked = since
        if not since or self.captured >= since:
            return False
        soon = max(since, self.step + steps + 1)
        # A step that is due in the execution of ``soon``, or before, serves: an execution captures one step.
        if self.target <= max(soon, self.step + 2 * steps):
            return False
        self._since, self._served, self.target = since, soon, soon
        return True

    def reconsider(self) -> bool:
        """Asks the policy again for the step to capture next, because it has been told of an epoch's end. Returns whether the target has
        moved."""
        before, self.target = self.target, self._due(max(self.step, self._skipped))
        if self.step < self._served != self._skipped:
            self.target = min(self.target, self._served)
        return self.target != before

    def taken(self, step: int) -> None:
        """Takes in that ``step`` was captured."""
        self.captured = max(self.captured, step)
        if step >= self._since:
            self._served = NEVER

    def settled(self, step: int) -> bool:
        """Whether ``step``, at which the last execution ended, is captured, or is not to be captured any more."""
        return self._stopped or step in (self.captured, self._skipped)

    def asked_for(self, step: int) -> bool:
        """True if the ranks capture ``step`` because a policy has asked for a checkpoint, and they have agreed on this step."""
        return 0 < self._asked <= step

    @property
    def decided(self) -> int:
        """The last step up to which it is decided which steps are captured: the target, or without one the last execution's end. A policy
        that changes its mind decides about later steps."""
        return self.target if self.step < self.target < NEVER else self.step

    def within(self, steps: int) -> bool:
        """Whether the target is a step of the next execution, so that this execution captures it. ``steps``: the number of steps that the
        next execution runs, at least 1."""
        return self.target <= self.step + steps

    def after_next(self, steps: int) -> int | None:
        """The first step that is due in the execution after the next one, if both executions run ``steps`` steps; None if none is due."""
        due = self.target if self.step + steps < self.target < NEVER else self._due(self.step + steps)
        return due if due <= self.step + 2 * steps else None

    def stop(self) -> None:
        """From now on nothing is captured."""
        self._stopped, self.target, self._served = True, NEVER, NEVER

    def _due(self, step: int) -> int:
        """The first step after ``step`` that the policy asks for."""
        if self._stopped:
            return NEVER
        try:
            due = operator.index(self._policy.next_step(step))
        except Exception as error:
            raise self._wrong(step, f"{type(error).__name__}: {error}") from error
        if due <= step:
            raise self._wrong(step, str(due))
        return min(due, NEVER)

    def _wrong(self, step: int, found: str) -> OptionError:
        return OptionError(
            where="every=",
            expected="a policy whose next_step(step) returns a whole number above step",
            found=f"{type(self._policy).__name__}.next_step({step}): {found}"[:300],
            todo="mend the policy; deepfreeze.plan.NEVER stands for no further checkpoint",
        )
