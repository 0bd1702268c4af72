"""Where shards wait until they are external: the table of tiers, and what a tier of one's own is made of.

from deepfreeze.tiers import LocalTier, add

add("nvme", lambda: LocalTier(Path("/nvme"), share=0.9), before="memory")
"""

from deepfreeze.tiers.local_tier import LocalTier
from deepfreeze.tiers.recovery_plan import LeftoverSlot
from deepfreeze.tiers.tier import Tier
from deepfreeze.tiers.tiers import TIERS, add

__all__ = ["TIERS", "LeftoverSlot", "LocalTier", "Tier", "add"]
