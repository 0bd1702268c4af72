"""The levels of a checkpoint: how far it is protected. Numbers and names are those of ``df_level`` in
``native/include/deepfreeze/deepfreeze.h``, with which a test compares them; every other module takes them from here."""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """A higher level implies the lower ones. Number 2 is kept for copies on other nodes."""

    #: in the training process's memory
    CAPTURED = 0
    #: this rank's part is on the local tier
    LOCAL = 1
    #: assembled, durable and committed
    EXTERNAL = 3

    @property
    def label(self) -> str:
        """The level's name for users: an event's kind, a value of ``wait_for=`` and of ``CheckpointInfo.level``."""
        return self.name.lower()


#: label -> level, from the lowest level to the highest
LEVELS = {level.label: level for level in Level}
