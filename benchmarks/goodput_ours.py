"""The part of ``benchmarks.goodput`` that measures DeepFreeze's own rates, and replays the trace with them.

For each workload and interval f, one process has in each round a training without checkpoints and one with each policy, in turns.
Checkpoints go to the disk alone, past the page cache. The first steps touch the engine's memory and are not timed. A ratio compares the
samples of one round. The time to load is that of real restarts, from the start of the process until the first new step begins.

- synchronous: training waits until the checkpoint is committed.
- CheckFreq: one uncommitted checkpoint (``Engine(uncommitted=1)``).
- N: four uncommitted checkpoints, as PCcheck has for VGG16.
- tuned: writers, transfers and uncommitted checkpoints as ``deepfreeze tune`` chose on this machine, at each f.
  ``goodput_interval`` has the interval that it chose. If it chose CheckFreq's setting, nothing is measured twice: both policies have the
  same rates.
- epoch only: an epoch has 1000 steps here. Its mean step follows from the cost of a checkpoint by CheckFreq's policy at the longest f.
- bound: plain steps, and a kill costs the time to load alone.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import goodput_replay as replay
from benchmarks import jobs, recovery
from benchmarks.concurrency_rows import cell, ratios
from benchmarks.concurrency_trainings import checkpoints, trained
from benchmarks.goodput_published import INTERVALS, MODEL, most_over_checkfreq, over_checkfreq
from benchmarks.goodput_replay import Job
from benchmarks.goodput_trace import Trace
from benchmarks.goodput_tuned import Tuned, tuned
from benchmarks.recovery_kills import Killing
from benchmarks.report import Row, say, span, table
from deepfreeze.engine.options import Engine

WORKLOADS = ("resnet50", "nt3")
EPOCH, UNCOMMITTED = 1000, 4
EPOCH_ONLY, SYNCHRONOUS, CHECKFREQ, MANY, TUNED, BOUND = "epoch only", "synchronous", "CheckFreq", "N", "tuned", "bound"
KINDS = {
    EPOCH_ONLY: replay.SYNCHRONOUS,
    SYNCHRONOUS: replay.SYNCHRONOUS,
    CHECKFREQ: replay.ONE,
    MANY: replay.SEVERAL,
    TUNED: replay.SEVERAL,
    BOUND: replay.NOTHING,
}
# Steps between checkpoints -> steps of each training that are timed, rounds.
PLAN, QUICK = {1: (10, 3), 10: (20, 4), 25: (25, 3), 50: (50, 2), 100: (100, 2)}, {2: (4, 2), 5: (5, 2)}
SKIP = 10  # steps before those that are timed: checkpoints that touch memory, and as many steps as these take to be committed
KILLS, KILLS_QUICK, SEED = 6, 2, 21


def settings(every: int, choice: Tuned | None) -> dict[str, dict[str, Any]]:
    """Policy -> how ``concurrency_rank`` trains with it; None: without checkpoints."""
    engines: dict[str, dict[str, Any]] = {
        SYNCHRONOUS: {"io": "direct"},
        CHECKFREQ: {"uncommitted": 1, "io": "direct"},
        MANY: checkpoints(UNCOMMITTED),
    }
    if choice is not None and not is_checkfreqs(choice):
        engines[TUNED] = choice.engine
    made = {
        name: {"every": every, "engine": engine, "touch": engine.get("in_flight", 2)}
        for name, engine in engines.items()
    }
    made[SYNCHRONOUS]["wait_for"] = "external"
    return made


def is_checkfreqs(choice: Tuned) -> bool:
    """True if the tuner chose the setting that CheckFreq's policy has."""
    own = Engine()
    return (choice.writers, choice.transfers, choice.uncommitted) == (own.writers, own.transfers, 1)


def measure(quick: bool, disk: Path, trace: Trace) -> list[Row]:
    """All rows."""
    plan = QUICK if quick else PLAN
    rows = []
    for workload in ("light",) if quick else WORKLOADS:
        choice = None if quick else tuned(workload, disk, trace.mtbf)
        loads = loading(workload, quick, disk)
        found = {every: trainings(workload, every, *plan[every], settings(every, choice), disk) for every in plan}
        rows += made(Replays(workload, loads, trace), found, choice)
    return rows


def loading(workload: str, quick: bool, disk: Path) -> list[float]:
    """Seconds of restarts, up to the first new step."""
    (plan,) = (plan for plan in (*recovery.PLANS, *recovery.QUICK) if plan.workload == workload)
    plan = dataclasses.replace(plan, kills=KILLS_QUICK if quick else KILLS)
    say(f"{workload}: {plan.kills} restarts ...")
    found = Killing(plan, jobs.empty(disk, "killed"), SEED).all()
    step = statistics.fmean(found.step)
    return [sum(phases.values()) - step for restarts in found.restarts.values() for phases in restarts]


