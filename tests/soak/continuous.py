"""Checkpoints back to back, with random faults, for as long as wanted: memory, descriptors, threads and disk have to stay flat.

python -m tests.soak.continuous --seconds 7200 --json FILE --png FILE

Two rank processes live through the whole soak. In them one job follows the other: engines are opened, save 120 steps each,
some of which fail by a planned fault (tests/soak/faults.py), and are closed; then the directories are treated as at any job's
start. Odd jobs capture straight into slots in memory, even ones hand their shards over. Samples are taken every second and between
two jobs, and every second the newest checkpoint is read back, byte by byte. Ends with 1 if something is wrong or not flat
(tests/soak/verdict.py).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.soak import faults, figure, verdict  # noqa: E402
from tests.soak.sampling import QUANTITIES, Sampler, Samples  # noqa: E402
from tests.support import native, restart  # noqa: E402
from tests.support.ranks import Rank, check_checkpoint, committed, options, ranks  # noqa: E402

WORLD, JOB, KEEP = 2, 120, 2
FIRST = 1_000_000  # all steps have as many digits
SIZE = 1_000_003
PAUSE = 0.02  # seconds between two steps: a machine in use, not one that only checkpoints
FASTEST = 40  # checkpoints a second that faults are planned for
EVERY = 150  # steps for each fault


class Soak:
    def __init__(self, folder: Path, memory: Path, seconds: float, seed: int, job: int, every: int) -> None:
        self._run, self._memory = folder / "run", memory
        self._folder, self._seconds = folder, seconds
        choose = random.Random(seed)
        planned = max(job, int(FASTEST * seconds))
        self.plans, self._failing, self.faults = faults.draw(choose, FIRST, planned, WORLD, every)
        self._steps = job
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter(
            submitted=0, external=0, failed=0, verified=0, notices=0, jobs=0, finished=0
        )
        self._checked = -1

    def run(self, library: str) -> Sampler:
        restart.make_run(self._run)
        with ranks(library, *self.plans) as group:
            local = [self._memory / f"local-{rank}" for rank in range(WORLD)]
            for path in local:
                path.mkdir()
            pids = [rank.process.pid for rank in group]
            sampler = Sampler(pids, self._run, local, self._look)
            begun, step = time.monotonic(), FIRST
            sampler.start()
            try:
                while not self.wrong and sampler.failure is None:
                    if self.counts["jobs"] >= verdict.FEWEST and time.monotonic() - begun >= self._seconds:
                        break
                    self._job(group, step)
                    sampler.rest()
                    step += self._steps
            finally:
                sampler.stop()
        return sampler

    def _job(self, group: list[Rank], first: int) -> None:
        self.counts["jobs"] += 1
        number, last = self.counts["jobs"], first + self._steps - 1
        finished = restart.reopen(self._memory_view(), WORLD)
        self.counts["finished"] += len(finished.committed)
        restart.claim(self._memory_view(), number)
        logs = [self._folder / f"said-{rank}" for rank in range(WORLD)]
        for rank, process in enumerate(group):
            logs[rank].unlink(missing_ok=True)
            own = options(self._memory, rank, WORLD, attempt=number, captured=number % 2 == 1, first=FIRST, keep=KEEP)
            own |= {"run_dir": str(self._run), "file_size": SIZE, "commit_timeout": 30.0, "in_flight": 3, "slots": 3}
            process.ask("open", **own)
        for rank, process in enumerate(group):
            process.send("stream", first=first, last=last, log=str(logs[rank]), pause=PAUSE)
        for process in group:
            process.answer()
        for process in group:
            process.ask("close")
        self._check(number, first, last, [log.read_text().splitlines() for log in logs])

    def _memory_view(self) -> Path:
        """A folder with the run beside the local tiers, as ``restart`` wants it."""
        view = self._memory / "run"
        if not view.is_symlink():
            view.symlink_to(self._run)
        return self._memory

    def _check(self, number: int, first: int, last: int, logs: list[list[str]]) -> None:
        """Every step ended on every rank, the planned failures as failures, and what is on disk agrees with it."""
        ends: list[dict[int, str]] = []
        for rank, lines in enumerate(logs):
            end: dict[int, str] = {}
            for line in lines:
                level, step = line.split()[:2]
                self.counts["notices"] += level == "notice"
                if level in ("external", "failed", "refused"):
                    end[int(step)] = level
            lost = sorted(set(range(first, last + 1)) - end.keys())
            if lost:
                self.wrong.append(
                    f"job {number}, rank {rank}: nothing was said of steps {lost[:5]} ({len(lost)} in all)"
                )
            ends.append(end)
        differ = [step for step in ends[0] if ends[0][step] != ends[1].get(step)]
        if differ:
            self.wrong.append(f"job {number}: the ranks disagree on steps {differ[:5]}")
        failed = {step for step, end in ends[0].items() if end != "external"}
        silent = [step for step in self._failing if first <= step <= last and step not in failed]
        if silent:
            self.wrong.append(f"job {number}: steps {silent[:5]} did not fail, though they had to")
        unplanned = sorted(failed - self._failing)
        if unplanned:
            why = [line for lines in logs for line in lines if f" {unplanned[0]} " in line]
            self.wrong.append(f"job {number}: steps {unplanned[:5]} failed for no planned reason: {why[-1:]}")
        external = [step for step, end in ends[0].items() if end == "external"]
        there = committed(self._run)
        self.counts["verified"] += len(there)
        if sorted(external)[-KEEP:] != list(there):
            self.wrong.append(
                f"job {number}: {sorted(external)[-KEEP:]} were reported external, {list(there)} are there"
            )
        self.counts.update(submitted=last - first + 1, external=len(external), failed=len(failed))

    def _look(self) -> None:
        """Reads the newest checkpoint back, unless it is one that was read; it may be deleted meanwhile."""
        steps = restart.steps_in(self._run)
        if not steps or steps[-1] == self._checked:
            return
        try:
            check_checkpoint(self._run / f"step-{steps[-1]:010d}")
        except FileNotFoundError:
            return
        self._checked = steps[-1]
        self.counts["verified"] += 1


def report(soak: Soak, sampler: Sampler, settings: dict[str, Any]) -> dict[str, Any]:
    resting, running = sampler.resting, sampler.running
    judged = QUANTITIES if len(resting.seconds) >= verdict.FEWEST else ()  # what is wrong ends a soak at once
    quantities = {name: verdict.judge(name, resting.seconds, resting.values[name]) for name in judged}
    return {
        "settings": settings,
        "criterion": " ".join((verdict.__doc__ or "").split("\n\n")[1].split()),
        "passed": not soak.wrong and all(found["flat"] for found in quantities.values()),
        "wrong": soak.wrong,
        "counts": {**soak.counts, "faults": soak.faults},
        "quantities": quantities,
        "running": _rounded(running),
        "resting": _rounded(resting),
    }


def _rounded(samples: Samples) -> dict[str, list[float]]:
    values = {name: [round(value, 4) for value in values] for name, values in samples.values.items()}
    return {"seconds": [round(second, 3) for second in samples.seconds], **values}


def soak(seconds: float, seed: int, job: int = JOB, every: int = EVERY) -> dict[str, Any]:
    """Runs one with jobs of so many steps and a fault in so many, and returns what ``--json`` gets."""
    library = str(native.testing_library())
    os.environ["DEEPFREEZE_LIBRARY"] = library
    memory = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="deepfreeze-soak-"))
    folder = Path(tempfile.mkdtemp(prefix="deepfreeze-soak-"))
    try:
        one = Soak(folder, memory, seconds, seed, job, every)
        sampler = one.run(library)
        settings = {
            "seconds": seconds,
            "seed": seed,
            "world": WORLD,
            "file_size": SIZE,
            "steps_a_job": JOB,
            "keep": KEEP,
        }
        return report(one, sampler, settings)
    finally:
        shutil.rmtree(memory, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=7200)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("DEEPFREEZE_TEST_SEED", "0")))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--png", type=Path)
    args = parser.parse_args()
    seed = args.seed or random.SystemRandom().randrange(1, 2**31)
    print(f"seed {seed} (DEEPFREEZE_TEST_SEED), {args.seconds:.0f} seconds", flush=True)
    found = soak(args.seconds, seed, min(JOB, max(10, int(args.seconds / 2))))  # a short one needs its cycles too
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(found) + "\n")
    if args.png is not None:
        figure.draw(found, args.png)
    print(", ".join(f"{value} {name}" for name, value in found["counts"].items()))
    for name, value in found["quantities"].items():
        text = "flat" if value["flat"] else "NOT FLAT"
        grown = f"{value['growth']:+8.3f} +- {value['noise']:.3f} in the second half (up to {value['allowed']:.2f})"
        print(f"{name:17} median {value['median']:9.2f}, {grown}: {text}")
    for line in found["wrong"]:
        print(f"WRONG: {line}")
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
