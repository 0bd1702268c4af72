"""One rank, without TensorFlow: obeys commands, one JSON list to a line, and answers each with one line."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import veloc_bindings as vb
from tests.support import content, faults
from tests.support.child import die_with_parent


class Process:
    def __init__(self) -> None:
        self.engine: vb.EmbeddedEngine | None = None
        self.held: dict[int, bytearray] = {}

    def open(self, attempt: int, captured: bool = False, first: int = 10, keep: int = 2, **options):
        """keep: rank 0 has all but so many of the newest checkpoints removed, as Python's retention does it. captured: shards go
        through a capture area, as a training's graph does it; all steps have as many digits as first, for what is private has its
        place too."""
        self.attempt, self.options, self.keep = attempt, options, keep
        self.area = vb.Area() if captured else None
        self.engine = vb.EmbeddedEngine.open(
            run_id=content.RUN_ID, attempt=content.attempt_id(attempt), structure=content.STRUCTURE, **options
        )
        if self.area is not None:
            private = len(content.private_bytes(attempt, first, options["rank"]))
            self.places = self.engine.plan([(0, b - a, a) for a, b in self.pieces()], private)
            self.area.set_group(0, [(0, a, b - a, at) for (a, b), at in zip(self.pieces(), self.places)])
            self.engine.attach(self.area, 60)

    def faults(self, plan: str = ""):
        """Of engines opened from now on."""
        faults.plan(plan)

    def pieces(self):
        return content.pieces(self.options["rank"], self.options["world"], self.options["file_size"])

    def submit(self, step: int, timeout: float = 60):
        rank, size = self.options["rank"], self.options["file_size"]
        data = content.model_bytes(self.attempt, step, size)
        view = memoryview(data)
        regions = [(view[a:b], b - a, a) for a, b in self.pieces()]
        if self.area is not None:
            self.area.capture(0, [(ctypes.addressof(ctypes.c_char.from_buffer(data)), size)])
            base = self.area.collect().base
            regions = [(base + at, b - a, a) for (a, b), at in zip(self.pieces(), self.places)]
        self.engine.submit(step, regions, content.private_bytes(self.attempt, step, rank), timeout)
        self.held[step] = data

    def scribble(self, step: int):
        """What a training process does with memory that was given back."""
        data = self.held.pop(step)
        data[:] = bytes(len(data))

    def wait(self, step: int, level: int, timeout: float = 60):
        self.engine.wait(step, level, timeout)

    def poll(self):
        return [report._asdict() for report in self.engine.poll()]

    def drain(self, timeout: float = 60):
        self.engine.drain(timeout)
        self._retain()
        self.engine.drain(timeout)

    def _retain(self):
        if self.options["rank"] == 0:
            names = os.listdir(self.options["run_dir"])
            steps = sorted(int(name[5:]) for name in names if name.startswith("step-") and name[5:].isdigit())
            self.engine.remove(steps[: -self.keep])

    def close(self):
        self.engine.close()
        if self.area is not None:
            self.area.close()
        self.held.clear()

    def stream(self, first: int, last: int, log: str, pause: float = 0):
        """Submits one step after the other; FILE gets a line "LEVEL STEP" for all that the engine reports, as it does: it
        outlives the process. A step that fails is followed by the next."""
        said = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for step in range(first, last + 1):
            try:
                self.submit(step)
            except vb.EngineFault as fault:
                os.write(said, f"refused {step} {fault.message}\n".encode())
            self._say(said)
            time.sleep(pause)
        with contextlib.suppress(vb.EngineFault):  # it is in the reports too
            self.drain()
        self._say(said)
        os.close(said)

    def _say(self, said: int) -> None:
        for report in self.engine.poll():
            if report.step >= 0 and report.released:
                self.held.pop(report.step, None)
            level = {vb.LOCAL: "local", vb.EXTERNAL: "external"}.get(report.level, "captured")
            if report.code != vb.OK:
                level = "failed"
            if report.step < 0:
                level = "notice"
            os.write(said, f"{level} {report.step} {report.message}\n".encode())
            if level == "external":
                self._retain()

    def counts(self):
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def main() -> None:
    die_with_parent()
    process = Process()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"value": getattr(process, name)(**arguments)}
        except vb.EngineFault as fault:
            answer = {"code": fault.code, "message": fault.message}
        print(json.dumps(answer), flush=True)


main()
