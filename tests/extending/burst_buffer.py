"""A tier: the burst buffer of a batch job, and the directory to which the batch system copies it when the job ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from deepfreeze.tiers import LeftoverSlot, LocalTier


class BurstBuffer:
    """Slots are written to the node's burst buffer. What a dead job left is looked for in the copy too: there it outlives the nodes."""

    def __init__(self, buffer: Path, copy: Path, quota: int) -> None:
        """``copy``: the same directory on all nodes; it may be missing. ``quota``: the bytes of the buffer that the job has on a node."""
        self._buffer, self._copy, self._quota = LocalTier(buffer, None), LocalTier(copy, None), quota

    @classmethod
    def of_this_job(cls) -> BurstBuffer | None:
        """As the job's script has it in three variables; None in a job without a burst buffer."""
        buffer, copy, quota = map(os.environ.get, ("BB_JOB_DIR", "BB_COPY_DIR", "BB_QUOTA_BYTES"))
        return cls(Path(buffer), Path(copy), int(quota)) if buffer and copy and quota else None

    def need(self, nbytes: int) -> Path | None:
        """The buffer, if the slots keep to the quota: the file system's free bytes are those of all jobs."""
        return self._buffer.need(nbytes) if nbytes <= self._quota else None

    def leftovers(self, run_id: str, notify: Callable[[str, str], None]) -> list[LeftoverSlot]:
        """The slots that a dead job left on this node, and those that the batch system has copied."""
        return self._buffer.leftovers(run_id, notify) + self._copy.leftovers(run_id, notify)

    def rescue(self, path: str, run_dir: str | os.PathLike[str]) -> None:
        """Copies a slot into the run, from either place."""
        self._buffer.rescue(path, run_dir)

    def clear(self, run_id: str) -> None:
        """Deletes the slots in both places. All nodes do so at once, which does no harm."""
        self._buffer.clear(run_id)
        self._copy.clear(run_id)

    def discard(self, run_id: str) -> None:
        """Removes the directories that this job has made in the buffer."""
        self._buffer.discard(run_id)
