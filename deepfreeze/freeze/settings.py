"""The options of ``deepfreeze.Checkpoint`` that the saver and its engine are given."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class SaverSettings:
    """``local``: "auto", a directory or None; ``wait_for``: the level that ``save`` waits for ("captured", "local", "external");
    ``timeout`` in seconds; ``chunk_bytes`` in bytes; ``on_divergence``: "auto", "warn" or "raise". The others are counts, as
    ``deepfreeze.Checkpoint`` describes them."""

    local: str | os.PathLike | None
    wait_for: str
    timeout: float
    in_flight: int
    slots: int
    writers: int
    keep: int
    nice: int
    chunk_bytes: int
    on_divergence: str
