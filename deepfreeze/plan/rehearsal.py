"""A rehearsal of a kill: what ``deepfreeze resume-check`` asks of the program that it starts, through four environment variables.

``deepfreeze.Checkpoint`` and ``deepfreeze.capture`` heed the variables, so that the program itself stays as it is:

- ``DEEPFREEZE_CHECK_RUN``: a directory that takes the place of the program's run. Without it the other three mean nothing.
- ``DEEPFREEZE_CHECK_STEPS``: the last step. Training ends with the execution that reaches it, and the step is committed, as after a signal.
- ``DEEPFREEZE_CHECK_AT``: a step that gets a checkpoint whatever ``every=`` says.
- ``DEEPFREEZE_CHECK_KILL``: "1": every rank kills itself by SIGKILL when the first checkpoint at that step or behind it is committed,
  unless training has begun there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deepfreeze.errors import OptionError
from deepfreeze.plan.every import FirstOf
from deepfreeze.plan.never import NEVER
from deepfreeze.plan.policy import Policy

_RUN, _STEPS, _AT, _KILL = (f"DEEPFREEZE_CHECK_{name}" for name in ("RUN", "STEPS", "AT", "KILL"))


@dataclass(frozen=True)
class AtSteps:
    """A policy: a checkpoint at each of ``steps``, which ascend."""

    steps: tuple[int, ...]

    def next_step(self, step: int) -> int:
        """The first of the steps above ``step``; ``NEVER`` behind the last."""
        return next((one for one in self.steps if one > step), NEVER)

    def __str__(self) -> str:
        return f"AtSteps({', '.join(map(str, self.steps))})"


@dataclass(frozen=True)
class Rehearsal:
    """The four variables' values: ``run``, an absolute path; ``steps``, the last step; ``at``, a step below it that gets a checkpoint;
    ``kills``, whether the program kills itself there."""

    run: str
    steps: int
    at: int
    kills: bool
    name = "resume-check"  # ``stats.stopped`` of a training that a rehearsal has ended; otherwise a signal's name stands there
    keeps = 2  # newest checkpoints that stay: an execution may capture the last step inside, and end behind it with one more
    resume = None  # the program's own

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Rehearsal | None:
        """The rehearsal that the environment asks for; None if it asks for none. ``OptionError`` for a step that is no whole number, and
        unless 0 < at < steps."""
        run = environment.get(_RUN)
        if not run:
            return None
        steps, at = (_step(environment, name) for name in (_STEPS, _AT))
        if not at < steps:
            raise _wrong(_AT, f"a step below {_STEPS}={steps}", str(at))
        return cls(run, steps, at, environment.get(_KILL) == "1")

    def environment(self) -> dict[str, str]:
        """The variables, for the program's environment."""
        return {_RUN: self.run, _STEPS: str(self.steps), _AT: str(self.at), _KILL: "1" if self.kills else "0"}

    def place(self, run: str) -> str:
        """The path of the run in place of the program's own ``run``."""
        return self.run

    def opens(self, run: str, local: object) -> None:
        """Rank 0 is about to open the run in place of the program's own ``run``."""

    def policy(self, own: Policy) -> Policy:
        """The program's ``own`` policy, with a checkpoint at both steps besides. Ranks compare the text of their policies, so a rank whose
        environment lacks the variables is named when training begins."""
        return FirstOf(own, AtSteps((self.at, self.steps)))

    def ends(self, step: int) -> bool:
        """Whether the rehearsal ends training when ``step`` is done."""
        return step >= self.steps

    def kills_at(self, step: int, began: int) -> bool:
        """Whether the program kills itself when the checkpoint of ``step`` is committed. ``began``: the step at which training has
        begun."""
        return self.kills and began < self.at <= step


def _step(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not (text.isascii() and text.isdigit() and 0 < int(text) < NEVER):
        raise _wrong(name, "a step, 1 or more", text or "nothing")
    return int(text)


def _wrong(name: str, expected: str, found: str) -> OptionError:
    todo = "unset DEEPFREEZE_CHECK_RUN, or let deepfreeze resume-check set all four variables"
    return OptionError(where=name, expected=expected, found=found[:100], todo=todo)
