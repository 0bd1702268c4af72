"""The order to all ranks to try a setting of their engines: one number, so that it fits into a field of the control word."""

from __future__ import annotations

from dataclasses import dataclass

from deepfreeze.plan.pccheck import Setting

# Bits of each part, from the least significant one on. ``number`` comes last, so that the newest order is the greatest one.
_BITS = {"writers": 9, "transfers": 7, "uncommitted": 12, "checkpoints": 6, "apart": 16, "number": 12}


@dataclass(frozen=True)
class TrialOrder:
    """An order of rank 0 to all ranks.

    - ``number``: 1 or more; each order has one more than the order before it.
    - ``setting``: that every engine takes on.
    - ``checkpoints``: how many are to be taken then, one after the other; 0: the setting is the last one, and holds from now on.
    - ``apart``: steps from one of them to the next: those of one execution of the train function."""

    number: int
    setting: Setting
    checkpoints: int = 0
    apart: int = 1

    @property
    def word(self) -> int:
        """The order as one number, from 1 to 2^62 - 1."""
        parts = {**vars(self.setting), "checkpoints": self.checkpoints, "apart": self.apart, "number": self.number}
        word, shift = 0, 0
        for name, bits in _BITS.items():
            assert 0 <= parts[name] < 1 << bits, name
            word |= parts[name] << shift
            shift += bits
        return word

    @classmethod
    def of(cls, word: int) -> TrialOrder:
        """The order that has this ``word``."""
        parts = {}
        for name, bits in _BITS.items():
            parts[name], word = word & ((1 << bits) - 1), word >> bits
        setting = Setting(parts["writers"], parts["transfers"], parts["uncommitted"])
        return cls(parts["number"], setting, parts["checkpoints"], parts["apart"])

    def next_step(self, since: int, step: int) -> int | None:
        """The first step after ``step`` at which the order, which counts from the step ``since`` on, has a checkpoint taken; None behind
        the last."""
        taken = max(0, (step - since) // self.apart) + 1
        return since + taken * self.apart if taken <= self.checkpoints else None

    def last_step(self, since: int) -> int:
        """The step of the last checkpoint."""
        return since + self.checkpoints * self.apart
