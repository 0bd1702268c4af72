"""The engine alone, as parts of ``benchmarks.concurrency`` drive it: a rank process of ``benchmarks.ranks`` whose store may be slow."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Any

import veloc_bindings as vb
from benchmarks.scaling_rank import LIMIT, Rank, main
from veloc_bindings._library import VARIABLE

_LOOK = 0.0005  # seconds between two looks at what has become of the checkpoints
_KEPT = 2  # newest checkpoints that stay


class Engines(Rank):
    """The engines of one rank, over the same memory."""

    def __init__(self, memory: int) -> None:
        super().__init__(memory)
        self._staying: dict[int, list[int]] = {}  # by job: committed steps that are to stay
        self._runs: dict[int, Path] = {}

    @staticmethod
    def allocated(nbytes: int) -> mmap.mmap:
        """In huge pages, as the engine's own memory is, in which a training's captures lie."""
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        return memory

    def open(self, job: int, regions: list[list[int]], options: dict[str, Any]) -> None:
        """See ``Rank``."""
        self._runs[job] = Path(options["run_dir"])
        super().open(job, regions, options)

    def slow(self, library: str, milliseconds: int, part: str) -> None:
        """Loads the tests' engine, which delays every call on a path that has ``part`` in it. To be called before any other command. The
        clock and the memory have no path, so they are as fast as ever."""
        os.environ[VARIABLE] = library
        os.environ["DEEPFREEZE_FAULT"] = f"delay={milliseconds}:*:{part}:1+"
        vb.version()

    def pace(self, job: int, step: int, count: int, filling: int, most: int) -> list[float]:
        """Seconds of ``count`` commits, after ``filling`` ones, while ``most`` checkpoints are on their way: another one is submitted as
        soon as one is committed. All but the newest two are removed meanwhile. And how many there are at the end, before the removals that
        are still to come."""
        engine, regions, _ = self._jobs[job]
        # The last commits that count still have as many checkpoints behind them.
        last = filling + count + most
        submitted: dict[int, float] = {}
        committed: dict[int, float] = {}
        staying = self._staying.setdefault(job, [])
        while len(committed) < last:
            for report in engine.poll():
                if report.code != vb.OK or report.step < 0:
                    raise RuntimeError(report.message)
                if report.level == vb.EXTERNAL and report.step not in committed:
                    committed[report.step] = submitted[report.step] + report.external_s
                    staying.append(report.step)
            staying.sort()  # a newer one may be committed before an older one
            engine.remove(staying[:-_KEPT])
            del staying[:-_KEPT]
            while len(submitted) < last and len(submitted) - len(committed) < most:
                engine.submit(step + len(submitted), regions, timeout=LIMIT)
                submitted[step + len(submitted)] = time.perf_counter()
            time.sleep(_LOOK)
        left = len(list(self._runs[job].glob("*step*")))
        engine.drain(LIMIT)
        times = sorted(committed.values())
        return [times[filling + count - 1] - times[filling - 1], left]


if __name__ == "__main__":
    main(Engines)
