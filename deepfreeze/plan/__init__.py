"""When, by whom and how much is saved: policies (``every=``), what they are told, and the interfaces of all three questions.

from deepfreeze.plan import Auto, FirstOf, OnSignal

deepfreeze.Checkpoint("runs/mine", every=FirstOf(Auto(overhead=0.02), OnSignal("SIGUSR1")))
"""

from deepfreeze.plan.auto import Auto
from deepfreeze.plan.budget import Budget
from deepfreeze.plan.capture_plan import CaptureGroup, CapturePlan
from deepfreeze.plan.every import EveryEpoch, EverySeconds, EverySteps, FirstOf, OnSignal
from deepfreeze.plan.never import NEVER, Never
from deepfreeze.plan.observation import Observation, Progressed
from deepfreeze.plan.placement import Placement, Shard
from deepfreeze.plan.policy import EpochPolicy, LearningPolicy, Policy, Wish

__all__ = [
    "NEVER",
    "Auto",
    "Budget",
    "CaptureGroup",
    "CapturePlan",
    "EpochPolicy",
    "EveryEpoch",
    "EverySeconds",
    "EverySteps",
    "FirstOf",
    "LearningPolicy",
    "Never",
    "Observation",
    "OnSignal",
    "Placement",
    "Policy",
    "Progressed",
    "Shard",
    "Wish",
]
