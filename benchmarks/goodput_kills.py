"""The part of ``benchmarks.goodput`` that kills a real training by the trace, at a faster clock, and counts its useful steps.

The training is NT3 of the published size on Khan's tumours, one process, with checkpoints on the disk alone. It is killed by SIGKILL at
each event and started again at once. Useful steps are those that the training has at the end, from the first step of its first process
on. The forecast is made of plain step, step, time to commit and time to load. Processes that live as long as the trace lets one live on
average measure these: two before the killed training and two after it, because the machine changes its speed from hour to hour. The step is
the mean of all steps of such a process but the first, so it has the steps in it whose checkpoints touch memory for the first time.

At the end of every sixth of the kills, and at the end of the training, the newest checkpoint's weights are tested on the 20 test tumours,
after everything else is over.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import deepfreeze
from benchmarks import goodput_replay as replay
from benchmarks import jobs, workloads
from benchmarks.goodput_replay import Job
from benchmarks.goodput_trace import Trace
from benchmarks.goodput_tuned import Tuned
from benchmarks.recovery_life import Life, Training
from benchmarks.report import ROOT, Row, say, table
from deepfreeze.events.event_files import EventFiles

MINUTES, SHORTEST = (
    30.0,
    30.0,
)  # a shorter training has the first part of the trace at the clock of ``SHORTEST`` minutes
TESTS = 6  # of the accuracy
LABEL = "nt3 on tumours"


@dataclass(frozen=True)
class Policy:
    """A checkpoint every ``every`` steps with the engine's options ``engine``; ``kind``: of ``goodput_replay``."""

    name: str
    kind: str
    every: int
    uncommitted: int
    engine: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """``minutes`` of training for each policy; ``clock``: how much faster than the trace; ``genes`` of NT3; ``plain``: seconds of a
    training that measures plain steps; ``lives``: how many processes measure the forecast's figures before the killed training, and after
    it."""

    minutes: float
    clock: float
    genes: int = workloads.GENES
    plain: float = 30.0
    lives: int = 2


@dataclass
class Figures:
    """Measurements for the forecast, in seconds. ``steps``: the mean step of each process; ``loads``: from the start of each process until
    its first step begins; ``commits``: from each hand-over to the commit."""

    steps: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)

    def add(self, life: Life, events: Sequence[Mapping[str, Any]]) -> None:
        """Adds the measurements of a process. ``events``: those that the run has from it. ``SystemExit`` if it did less than two steps."""
        if not life.seconds:
            raise SystemExit(f"a process that lived for {life.killed - life.started:.0f} s had no second step")
        self.steps.append(statistics.fmean(life.seconds))
        self.loads.append(sum(life.restart().values()) - self.steps[-1])
        found = [event["seconds"] for event in events if event["kind"] == "external"]
        self.commits += found[1:] or found  # the first one touches memory

    def job(self, policy: Policy, plain: float) -> Job:
        """The job whose goodput is forecast. ``plain``: seconds of a step without checkpoints."""
        commit, load = statistics.median(self.commits), statistics.fmean(self.loads)
        return Job(policy.kind, plain, statistics.fmean(self.steps), policy.every, load, commit, policy.uncommitted)


@dataclass
class Found:
    """The outcome of a killed training. ``steps``: the useful ones; ``history``: (seconds, steps) at each kill and at the end; ``files``:
    (seconds, weights) of checkpoints that are to be tested; ``lost``: steps that each kill took; ``step``: seconds of each step but the
    first one of each process."""

    steps: int = 0
    history: list[tuple[float, int]] = field(default_factory=list)
    files: list[tuple[float, Path]] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    step: list[float] = field(default_factory=list)


def planned(minutes: float, trace: Trace, quick: bool) -> Plan:
    """The whole trace in ``minutes``, or the first part of it. Quick: a minute of the smallest NT3 at twice the clock."""
    clock = trace.seconds / (max(minutes, SHORTEST) * 60)
    return Plan(1.0, 2 * clock, genes=2308, plain=4.0, lives=1) if quick else Plan(minutes, clock)


def policies(choice: Tuned | None) -> list[Policy]:
    """Ours and CheckFreq's, with the same interval. ``choice``: of ``deepfreeze tune``; None: 4 uncommitted checkpoints every 5 steps."""
    every = choice.interval if choice else 5
    many = choice.uncommitted if choice else 4
    engine = choice.engine if choice else {"in_flight": many, "uncommitted": many, "io": "direct"}
    ours = Policy("tuned" if choice else "N", replay.SEVERAL, every, many, engine)
    return [ours, Policy("CheckFreq", replay.ONE, every, 1, {"uncommitted": 1, "io": "direct"})]


def measure(plan: Plan, choice: Tuned | None, disk: Path, trace: Trace) -> list[Row]:
    """A row for each policy."""
    events = trace.faster(plan.clock).first(plan.minutes * 60)
    plain = _plain(plan, disk)
    return [_measured(plan, policy, plain, events, disk) for policy in policies(choice)]


def _measured(plan: Plan, policy: Policy, plain: float, events: Trace, disk: Path) -> Row:
    measuring = _training(plan, policy, jobs.empty(disk, "measured"))
    _life(measuring, 3 * policy.every * plain)  # makes the run, so it restores nothing
    told, figures = EventFiles(measuring.run), Figures()
    told.new()
    seconds = events.seconds / (len(events.events) + 1)

    def measure_lives() -> None:
        say(f"{policy.name}: steps, commits and restarts of {LABEL} ...")
        for _ in range(plan.lives):
            figures.add(_life(measuring, seconds), told.new())

    measure_lives()
    say(f"{policy.name}: {events.seconds / 60:.3g} minutes with {len(events.events)} kills ...")
    found = _killed(_training(plan, policy, jobs.empty(disk, "killed")), events, disk)
    measure_lives()
    job = figures.job(policy, plain)
    row = Row(
        {
            "policy": policy.name,
            "every": policy.every,
            "engine": policy.engine,
            "plan": asdict(plan),
            "job": asdict(job),
        }
    )
    add(row, job, found, events)
    row.add("step before and after", "s", figures.steps)
    row.add("tested at", "s", [at for at, _ in found.files])
    return row.add("accuracy", "", [_accuracy(file, plan.genes) for _, file in found.files])