def trainings(
    workload: str, every: int, steps: int, rounds: int, asked: dict[str, dict[str, Any]], disk: Path
) -> dict[str | None, dict[str, Any]]:
    """The measurements of trainings with this interval, by policy; None: those without checkpoints. ``asked``: as ``settings`` has it;
    ``steps``: of each training, at least: there are whole intervals; ``rounds``: of all trainings."""
    steps = -(-steps // every) * every
    each = [{"every": None}, *asked.values()]
    found = trained(
        f"{workload}, every {every}", workload, [{**one, "skip": SKIP, "steps": steps} for one in each], rounds, disk
    )
    return dict(zip([None, *asked], found, strict=True))


@dataclass(frozen=True)
class Replays:
    """Replays the trace for a workload. ``loads``: seconds that each of its restarts took."""

    workload: str
    loads: Sequence[float]
    trace: Trace

    def row(
        self,
        policy: str,
        every: int,
        plain: Sequence[float],
        step: Sequence[float],
        commits: Sequence[float],
        many: int,
    ) -> Row:
        """The row of a policy. ``plain``, ``step``: seconds without checkpoints and with them, round by round; ``commits``: seconds from
        each hand-over to the commit; ``many``: how many checkpoints may be uncommitted."""
        row = Row({"workload": self.workload, "policy": policy, "every": every, "uncommitted": many})
        row.add("plain", "s", plain).add("step", "s", step).add("commit", "s", commits).add("load", "s", self.loads)
        commit, load = (row.median(name) if name in row.values else 0.0 for name in ("commit", "load"))

        def job(plain: float, step: float) -> Job:
            return Job(KINDS[policy], plain, step, every, load, commit, many)

        each = [job(*seconds) for seconds in zip(plain, step, strict=True)]
        useful = [self._goodput(one) for one in each]
        row.add("slowdown", "", [one.step / one.plain for one in each]).add("goodput", "1/s", useful)
        row.add("of the bound", "", [one / self._bound(of) for one, of in zip(useful, each, strict=True)])
        middle = job(row.median("plain"), row.median("step"))
        stepped = replay.replayed(middle, self.trace.seconds, self.trace.times)
        return row.add("replayed of the bound", "", [stepped / self._bound(middle)])

    def _goodput(self, job: Job) -> float:
        return replay.goodput(job, self.trace.seconds, len(self.trace.events))

    def _bound(self, job: Job) -> float:
        """The goodput of the same steps where checkpoints cost nothing and no work is lost. ``SystemExit`` if kills leave no time."""
        best = self._goodput(dataclasses.replace(job, policy=replay.NOTHING, step=job.plain))
        if not best:
            events = f"{len(self.trace.events)} events in {self.trace.seconds:.0f} s"
            raise SystemExit(f"{self.workload}: {events} leave no time to train after loads of {job.load:.1f} s")
        return best


def made(replays: Replays, found: dict[int, dict[str | None, dict[str, Any]]], choice: Tuned | None) -> list[Row]:
    """The rows of a workload. ``found``: steps between checkpoints -> policy -> what its trainings have shown."""
    rows = rows_of(replays, found, choice)
    longest = [row for row in rows if row.labels["policy"] == CHECKFREQ][-1]
    plain, part = longest.samples("plain"), longest.labels["every"] / EPOCH
    step = [one + (two - one) * part for one, two in zip(plain, longest.samples("step"), strict=True)]
    rows.append(replays.row(EPOCH_ONLY, EPOCH, plain, step, longest.samples("commit"), 1))
    plain = [second for by_policy in found.values() for second in _seconds(by_policy[None])]
    return [*rows, replays.row(BOUND, 1, plain, plain, [], 1)]


def rows_of(replays: Replays, found: dict[int, dict[str | None, dict[str, Any]]], choice: Tuned | None) -> list[Row]:
    """The rows of the policies that were trained, as for ``made``."""
    rows: list[Row] = []
    for every, by_policy in found.items():
        plain = _seconds(by_policy[None])
        if choice is not None and is_checkfreqs(choice):
            by_policy = {**by_policy, TUNED: by_policy[CHECKFREQ]}
        for policy, one in by_policy.items():
            if policy is None:
                continue
            many = {MANY: UNCOMMITTED, TUNED: choice.uncommitted if choice else 1}.get(policy, 1)
            commits = [] if policy == SYNCHRONOUS else one["commits"]
            row = replays.row(policy, every, plain, _seconds(one), commits, many)
            if policy == TUNED and choice is not None:
                row.labels |= {"chosen": every == choice.interval, **dataclasses.asdict(choice)}
            rows.append(row)
    return rows


def _seconds(found: dict[str, Any]) -> list[float]:
    """Of a step, round by round."""
    return [1 / rate for rate in found["rate"]]


def find(rows: Sequence[Row], workload: str, policy: str, every: int) -> Row:
    """The row of a workload, policy and interval. KeyError if there is none."""
    for row in rows:
        if (row.labels["workload"], row.labels["policy"], row.labels["every"]) == (workload, policy, every):
            return row
    raise KeyError(f"no row of {workload}, {policy}, every {every}")


def workloads(rows: Sequence[Row]) -> list[str]:
    """The names of the workloads."""
    return list(dict.fromkeys(row.labels["workload"] for row in rows))


def own(row: Row) -> bool:
    """True for a row with several uncommitted checkpoints, as DeepFreeze would be used."""
    return row.labels["policy"] in (MANY, TUNED)


def beside_checkfreq(rows: Sequence[Row]) -> Iterator[tuple[Row, tuple[float, float, float]]]:
    """Each row of our own policies, with its goodput over that of CheckFreq's policy at the same interval: the median of the rounds between
    the ends of its 95 % interval."""
    for workload in workloads(rows):
        ours = [row for row in rows if own(row) and row.labels["workload"] == workload]
        each = [ratios(row, find(rows, workload, CHECKFREQ, row.labels["every"]), "goodput") for row in ours]
        yield from zip(ours, medians_within(each), strict=True)


def medians_within(cells: Sequence[Sequence[float]]) -> list[tuple[float, float, float]]:
    """(low, median, high) of each cell: its median between the ends of the median's 95 % interval.

    The two or three rounds of a cell don't tell how far they scatter: all lie on one side of the truth in one case of two or four. So the
    scatter of all cells together counts, relative to their medians. It is widened, because each cell's median follows its own rounds
    (Bessel's correction). The interval is the bootstrap's, the same at every call."""
    middles = [statistics.median(samples) for samples in cells]
    scatter = [
        (one / middle - 1) * math.sqrt(len(samples) / (len(samples) - 1))
        for samples, middle in zip(cells, middles, strict=True)
        for one in samples
        if len(samples) > 1
    ]
    found, drawing = [], np.random.default_rng(0)
    for samples, middle in zip(cells, middles, strict=True):
        drawn = np.median(drawing.choice(scatter or [0.0], (4000, len(samples))), axis=1)
        low, high = np.percentile(drawn, [2.5, 97.5])
        found.append((middle * (1 + float(low)), middle, middle * (1 + float(high))))
    return found


def tables(rows: list[Row]) -> str:
    """Every policy at every interval; then what several uncommitted checkpoints gain, beside the paper's."""
    lines = []
    for row in rows:
        what = [row.labels["workload"], policy(row), "-" if row.labels["policy"] == BOUND else row.labels["every"]]
        what += [f"{row.median('plain') * 1e3:.0f}", cell(row.samples("slowdown"))]
        what += [span(row, "commit", 1e3, 0), f"{row.median('load'):.1f}", f"{row.median('goodput'):.3f}"]
        lines.append([*what, cell(row.samples("of the bound")), f"{row.median('replayed of the bound'):.3f}"])
    head = ["workload", "policy", "every", "plain step, ms", "step over plain (95 %)", "commit, ms", "load, s"]
    head += ["goodput, steps/s", "of the bound (95 %)", "of the bound, stepped"]
    compared = [
        [row.labels["workload"], policy(row), row.labels["every"], f"{ratio:.3f} ({low:.3f}..{high:.3f})"]
        for row, (low, ratio, high) in beside_checkfreq(rows)
    ]
    for interval in INTERVALS:
        compared.append([f"PCcheck, Figure 9: {MODEL}", "PCcheck", interval, f"{over_checkfreq(interval):.2f}"])
    compared.append(["PCcheck, all models", "PCcheck", "same", f"at most {most_over_checkfreq():g}"])
    gained = table(["workload", "policy", "every", "goodput over CheckFreq (95 %)"], compared)
    return f"{table(head, lines)}\n\n{gained}"


def policy(row: Row) -> str:
    """The row's policy in words."""
    name = row.labels["policy"]
    if name == MANY:
        return f"N = {row.labels['uncommitted']}"
    if name != TUNED:
        return name
    labels = row.labels
    text = f"tuned: N = {labels['uncommitted']}, {labels['writers']} writers, {labels['transfers']} transfers"
    return text + (", its interval" if labels["chosen"] else "")
