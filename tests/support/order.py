"""The order in which a training calls the rooms below it: captures, the schedule, the saver, the agreement of the ranks, retention, events.
Imports TensorFlow."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from deepfreeze.engine.open_engine import OpenEngine
from deepfreeze.events.event import Event
from deepfreeze.events.events import Events
from deepfreeze.frameworks.tensorflow.capture import TensorFlowCapture
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.comparisons import Comparisons
from deepfreeze.plan.epoch_ends import EpochEnds
from deepfreeze.plan.job_end import JobEnd
from deepfreeze.plan.never import NEVER
from deepfreeze.plan.policy import LearningPolicy
from deepfreeze.plan.schedule import Schedule
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.retention.keeper import Keeper
from deepfreeze.retention.storage import Storage
from deepfreeze.training.training import Training

# The acts: methods that change something. A method that only answers a question may be called anywhere, so it is no act.
ACTS: dict[type, str] = {
    TensorFlowCapture: "arm check_applied forget_unfinished rest",
    Saver: "expects reserve save finish release fail last_reports close",
    OpenEngine: "hold replace poll drain tune",
    Agreement: "settle end fail give_up skip close",
    Schedule: "ended aim serve reconsider taken stop",
    EpochEnds: "execution_ended ended",
    JobEnd: "execution_ended saved committed",
    Storage: "open propose skips leaves_out hands_over admit",
    Keeper: "open measured notices finish close require_metrics",
    Comparisons: "next give_back",
    Events: "emit warn",
}
# The calls by which a callback or a loop tells its training what has happened.
CALLS = "executed epoch_begins epoch_ended pauses save_last end"


class Order:
    """Notes the calls that trainings get, and the acts of each call, in order. An act that another act calls is left out: it belongs to the
    room below. ``acts``: by the name of the call and its number, as "executed 2" for the second call of ``executed``."""

    def __init__(self) -> None:
        self.acts: dict[str, list[str]] = {}
        self._seen: Counter[str] = Counter()
        self._now: list[str] | None = None  # the acts of the newest call, None before the first call
        self._inside = False  # an act is under way
        self._skip: tuple[Any, ...] = (0,)  # the step that this rank has proposed to skip

    def of(self, calls: Sequence[str]) -> str:
        """The table's lines for these calls: each call, and its acts indented behind it."""
        return "".join(f"{call}\n" + "".join(f"    {act}\n" for act in self.acts[call]) for call in calls)

    def _call(self, name: str, function: Any) -> Any:
        @functools.wraps(function)
        def noted(*args: Any, **options: Any) -> Any:
            self._seen[name] += 1
            acts = self._now = self.acts[f"{name} {self._seen[name]}"] = []
            try:
                return function(*args, **options)
            except Exception as error:
                acts.append(f"raises {type(error).__name__}")
                raise

        return noted

    def _act(self, room: str, name: str, function: Any) -> Any:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def noted(*args: Any, **options: Any) -> Any:
            if self._inside or self._now is None or self._is_idle(name, *args):
                return function(*args, **options)
            given = signature.bind(*args, **options).arguments
            self._now.append(f"{room}.{name}{_shown(list(given.items())[1:])}")
            self._inside = True
            try:
                return function(*args, **options)
            finally:
                self._inside = False

        return noted

    def _is_idle(self, name: str, thing: Any, *args: Any) -> bool:
        """Tells whether this act would change nothing. A training may leave such an act out, so the table has no line for it."""
        if name == "skip":
            before, self._skip = self._skip, args
            return before == args
        idle = {Storage: "limited", JobEnd: "known", EpochEnds: "wanted"}.get(type(thing))
        return (idle is not None and not getattr(thing, idle)) or (name == "serve" and args[0] == 0)


@contextmanager
def noted(policy: type[LearningPolicy] | None = None) -> Iterator[Order]:
    """An ``Order`` that notes all trainings of the ``with`` block. ``policy``: a class of policies, whose methods are acts too."""
    order = Order()
    acts = {**ACTS, **({policy: "observe agree"} if policy is not None else {})}
    with ExitStack() as patches:
        for name in CALLS.split():
            patches.enter_context(mock.patch.object(Training, name, order._call(name, getattr(Training, name))))
        for owner, names in acts.items():
            for name in names.split():
                act = order._act(owner.__name__, name, getattr(owner, name))
                patches.enter_context(mock.patch.object(owner, name, act))
        yield order


def _shown(given: Sequence[tuple[str, Any]]) -> str:
    """The arguments that tell one act from another: whole numbers, the names of flags that are set, and the kind of an event."""
    shown = []
    for name, value in given:
        if isinstance(value, bool):
            shown += [name] * value
        elif isinstance(value, int):
            shown.append("NEVER" if value == NEVER else str(value))
        elif isinstance(value, Event):
            shown.append(type(value).__name__)
    return f"({', '.join(shown)})" if shown else ""
