"""The planner of a training's step: keeps the step's profile in the run's ``plan.json``, works the plan out in a thread of its own, and
keeps the plan in ``RUN/plans``."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from deepfreeze.errors import Error
from deepfreeze.events.events import Events
from deepfreeze.plan.step import planning
from deepfreeze.plan.step.highs import Stopped
from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.store import step_plans
from deepfreeze.store.run import Run
from deepfreeze.store.step_plans import StepSection
from deepfreeze.wording import size

_AT_END = 5.0  # seconds that the end of a training waits for the solver to stop, or for the store to take the plan


def tell(events: Events, level: str, text: str, speaks: bool) -> None:
    """Tells the user of the outcome of what ``Capture(profile=True)`` has asked for."""
    if level == "info":
        events.tell(text, said=speaks)
    else:
        events.notify(level, text)


class StepPlanner:
    """Plans one profile, on rank 0. The training thread calls all methods. ``speaks``: the outcome is a line on standard error, and not in
    Python's log alone."""

    def __init__(
        self, target: Any, profile: StepProfile, every: int, memory: int | None, blocks: int, speaks: bool
    ) -> None:
        self._target, self._profile, self._speaks = target, profile, speaks
        self._every, self._memory, self._blocks = every, memory, blocks
        self._said: tuple[str, str] | None = None  # level and text for the user
        self._closed = threading.Event()
        # A process that ends must not wait for a store that hangs.
        self._thread = threading.Thread(target=self._work, name="deepfreeze-plan", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def tell(self, events: Events) -> None:
        """Tells the user of the outcome, once."""
        said, self._said = self._said, None
        if said is not None:
            tell(events, *said, speaks=self._speaks)

    def end(self, events: Events) -> None:
        """Stops the solver. Nothing is written any more: the run's lock is given back."""
        self._closed.set()
        self._thread.join(_AT_END)
        self.tell(events)

    def _work(self) -> None:
        show = f"deepfreeze plan {self._target.run} --schedule"
        try:
            run = Run.open(self._target.run)
            if self._closed.is_set():
                return
            section = StepSection(self._profile.to_json(), None, self._every, self._memory, self._blocks)
            step_plans.put_profile(run, section, self._target.attempt)
            asked = planning.question(self._profile, every=self._every, memory=self._memory, blocks=self._blocks)
            made, without = planning.plan_or_greedy(self._profile, asked, self._closed.is_set)
            if not self._closed.is_set():
                step_plans.put(run, made.file_name, made.to_bytes(), self._target.attempt)
                step_plans.put_profile(run, replace(section, plan=made.file_name), self._target.attempt)
                plan = made.plan
                text = (
                    f"a planned step would hold {size(plan.extra)} of copies for a checkpoint every {self._every} steps"
                )
                if without is not None:
                    text = f"{text}, by the greedy plan ({without})"
                if not self._profile.is_steady:
                    text = f"{text}; {planning.unsteady(self._profile)}"
                self._said = "info", f"{text}; {show} shows the plan"
        except Stopped:
            self._said = "info", f"the training has ended before the step was planned; {show} plans it from the profile"
        except Error as error:
            self._said = "info", f"the step has no plan: {error}"
        except Exception as error:
            self._said = "warning", f"the step's plan could not be made: {type(error).__name__}: {error}"
