"""How busy is this machine? python -m benchmarks.noise --help

In turns for half a minute: a copy in memory by one thread, and a new file until fdatasync is over; and what other processes and
virtual machines took of the cores meanwhile. Every result holds this noise as it was before the measurement. Published results
are replaced only by a machine that is no busier than it was when they were measured, unless --anyway is given.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measured_on import machine

SECONDS = 30.0  # of measuring; the noise of a shared machine comes and goes within seconds
COPIED, WRITTEN = 256 << 20, 32 << 20  # bytes; more than caches hold
# A machine is busier than before if its slow samples take that much longer, or if others take that many cores more.
SLOWER, MORE_CORES = 1.25, 0.1
# A quiet machine, where nothing is known of before: slow samples over usual ones. Disks are never as even as memory.
QUIET = {"memcpy": 1.5, "disk": 2.5}
_BUSY = (0, 1, 2, 5, 6, 7)  # of /proc/stat: user, nice, system, irq, softirq, steal; guests are in user


@dataclasses.dataclass(frozen=True)
class Noise:
    """Seconds of a copy of 256 MiB and of a write of 32 MiB: median, and the slow ones' bound (90th percentile). ``others``: cores
    that other processes, and the machines beside a virtual one, kept busy on average."""

    memcpy: float
    memcpy_slow: float
    disk: float
    disk_slow: float
    others: float

    def __str__(self) -> str:
        return (
            f"memcpy of {COPIED >> 20} MiB {_ms(self.memcpy, self.memcpy_slow)}, write of {WRITTEN >> 20} MiB "
            f"{_ms(self.disk, self.disk_slow)}, others keep {self.others:.2f} cores busy"
        )


def busier(now: Noise, then: Noise | None) -> list[str]:
    """Why ``now`` is too busy for results to take the place of those measured under ``then``; [] if it is not. Where nothing is known
    of then (None), the machine must be quiet in itself."""
    reasons = []
    allowed = MORE_CORES + (then.others if then else 0)
    if now.others > allowed:
        reasons.append(f"others keep {now.others:.2f} cores busy; at most {allowed:.2f}")
    for name, quiet in QUIET.items():
        usual, slow = getattr(now, name), getattr(now, f"{name}_slow")
        bound = SLOWER * getattr(then, f"{name}_slow") if then else quiet * usual
        if slow > bound:
            reasons.append(
                f"{name}: a tenth of the samples takes more than {slow * 1e3:.0f} ms; at most {bound * 1e3:.0f} ms"
            )
    return reasons


def measure(folder: Path | None, seconds: float = SECONDS) -> Noise:
    """The noise of the next ``seconds``; the file goes to ``folder`` (default: the temporary directory). At least 3 samples."""
    # Not all the same byte: some storage stores runs of one byte in no time.
    source = np.resize(np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8), COPIED)
    target = source.copy()  # touched
    with tempfile.TemporaryDirectory(dir=folder, prefix="noise-") as place:
        works: dict[str, Callable[[], None]] = {
            "memcpy": lambda: np.copyto(target, source),
            "disk": lambda: _write(Path(place, "file"), source[:WRITTEN].data),
        }
        samples: dict[str, list[float]] = {name: [] for name in works}
        for work in works.values():
            work()
        begun, busy = time.perf_counter(), _others()
        while time.perf_counter() - begun < seconds or len(samples["disk"]) < 3:
            for name, work in works.items():
                begin = time.perf_counter()
                work()
                samples[name].append(time.perf_counter() - begin)
        others = (_others() - busy) / (time.perf_counter() - begun)
    found = {name: (statistics.median(each), float(np.percentile(each, 90))) for name, each in samples.items()}
    return Noise(*found["memcpy"], *found["disk"], max(0.0, others))


def check(now: Noise, published: Sequence[Path], machine: dict[str, Any]) -> None:
    """Refuses (``SystemExit``) to replace results that were measured when this machine was less busy. ``machine``: as in a report."""
    problems = {path.stem: reasons for path in published if (reasons := busier(now, _then(path, machine)))}
    if problems:
        lines = [f"  {name}: {'; '.join(reasons)}" for name, reasons in problems.items()]
        raise SystemExit(
            f"this machine is busier than it was for the published results ({now}):\n" + "\n".join(lines) + "\n"
            "Wait until it is idle, write elsewhere by --json, or replace the results all the same by --anyway."
        )


def load(path: Path) -> Noise:
    """What --json wrote."""
    return Noise(**json.loads(path.read_text()))


def _then(path: Path, machine: dict[str, Any]) -> Noise | None:
    """The noise that a result was measured under; None if it doesn't say, or was measured on another machine."""
    result = json.loads(path.read_text())
    same = all(result["machine"].get(name) == machine[name] for name in ("processor", "cores", "memory_bytes"))
    return Noise(**result["noise"]) if same and result.get("noise") else None


def _others() -> float:
    """CPU seconds since the start that this process did not use."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    own = os.times()
    return sum(fields[n] for n in _BUSY) / os.sysconf("SC_CLK_TCK") - own.user - own.system


def _write(path: Path, data: memoryview) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        while data:
            data = data[os.write(file, data) :]
        os.fdatasync(file)
    finally:
        os.close(file)


def _ms(usual: float, slow: float) -> str:
    return f"{usual * 1e3:.0f} ms (slow ones {slow * 1e3:.0f})"


def main(argv: Sequence[str] | None = None) -> None:
    """The command line: `make bench` asks once, for all benchmarks."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.noise", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where the noise goes, for --noise of the other benchmarks")
    parser.add_argument("--folder", type=Path, help="on the disk to measure (default: the temporary directory)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="(%(default)g)")
    parser.add_argument(
        "--replaces", type=Path, nargs="*", default=[], metavar="JSON", help="exit code 1 if busier than for one"
    )
    args = parser.parse_args(argv)
    now = measure(args.folder, args.seconds)
    print(now)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(dataclasses.asdict(now)) + "\n")
    if args.replaces:
        check(now, [path for path in args.replaces if path.exists()], machine())


if __name__ == "__main__":
    sys.exit(main())
