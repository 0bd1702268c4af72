"""One rank process of ``benchmarks.ranks``: obeys commands, one JSON list to a line, and answers each with one line.

Needs the standard library and the bindings alone.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import sys
import time
from pathlib import Path
from typing import Any

import veloc_bindings as vb
from benchmarks.ranks import PAGE

LIMIT = 300.0  # seconds; no checkpoint of a benchmark takes that long unless something hangs
_BLOCK = 4 << 20


class Rank:
    """The engines of one rank, all over the same memory."""

    def __init__(self, memory: int) -> None:
        self._memory = self.allocated(max(memory, PAGE))
        # Every page is touched, and filled with something that no layer below can compress away.
        block = os.urandom(_BLOCK)
        for at in range(0, len(self._memory), _BLOCK):
            self._memory[at : at + _BLOCK] = block[: len(self._memory) - at]
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._jobs: dict[int, tuple[vb.EmbeddedEngine, Any, int]] = {}

    @staticmethod
    def allocated(nbytes: int) -> mmap.mmap:
        """Memory that captures are saved from."""
        return mmap.mmap(-1, nbytes)

    def open(self, job: int, regions: list[list[int]], options: dict[str, Any]) -> None:
        """Opens an engine for regions (nbytes, file offset), which follow one another in memory, each on a new page."""
        rows, at = [], 0
        for nbytes, offset in regions:
            rows.append((self._address + at, nbytes, offset))
            at += -(-nbytes // PAGE) * PAGE
        if at > len(self._memory):
            raise ValueError(f"the regions take {at} bytes; there are {len(self._memory)}")
        run_id = bytes.fromhex(options.pop("run_id"))
        engine = vb.EmbeddedEngine(run_id=run_id, attempt=run_id, structure=bytes(32), commit_timeout=LIMIT, **options)
        # The array is built once, as a training job does: submit is timed without it.
        self._jobs[job] = engine, vb.region_array(rows), sum(nbytes for nbytes, _ in regions)
        self._decides = options["rank"] == 0

    def save(self, job: int, step: int, count: int = 1) -> dict[str, Any]:
        """One checkpoint from submit to the end of all work on it."""
        engine, regions, nbytes = self._jobs[job]
        calls, cpu, begun = _calls(), time.process_time(), time.perf_counter()
        engine.submit(step, regions, timeout=LIMIT)
        submit = time.perf_counter() - begun
        engine.drain(LIMIT)
        cpu, calls = time.process_time() - cpu, _calls() - calls
        report = self._reports(engine)[step]
        self._remove_before(engine, step)
        times = {"submit": submit, "local": report.local_s, "written": report.written_s, "external": report.external_s}
        return {**times, "cpu": cpu, "calls": calls, "nbytes": nbytes}

    def burst(self, job: int, step: int, count: int) -> dict[str, Any]:
        """``count`` checkpoints, each submitted as soon as the engine takes it."""
        engine, regions, nbytes = self._jobs[job]
        submits, cpu, begun = [], time.process_time(), time.perf_counter()
        for n in range(count):
            asked = time.perf_counter()
            engine.submit(step + n, regions, timeout=LIMIT)
            submits.append(time.perf_counter() - asked)
        engine.drain(LIMIT)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        for done in self._reports(engine):
            self._remove_before(engine, done)
        return {"seconds": seconds, "submits": submits, "cpu": cpu, "nbytes": count * nbytes}

    def close(self, job: int) -> None:
        """Ends one engine."""
        self._jobs.pop(job)[0].close()

    def end(self) -> None:
        """Ends what is still open."""
        for job in list(self._jobs):
            self.close(job)

    def _remove_before(self, engine: vb.EmbeddedEngine, step: int) -> None:
        """Has the checkpoint before ``step`` removed, as a job with keep=1 does. Waits for it, so that it is in no figure."""
        if self._decides and step > 0:
            engine.remove([step - 1])
            engine.drain(LIMIT)

    @staticmethod
    def _reports(engine: vb.EmbeddedEngine) -> dict[int, vb.Report]:
        """Each step's last report. A failure or a notice would make the figures mean something else: neither is passed over."""
        reports = {report.step: report for report in engine.poll()}
        for report in reports.values():
            if report.code != vb.OK or report.step < 0:
                raise RuntimeError(report.message)
        return reports


def _calls() -> int:
    """Read and write calls of this process so far."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["syscr"]) + int(counts["syscw"])


def main(kind: type[Rank] = Rank) -> None:
    """The whole of a rank process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", type=int, required=True)
    rank = kind(parser.parse_args().memory)
    print(json.dumps({"value": None}), flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"value": getattr(rank, name)(**arguments)}
        except (vb.EngineFault, vb.LibraryError, RuntimeError, ValueError, OSError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    rank.end()


if __name__ == "__main__":
    main()
