"""What a policy is. A policy decides at which steps a checkpoint is taken: any object with a method ``next_step``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from deepfreeze.plan.observation import Observation

if TYPE_CHECKING:
    from deepfreeze.plan.auto_section import Conditions, Decided, Window
    from deepfreeze.plan.checkfreq import Bounds, Profile
    from deepfreeze.plan.limits import Limits
    from deepfreeze.plan.pccheck import Setting


class Policy(Protocol):
    """Decides at which steps a checkpoint is taken. The result depends on the argument alone, so that all ranks decide alike without
    talking to each other. The training thread calls it, several times for each execution of the train function, also for steps that
    are far ahead or were asked for before: the call takes microseconds and changes nothing. A policy that raises, or returns no step
    after the given one, ends training with an ``OptionError`` that names it.

    When a training begins, ``str(policy)`` is compared between the ranks, unless it has an address as Python's own ``repr`` has. So a
    policy's text names all that must be the same on all ranks, and nothing that a rank has seen alone.

    A policy that is made of others has them in its attribute ``parts``: each part is then asked for what it needs to be told, and
    ``next_step`` of the whole decides. A policy that hears signals names their numbers in its attribute ``signals``."""

    def next_step(self, step: int) -> int:
        """The first step after ``step`` (0 or more) at which a checkpoint is due: greater than ``step``. ``NEVER`` if none is."""


@dataclass(frozen=True)
class Wish:
    """A rank's answer to an observation.

    - ``interval``: usually the least number of steps between two checkpoints that this rank can bear, from 0 to ``NEVER``. It holds until
      the next observation, so it is returned again as long as it stands; 0 is no wish.
    - ``now``: True: a checkpoint is to be taken soon, of a step that comes after this observation. One answer is enough. The ranks
      have to agree, so the captured step comes two or three executions later, or sooner if one is due by itself."""

    interval: int = 0
    now: bool = False


NO_WISH = Wish()


@runtime_checkable
class LearningPolicy(Policy, Protocol):
    """A policy that sees how the training goes, and may change its mind.

    What a rank sees differs from what another rank sees, and yet all must capture the same steps. So a rank only *wishes*. The ranks agree
    on the greatest interval that one of them wishes for at present, and every rank's policy is told of it after the same execution. They
    take a checkpoint soon if one of them wishes for it. Between two calls of ``agree`` ``next_step`` depends on its argument alone. The
    training thread calls the methods, between two executions.

    A policy keeps what it has learned through all trainings of its ``Checkpoint``. A job that is started again has a new policy, which
    knows what the old one had learned if the policy is an object of ``extra=`` too: it needs ``state_dict`` and ``load_state_dict``."""

    def observe(self, observation: Observation) -> Wish:
        """This rank's wish. Called after each execution, on every rank by itself, so it may not talk to other ranks; it takes
        microseconds."""

    def agree(self, interval: int, step: int) -> None:
        """The ranks have agreed on ``interval``, 1 or more: greater than the last agreed one, or smaller, if the greatest wish has fallen.
        While no rank has a wish, the last agreed one stays. Called on every rank after the same execution, and only if the agreed value is
        another one than before in this training.

        It counts from ``step`` on, which is the step that is to be captured next if one is. Of earlier steps ``next_step`` says what it
        said before."""


@dataclass(frozen=True)
class Reason:
    """Why a rank wishes for an interval. ``name``: one of ``auto_section.REASONS``; ``profile``: what the rank has measured; ``terms``:
    what follows from it."""

    name: str
    profile: Profile
    terms: Bounds


class PlanSection(Protocol):
    """A section of ``plan.json``, which nobody changes any more."""

    def to_json(self) -> dict[str, Any]:
        """The section, as objects for ``json``. Called by the thread that writes the file, because it takes milliseconds."""


@runtime_checkable
class PlannedPolicy(LearningPolicy, Protocol):
    """A policy that learns an interval, explains it, and keeps it in a section of the run's ``plan.json``, so that a job that is started
    again begins with it. The training thread calls all methods, on every rank after the same execution unless a method says otherwise.

    ``section``: the section's name. ``interval``: the steps that the ranks have agreed on last, 0 if they have not. ``newest``: the
    overhead that this rank has measured last; another object each time, None before the first."""

    section: str
    interval: int

    @property
    def newest(self) -> Window | None: ...

    def begin(
        self, conditions: Conditions, uncommitted: int, step: int, stored: Mapping[str, Any] | None
    ) -> tuple[str, str] | None:
        """A training begins under these conditions. Called when the engine is open, after the first execution of the first ``fit`` and
        before that of later ones. ``step``: at which it is; ``conditions``: those of rank 0; ``uncommitted``: how many checkpoints may be
        under way at once; ``stored``: the section of the run's ``plan.json``, None if there is none. All ranks get the same. Returns a
        message for the user if what was stored does not serve, behind its level: "warning" if it is damaged, else "info"."""

    def reason(self) -> Reason | None:
        """Why this rank wishes for its interval; None while it does not wish for any."""

    def decided(self, decision: Decided, reason: Reason) -> None:
        """The ranks have agreed on another interval, of which ``agree`` has told before. ``reason``: that of the rank whose wish
        decided."""

    def plan(self) -> PlanSection | None:
        """The section for ``plan.json``, None if nothing was decided. Rank 0 alone is asked, after ``decided`` and when ``newest`` is
        new."""

    def ended(self) -> str | None:
        """A message for the user when a training has ended; None if there is nothing to say. Rank 0 alone is asked."""


@runtime_checkable
class TuningPolicy(PlannedPolicy, Protocol):
    """A policy that tries settings of the engine while training goes on, and chooses one.

    All engines must take on a setting at the same step, so that all ranks take the same checkpoints with it. Rank 0's policy gives *orders*
    (``trial_order.TrialOrder``), which the ranks agree on. The training thread calls all methods.

    ``setting``: that the engine of every rank is to have now, the same on all ranks; None before ``begin``. ``order``: the word of the
    order that this rank gives, 0 for none; rank 0 alone gives orders. ``trials``: how many settings were tried; ``plan`` has them."""

    setting: Setting | None
    order: int

    @property
    def trials(self) -> int: ...

    def is_trial(self, step: int) -> bool:
        """True if the checkpoint of ``step`` was taken to try a setting with several on their way at once. It may fail for want of room on
        the store, and training goes on. Asked also when the trial is over: ranks hear of failures at different times."""

    def limit(self, limits: Limits) -> None:
        """Tells of the bounds of the settings, the same on all ranks. Called before each ``begin``."""

    def obey(self, word: int, step: int) -> None:
        """The ranks have agreed on the order with this word. It counts from ``step`` on, as ``agree`` does. Called on every rank after the
        same execution; the caller gives the engine the ``setting`` then."""


@runtime_checkable
class EpochPolicy(Policy, Protocol):
    """A policy that wants to know where the epochs of a ``fit`` end. Hand-written loops have no epochs and refuse it."""

    def epoch_ends(self, epoch: int, step: int | None) -> None:
        """The ``epoch`` (1 for the first one) ends at ``step``, or nobody knows where (None). The training thread calls it on every rank
        after the same execution: after the first one of each epoch, if the epoch's last step follows from it, and at the epoch's end.
        ``next_step`` may depend on it. A step that turns out to be due when its epoch has ended is captured then, between two
        executions."""


def parts(policy: Any) -> Iterator[Any]:
    """The policy itself, and all policies that it is made of."""
    yield policy
    for part in getattr(policy, "parts", ()):
        yield from parts(part)


def signals(policy: Any) -> tuple[int, ...]:
    """The numbers of the signals that the policy and its parts hear."""
    return tuple(sorted({int(number) for part in parts(policy) for number in getattr(part, "signals", ())}))
