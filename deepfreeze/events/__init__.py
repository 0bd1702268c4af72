"""Events are frozen records of what happens in a training. Listeners are told of each event.

def show(event):
    print(event.kind, event.step)

model.fit(x, y, callbacks=[deepfreeze.Checkpoint("runs/nt3", every=15, listeners=[show])])
"""

from deepfreeze.events.event import (
    Attempt,
    Blocked,
    Captured,
    Counted,
    Decision,
    Diverged,
    End,
    Event,
    External,
    Failed,
    Local,
    Measured,
    Notice,
    Progress,
    Skipped,
    Started,
    Stop,
    Superseded,
    Unfinished,
)
from deepfreeze.events.events import Listener

__all__ = [
    "Attempt",
    "Blocked",
    "Captured",
    "Counted",
    "Decision",
    "Diverged",
    "End",
    "Event",
    "External",
    "Failed",
    "Listener",
    "Local",
    "Measured",
    "Notice",
    "Progress",
    "Skipped",
    "Started",
    "Stop",
    "Superseded",
    "Unfinished",
]
