"""What happens in a training, as frozen records (events), and those who are told of it (listeners).

def show(event):
    print(event.kind, event.step)

model.fit(x, y, callbacks=[deepfreeze.Checkpoint("runs/nt3", every=15, listeners=[show])])
"""

from deepfreeze.events.event import (
    Attempt,
    Blocked,
    Captured,
    Diverged,
    End,
    Event,
    External,
    Failed,
    Local,
    Notice,
    Skipped,
    Stop,
)
from deepfreeze.events.events import Listener

__all__ = [
    "Attempt",
    "Blocked",
    "Captured",
    "Diverged",
    "End",
    "Event",
    "External",
    "Failed",
    "Listener",
    "Local",
    "Notice",
    "Skipped",
    "Stop",
]
