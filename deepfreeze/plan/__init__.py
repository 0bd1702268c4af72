"""When, by whom and how much is saved: policies (``every=``), what they are told, and the interfaces of all three questions.

from deepfreeze.plan import EverySteps

deepfreeze.Checkpoint("runs/mine", every=EverySteps(15))
"""

from deepfreeze.plan.capture_plan import CaptureGroup, CapturePlan
from deepfreeze.plan.observation import Observation, Progressed
from deepfreeze.plan.placement import Placement, Shard
from deepfreeze.plan.policy import NEVER, EverySteps, LearningPolicy, Policy

__all__ = [
    "NEVER",
    "CaptureGroup",
    "CapturePlan",
    "EverySteps",
    "LearningPolicy",
    "Observation",
    "Placement",
    "Policy",
    "Progressed",
    "Shard",
]
