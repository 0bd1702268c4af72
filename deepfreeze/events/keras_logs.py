"""Figures of checkpoints in Keras's ``logs``, beside the loss and the metrics of each epoch (``logs=True``). A listener."""

from __future__ import annotations

from typing import Any

from deepfreeze.events.event import Attempt, Blocked, Captured, Decision, Event, External


class KerasLogs:
    """Counts events until the end of an epoch. The training thread calls all methods.

    - ``deepfreeze_checkpoints``: how many checkpoints were captured in the epoch.
    - ``deepfreeze_blocking``: seconds that they held up training in the callback, on this rank.
    - ``deepfreeze_committed``: the newest committed step, 0 if there is none. It may be of an earlier epoch.
    - ``deepfreeze_interval``, with a policy that learns an interval: the steps between two checkpoints, 0 before it is known."""

    def __init__(self, learns: bool = False) -> None:
        """``learns``: whether there will be intervals. The figures of the first epoch are the columns of Keras's CSV file."""
        self._captures, self._seconds, self._committed = 0, 0.0, 0
        self._interval: int | None = 0 if learns else None

    def on(self, event: Event) -> None:
        """Counts the event."""
        if isinstance(event, Attempt):
            self._captures, self._seconds = 0, 0.0
            if not event.again:
                self._committed = event.resumed or 0
        elif isinstance(event, Captured):
            self._captures += 1
        elif isinstance(event, Blocked):
            self._seconds += event.seconds
        elif isinstance(event, External):
            self._committed = max(self._committed, event.step or 0)
        elif isinstance(event, Decision) and self._interval is not None:
            self._interval = event.after

    def enter(self, logs: dict[str, Any]) -> None:
        """Adds the figures to the ``logs`` of an epoch, and begins the next epoch."""
        logs["deepfreeze_checkpoints"] = float(self._captures)
        logs["deepfreeze_blocking"] = self._seconds
        logs["deepfreeze_committed"] = float(self._committed)
        if self._interval is not None:
            logs["deepfreeze_interval"] = float(self._interval)
        self._captures, self._seconds = 0, 0.0
