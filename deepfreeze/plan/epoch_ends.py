"""Tells the policy of one ``fit`` where its epochs end."""

from __future__ import annotations

from deepfreeze.errors import OptionError
from deepfreeze.plan.fit_position import FitPosition
from deepfreeze.plan.policy import EpochPolicy, Policy, parts
from deepfreeze.plan.schedule import Execution, Schedule


class EpochEnds:
    """The ends of one ``fit``'s epochs. The training thread of every rank calls the methods, after the same executions. With a policy that
    does not want to know (``wanted``), and in a loop, they do nothing. ``OptionError`` if the policy raises."""

    def __init__(self, policy: Policy, position: FitPosition | None) -> None:
        """``position``: of the ``fit``, None in a loop."""
        self._position = position
        self._policies = [part for part in parts(policy) if isinstance(part, EpochPolicy)] if position else []
        self.wanted = len(self._policies) > 0
        self._tell(1, None)  # the policy may know of an earlier ``fit``

    def execution_ended(self, schedule: Schedule, done: Execution) -> bool:
        """To be called after each execution. Tells the policy of the epoch's last step if this was the first execution of the epoch, and
        the number of batches is known. Returns whether the step to capture next has changed."""
        if not self._policies or self._position is None:
            return False
        batches, left = self._position.first_batches, self._position.batches_left
        if not batches or not left or not done.steps or done.steps % batches:
            return False
        self._tell(self._position.epoch, schedule.step + left * (done.steps // batches))
        return schedule.reconsider()

    def ended(self, step: int) -> bool:
        """To be called when an epoch has ended at ``step``. Returns whether the policy wants this step to be saved."""
        if not self._policies or self._position is None:
            return False
        self._tell(self._position.epoch, step)
        return any(part.next_step(step - 1) == step for part in self._policies)

    def _tell(self, epoch: int, step: int | None) -> None:
        for policy in self._policies:
            try:
                policy.epoch_ends(epoch, step)
            except Exception as error:
                raise OptionError(
                    where="every=",
                    expected="a policy whose epoch_ends() takes each epoch's end",
                    found=f"{type(policy).__name__}.epoch_ends({epoch}, {step}): {type(error).__name__}: {error}"[:300],
                    todo="mend the policy",
                ) from error
