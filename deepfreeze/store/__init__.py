"""Where checkpoints are, and who may change them. The retention rules are public names of this room, and so is what a rule of one's own
is told and asked.

from deepfreeze.store import Committed, History, Latest, judge

history = History((Committed(step=10), Committed(step=20), Committed(step=30)))
print(judge(history, Latest(2)).remove)  # (10,)
"""

from deepfreeze.store.retention import Committed, History, Verdict, Wants, judge
from deepfreeze.store.rules import Best, Epochs, Latest, Spaced, Tagged

__all__ = ["Best", "Committed", "Epochs", "History", "Latest", "Spaced", "Tagged", "Verdict", "Wants", "judge"]