def add(row: Row, job: Job, found: Found, events: Trace) -> None:
    """The useful steps that were counted, and those that the closed formula and the stepped replay forecast."""
    row.add("steps", "steps", [found.steps]).add("lost", "steps", found.lost).add(
        "step", "s", [statistics.fmean(found.step)]
    )
    row.add("at", "s", [at for at, _ in found.history]).add("steps at", "steps", [steps for _, steps in found.history])
    row.add("formula", "steps", [replay.goodput(job, events.seconds, len(events.events)) * events.seconds])
    row.add("replayed", "steps", [replay.replayed(job, events.seconds, events.times) * events.seconds])
    row.labels |= {"kills": len(events.events), "seconds": events.seconds}


def _training(plan: Plan, policy: Policy | None, folder: Path) -> Training:
    params: dict[str, Any] = {"workload": LABEL, "genes": plan.genes, "every": policy and policy.every, "keep": 2}
    return Training(folder, **params, engine=policy.engine if policy else {})


def _plain(plan: Plan, disk: Path) -> float:
    """Seconds of a step without checkpoints."""
    say(f"{LABEL}: plain steps ...")
    training = _training(plan, None, jobs.empty(disk, "plain"))
    return statistics.fmean(_life(training, plan.plain).seconds[1:])


def _life(training: Training, seconds: float) -> Life:
    """A process that is killed so many seconds after its first step."""
    training.start()
    try:
        training.wait_for_a_step()
        time.sleep(seconds)
        training.check()
    finally:
        life = training.kill()
    return life


def _killed(training: Training, events: Trace, disk: Path) -> Found:
    """Kills the training at each event, and at the end."""
    found, weights = Found(), jobs.empty(disk, "weights")
    tested = {round(len(events.events) * n / TESTS) for n in range(1, TESTS)}
    training.start()
    try:
        training.wait_for_a_step()
        begun, first = training.marks()[-1].at, training.marks()[-1].step
        for number, at in enumerate([*events.times, events.seconds], 1):
            time.sleep(max(0.0, begun + at - time.monotonic()))
            training.check()
            life = training.kill()
            reached, kept = done(life, training.committed())
            found.step += life.seconds
            found.history.append((at, reached - first))
            if at == events.seconds:
                found.steps = reached - first
            else:
                found.lost.append(reached - kept)
            if kept and (number in tested or at == events.seconds):
                file = weights / f"{kept}.weights.h5"
                if not file.exists():
                    os.link(deepfreeze.latest(training.run).path / "model.weights.h5", file)
                found.files.append((at, file))
            if at != events.seconds:
                training.start()
    finally:
        training.kill()
    return found


def done(life: Life, committed: Sequence[int]) -> tuple[int, int]:
    """The steps that a killed process had reached, and those that are committed. A process that was killed before it had restored the
    model has reached what is committed."""
    kept = max(committed, default=0)
    return max((mark.step for mark in life.marks if mark.name in ("restored", "step")), default=kept), kept


def _accuracy(file: Path, genes: int) -> float:
    """Of the weights in the file, on the test tumours."""
    command = [sys.executable, str(workloads.EXAMPLE / "evaluate.py"), str(file), "--genes", str(genes), "--json"]
    said = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    )
    if said.returncode:
        raise SystemExit(f"{file}: the test failed:\n{said.stderr[-2000:]}")
    return json.loads(said.stdout.splitlines()[-1])["test_accuracy"]


def error(row: Row, name: str) -> float:
    """By what part of the counted steps a forecast is above them."""
    return row.median(name) / row.median("steps") - 1


def tables(rows: list[Row]) -> str:
    """Counted and forecast steps; then the accuracy over the wall time."""
    lines = []
    for row in rows:
        job, labels = row.labels["job"], row.labels
        what = [labels["policy"], labels["every"], f"{labels['seconds'] / 60:.3g}", labels["kills"]]
        what += [f"{job[name] * 1e3:.0f}" for name in ("plain", "step", "commit")] + [f"{job['load']:.1f}"]
        what.append(f"{row.median('step') * 1e3:.0f}")
        lost = f"{statistics.fmean(row.samples('lost')):.1f}" if row.samples("lost") else "-"
        forecasts = [f"{row.median(name):.0f} ({error(row, name):+.1%})" for name in ("formula", "replayed")]
        lines.append([*what, f"{row.median('steps'):.0f}", lost, *forecasts])
    head = ["policy", "every", "minutes", "kills", "plain step, ms", "step, ms", "commit, ms", "load, s"]
    head += [
        "step between the kills, ms",
        "useful steps",
        "lost at a kill, steps",
        "forecast by the formula",
        "forecast, stepped",
    ]
    return f"{table(head, lines)}\n\n{_accuracies(rows)}"


def _accuracies(rows: list[Row]) -> str:
    times = sorted({round(at) for row in rows for at in row.samples("tested at")})
    lines = []
    for row in rows:
        by_time = dict(zip(map(round, row.samples("tested at")), row.samples("accuracy"), strict=True))
        lines.append([row.labels["policy"], *(f"{by_time[at]:.2f}" if at in by_time else "-" for at in times)])
    return table(["test accuracy after", *(f"{at / 60:.1f} min" for at in times)], lines)
