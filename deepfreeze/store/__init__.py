"""Where checkpoints are, and who may change them. The retention rules are public names of this room, and so is what a rule of one's own
is told and asked. So is ``Store``, the interface of the place where a run is, and ``add``, which enters a further one by its scheme.

    from deepfreeze.store import Committed, History, Latest, judge

    history = History((Committed(step=10), Committed(step=20), Committed(step=30)))
    print(judge(history, Latest(2)).remove)  # (10,)
"""

from deepfreeze.store.granules import Granules
from deepfreeze.store.ranges import Ranges
from deepfreeze.store.retention import Committed, History, Verdict, Wants, judge
from deepfreeze.store.rules import Best, Epochs, Latest, Rule, Spaced, Tagged
from deepfreeze.store.store import Appender, RunLock, Store
from deepfreeze.store.stores import add

__all__ = [
    "Appender",
    "Best",
    "Committed",
    "Epochs",
    "Granules",
    "History",
    "Latest",
    "Ranges",
    "Rule",
    "RunLock",
    "Spaced",
    "Store",
    "Tagged",
    "Verdict",
    "Wants",
    "add",
    "judge",
]
