"""What the project wants to reach, against what the other benchmarks found. python -m benchmarks.goals

Measures nothing: reads their JSON files. Each goal is a ratio within one run of one benchmark, or a bound. "reached" compares
medians; where the median's 95 % interval has the goal inside, it says so: another run might say otherwise.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import (
    checkflow_goals,
    concurrency,
    concurrency_memory,
    concurrency_store,
    goodput_kills,
    goodput_ours,
    goodput_published,
    io_paths,
    machine,
    overhead_periods,
    restore,
)
from benchmarks import interval as intervals
from benchmarks.concurrency_rows import find
from benchmarks.finding import UNKNOWN, Finding
from benchmarks.report import RESULTS, Report, Row, interval, of_part, table
from benchmarks.resumable import RESUMED

Reports = Callable[[str], Report]


def findings(load: Reports) -> list[Finding]:
    """All goals, in order."""
    return [
        *_blocking(load("stall")),
        *_stall(load("stall")),
        *_overhead(load),
        *_durable(load("peers")),
        *_restore(load),
        *_interval(_measured(load, "interval")),
        *_recovery(_measured(load, "recovery")),
        *_input(_measured(load, "input")),
        *_resumable(_measured(load, "resumable")),
        *_concurrency(_measured(load, "concurrency")),
        *_io_paths(_measured(load, "io_paths")),
        *_goodput(_measured(load, "goodput")),
        *checkflow_goals.findings(_measured(load, "checkflow")),
    ]


def _measured(load: Reports, name: str) -> Report | None:
    """The report of a benchmark; None if no results of it are published yet."""
    try:
        return load(name)
    except FileNotFoundError:
        return None


def _blocking(stall: Report) -> list[Finding]:
    found = []
    for workload, ratio, bound in (("nt3", 300, 2e-3), ("resnet50", 100, 3e-3)):
        row = stall.find(kind="checkpoint", workload=workload, ranks=1, wait_for="captured")
        blocking, saved = row.median("blocking"), row.median("save_weights") / row.median("blocking")
        text = f"{saved:.0f}x, {blocking * 1e3:.2f} ms"
        goal = f"at least {ratio}x below save_weights, at most {bound * 1e3:.0f} ms"
        reached = saved >= ratio and blocking <= bound
        found.append(Finding(f"blocking, {workload}, 1 rank", goal, text, reached, "stall"))
    row = stall.find(kind="checkpoint", wait_for="local")
    found.append(
        _ratio("blocking, waiting for a local tier in memory", row, "blocking", 1.2, "one memcpy of the shard")
    )
    of_policy = {
        "never": "a callback that captures nothing, ResNet-50",
        "auto": "a callback with Auto between checkpoints, ResNet-50",
    }
    for row in (row for row in stall.rows if row.labels["kind"] == "installed"):
        plain = row.median("plain")
        after = stall.find(kind="seam").median(row.labels["policy"])  # the callback's work between two steps
        least, cost, most = (ops + after for ops in _median_within(row.samples("added ops")))
        low, high = row.values["interval"]["min"], row.values["interval"]["max"]
        pairs = f"{row.median('difference') / plain:+.2%} ({low / plain:+.2%}..{high / plain:+.2%})"
        parts = f"of them {after / plain:.2%} between two steps"
        text = f"{cost / plain:.2%} ({least / plain:.2%}..{most / plain:.2%}), {parts}; paired steps {pairs}"
        sure = not (least / plain <= 5e-3 < most / plain)
        what = of_policy[row.labels["policy"]]
        found.append(Finding(what, "at most 0.5 % of a step", text, cost / plain <= 5e-3, "stall", sure))
    for row in (row for row in stall.rows if row.labels["kind"] == "seam"):
        low, more, high = _median_within(row.samples("difference"))
        text = f"{more * 1e6:.0f} us ({low * 1e6:.0f}..{high * 1e6:.0f}) beside a fixed interval"
        sure = not low <= 20e-6 < high
        found.append(Finding("a decision of Auto", "at most 20 us a step", text, more <= 20e-6, "stall", sure))
    return found


def _ratio(what: str, row, name: str, bound: float, of: str) -> Finding:
    copy = row.median("memcpy")
    low, ratio, high = (value / copy for value in _median_within(row.samples(name)))
    text = f"{ratio:.2f}x ({low:.2f}..{high:.2f}; {row.median(name) * 1e3:.1f} of {copy * 1e3:.1f} ms)"
    return Finding(what, f"at most {bound}x {of}", text, ratio <= bound, "stall", not low <= bound < high)


def _median_within(samples: list[float]) -> tuple[float, float, float]:
    """The median between the ends of its 95 % interval."""
    low, high = interval(samples)
    return low, statistics.median(samples), high


def _stall(stall: Report) -> list[Finding]:
    found = []
    for row in (r for r in stall.rows if r.labels["kind"] == "checkpoint" and r.labels["wait_for"] == "captured"):
        workload, ranks = row.labels["workload"], row.labels["ranks"]
        bound = 1.2 if workload == "light" else 0.6
        what = f"whole stall, {workload}, {ranks} rank{'s' * (ranks > 1)}"
        found.append(_ratio(what, row, "stall", bound, "one memcpy of the shard"))
    return found


def _overhead(load: Reports) -> list[Finding]:
    report = load("overhead")
    found = []
    for workload in ("resnet50", "nt3"):
        row = report.find(workload=workload, ranks=1, every=15)
        slowdown = row.median("slowdown") - 1
        low, high = (value - 1 for value in interval(row.samples("slowdown")))
        text = f"{slowdown:+.2%} ({low:+.2%}..{high:+.2%})"
        what, sure = f"every 15 steps, {workload}", not low <= 0.01 < high
        found.append(Finding(what, "at most 1 % of run time", text, slowdown <= 0.01, "overhead", sure))
    for plan in overhead_periods.PLANS:
        found += _periods(overhead_periods.row(report, plan.workload), plan)
    cpu = max((row for row in report.rows if "engine's CPU" in row.values), key=lambda row: row.median("engine's CPU"))
    for row in report.rows:
        if "captures" in row.values:
            most = row.median("captures") / row.median("memory given")
            text = f"at most {most:.2f} of it in {row.labels['samples']} samples"
            what = f"captures' memory, {row.labels['workload']}"
            found.append(Finding(what, "never more than memory=", text, most <= 1, "overhead"))
    seconds = cpu.median("engine's CPU")
    where = f"{cpu.labels['workload']}, every {cpu.labels['every']}"
    text = f"at most {seconds:.2f} s for both tiers ({where})"
    found.append(Finding("the engine's CPU", "at most 0.6 s per GB and tier", text, seconds <= 1.2, "overhead"))
    for row in (r for r in report.rows if "extra memory" in r.values):
        extra, bound = row.median("extra memory"), row.median("bound")
        what = (
            f"peak extra memory, {row.labels['workload']}, {row.labels['ranks']} rank{'s' * (row.labels['ranks'] > 1)}"
        )
        goal = "at most shard x (in flight + slots in memory) + 64 MB"
        found.append(Finding(what, goal, f"{extra / 1e6:.0f} of {bound / 1e6:.0f} MB", extra <= bound, "overhead"))
    return found


def _periods(row: Row | None, plan: overhead_periods.Plan) -> list[Finding]:
    """The goals for a checkpoint every few steps. ``row``: of the periods; None if the published results do not have them yet."""
    where = f"every {plan.every} steps, {plan.workload}"
    found = []
    goals: list[tuple[str, str, str, float, int]] = [
        (f"{where}, paired periods", "at most 3 % (PCcheck's)", "slowdown", 0.03, 1),
        (f"{where}, engine and copy over the cores", "at most 2 % of the steps", overhead_periods.SHARE, 0.02, 0),
    ]
    if plan == overhead_periods.PLANS[0]:
        goals += [
            (f"{where}, paired periods", "at most 1.5 %", "slowdown", 0.015, 1),
            (f"{where}, CPU time of the process", "at most 1 %", "CPU time", 0.01, 1),
            ("the engine's CPU and the copy's", "at most 0.12 s per GB in all", "CPU of a checkpoint", 0.12, 0),
        ]
    for what, goal, name, bound, zero in goals:
        if row is None or name not in row.values:
            found.append(Finding(what, goal, UNKNOWN, False, "overhead"))
            continue
        low, middle, high = (value - zero for value in _median_within(row.samples(name)))
        relative = zero or name == overhead_periods.SHARE
        text = f"{middle:+.2%} ({low:+.2%}..{high:+.2%})" if relative else f"{middle:.2f} s ({low:.2f}..{high:.2f})"
        text += f", {len(row.samples(name))} periods"
        found.append(Finding(what, goal, text, middle <= bound, "overhead", not low <= bound < high))
    return found


def _durable(peers: Report) -> list[Finding]:
    ours = peers.find(workload="nt3", approach="DeepFreeze")
    durable = ours.median("durable")
    others = [
        row
        for row in peers.rows
        if row.labels.get("workload") == "nt3"
        and row.labels.get("fsync", "no") != "no"
        and "DeepFreeze" not in row.labels["approach"]
    ]
    found = []
    if others:
        best = min(others, key=lambda row: row.median("durable"))
        text = f"{durable * 1e3:.0f} ms, {best.labels['approach']} {best.median('durable') * 1e3:.0f} ms"
        goal = "earlier than the fastest peer that asks the disk"
        found.append(Finding("committed on the disk, NT3", goal, text, durable < best.median("durable"), "peers"))
    disk = peers.find(workload="nt3", limit=machine.DIRECT).median("seconds")
    low, _, high = (value / disk for value in _median_within(ours.samples("durable")))
    text = f"{durable / disk:.2f}x ({low:.2f}..{high:.2f}; {durable * 1e3:.0f} of {disk * 1e3:.0f} ms)"
    goal, sure = "at most 1.1x the disk's own limit", not low <= 1.1 < high
    found.append(Finding("committed on the disk, NT3", goal, text, durable <= 1.1 * disk, "peers", sure))
    return found


def _restore(load: Reports) -> list[Finding]:
    report = load("restore")
    found = []
    for what, limit, bound, of in (
        (restore.WARM, restore.CACHED, 0.8, "the page cache's rate"),
        (restore.COLD, restore.DISK, 0.9, "the disk's rate"),
    ):
        ours, best = report.find(workload="nt3", what=what), report.find(workload="nt3", what=limit).median("rate")
        low, ratio, high = (value / best for value in _median_within(ours.samples("rate")))
        text, sure = (
            f"{ratio:.2f} ({low:.2f}..{high:.2f}; {ours.median('seconds') * 1e3:.0f} ms)",
            not low < bound <= high,
        )
        goal = f"at least {bound} of {of}"
        found.append(Finding(f"restore of NT3: {what}", goal, text, ratio >= bound, "restore", sure))
    if any(row.labels["what"] == restore.PLAIN for row in report.rows):
        found.append(_many_tensors(report))
    return found


def _many_tensors(report: Report) -> Finding:
    """ResNet-50's 536 tensors, whose number costs a restore as much as their bytes do."""

    def seconds(what: str) -> Row:
        return report.find(workload="resnet50", what=what)

    of_tensorflow, of_plain = (seconds(what).median("seconds") for what in (restore.TENSORFLOW, restore.PLAIN))
    low, ours, high = _median_within(seconds(restore.WARM).samples("seconds"))
    bound = max(of_tensorflow / 2, 1.5 * of_plain)
    goal = "at most half of tf.train.Checkpoint's time, or 1.5x reading, checking and assigning, whichever is more"
    ratios = f"{ours / of_tensorflow:.2f}x, {ours / of_plain:.2f}x"
    text = f"{ratios} ({low * 1e3:.0f}..{high * 1e3:.0f}; {ours * 1e3:.0f} ms)"
    what, sure = f"restore of ResNet-50: {restore.WARM}", not low <= bound < high
    return Finding(what, goal, text, ours <= bound, "restore", sure)


def _interval(report: Report | None) -> list[Finding]:
    """``Auto`` alone and beside a second job that writes to the same disk, and its profile."""
    alone, profile = "at most p + 1 point", "at most 1 % of the first 1000 steps"
    beside = f"{alone} where the static interval costs 2 p or more"
    if report is None:
        whats = (("Auto alone", alone), ("Auto beside a second writer", beside), ("Auto's profile", profile))
        return [Finding(what, one, UNKNOWN, False, "interval") for what, one in whats]
    found = []
    for row in intervals.rows(report, "overhead"):
        if row.labels["case"] == "static":
            continue
        budget, cost = row.labels["goal"], row.median("overhead")
        low, high = row.samples("within")
        text, of = f"{cost:+.1%} ({low:+.1%}..{high:+.1%})", f"{row.labels['workload']}, p = {budget:.1%}"
        reached, sure = cost <= budget + 0.01, not low <= budget + 0.01 < high
        if row.labels["case"] == "alone":
            found.append(Finding(f"Auto alone, {of}", alone, text, reached, "interval", sure))
            continue
        labels = {name: row.labels[name] for name in ("workload", "goal")}
        static = report.find(kind="overhead", case="static", **labels).median("overhead")
        text, applies = f"{text}; static {static:+.1%}", static >= 2 * budget
        found.append(Finding(f"Auto beside a second writer, {of}", beside, text, reached, "interval", sure, applies))
    for row in intervals.rows(report, "profile"):
        cost = row.median("of an epoch")
        what = f"Auto's profile, {row.labels['workload']}, p = {row.labels['goal']:.1%}"
        found.append(Finding(what, profile, f"{cost:+.2%}", cost <= 0.01, "interval"))
    return found


def _recovery(report: Report | None) -> list[Finding]:
    """No kill loses more than two intervals."""
    what, goal = "lost work, every k steps", "never more than 2k steps"
    if report is None:
        return [Finding(what, goal, UNKNOWN, False, "recovery")]
    found = []
    for row in (row for row in report.rows if row.labels["policy"] == "steps"):
        lost, bound = row.samples("lost steps"), row.labels["bound"]
        text = f"{max(lost):.0f} of {bound} steps at worst, {len(lost)} kills"
        found.append(Finding(f"{what}, {row.labels['workload']}", goal, text, max(lost) <= bound, "recovery"))
    return found


def _input(report: Report | None) -> list[Finding]:
    """The resumable input beside ``tf.data``."""
    what, goal = "input from arrays", "at least 0.95 of tf.data's throughput"
    if report is None:
        return [Finding(what, goal, UNKNOWN, False, "input")]
    found = []
    for row in report.rows:
        low, ratio, high = _median_within(row.samples("ratio"))
        what_of_it = f"{what}, {row.labels['way']}, batches of {row.labels['batch']}"
        text = f"{ratio:.2f} ({low:.2f}..{high:.2f})"
        found.append(Finding(what_of_it, goal, text, ratio >= 0.95, "input", not low <= 0.95 < high))
    return found


def _resumable(report: Report | None) -> list[Finding]:
    """The interrupted training over a resumable input ends as the uninterrupted one."""
    what, goal = "interrupted about every two epochs, Resumable", "bit for bit as uninterrupted, each seed"
    if report is None:
        return [Finding(what, goal, UNKNOWN, False, "resumable")]
    rows = [row for row in report.rows if row.labels["way"] == RESUMED]
    same = sum(row.samples("other values") == [0] for row in rows)
    return [Finding(what, goal, f"{same} of {len(rows)} seeds", same == len(rows), "resumable")]


def _concurrency(report: Report | None) -> list[Finding]:
    """Less memory for captures costs little, and captures keep to what they are given; transfers at once help where calls take long; and a
    checkpoint in every step is as fast as the disk."""
    parts = {name: of_part(report, name) for name in concurrency.PARTS}
    return [*_memory(parts["memory"]), _store(parts["store"]), _every_step(parts["every-step"])]


def _memory(rows: list[Row]) -> list[Finding]:
    less, bound = "memory of 1.25 shards, every 10", "captures' memory"
    goal, kept = "at least 0.93 of the throughput with 2 shards", "never more than memory="
    if not rows:
        return [Finding(what, one, UNKNOWN, False, "concurrency") for what, one in ((less, goal), (bound, kept))]
    found = []
    for row in rows:
        if (row.labels["memory"], row.labels["every"]) == (1.25, 10):
            what, ratios = f"{row.labels['workload']}: {less}", concurrency_memory.compared(rows, row)
            found.append(_at_least(what, goal, ratios, 0.93, 3))
    above = [row.median("peak") / row.labels["nbytes"] for row in rows]
    samples = sum(row.labels["samples"] for row in rows)
    text = f"at most {max(above):.2f} of it in {samples} samples of {len(above)} trainings"
    return [*found, Finding(bound, kept, text, max(above) <= 1, "concurrency")]


def _io_paths(report: Report | None) -> list[Finding]:
    """The engine has no writes through mapped memory, because they are nowhere faster than direct ones: in each place by its worst row."""
    what, goal = "a new file by mmap", "no faster than by direct writes"
    if report is None:
        return [Finding(what, goal, UNKNOWN, False, "io_paths")]
    found = []
    for place in dict.fromkeys(row.labels["place"] for row in report.rows):
        rows = [row for row in report.rows if row.labels["place"] == place]
        least = min(rows, key=lambda row: statistics.median(io_paths.ratios(row, io_paths.MMAP)))
        low, ratio, high = _median_within(io_paths.ratios(least, io_paths.MMAP))
        case = f"{least.labels['bytes'] / 1e6:.0f} MB, {io_paths.SOURCES[least.labels['aligned']]}"
        text = f"{ratio:.2f}x the time at least ({low:.2f}..{high:.2f}; {case}, writers: {least.labels['writers']})"
        sure = not low < 1 <= high
        found.append(Finding(f"{what}, {place}", goal, text, ratio >= 1, "io_paths", sure))
    return found


def _store(rows: list[Row]) -> Finding:
    what = f"N = 4 with 4 transfers on a store with {concurrency_store.DELAY} ms per call"
    goal = "at least 2x the rate of one transfer"
    if not rows:
        return Finding(what, goal, UNKNOWN, False, "concurrency")
    row = find(rows, checkpoints=4, transfers=4)
    return _at_least(what, goal, concurrency_store.compared(rows, row), 2.0)


def _every_step(rows: list[Row]) -> Finding:
    what, goal = "a checkpoint in every step, light: throughput", "at least 0.9 of what the disk takes"
    if not rows:
        return Finding(what, goal, UNKNOWN, False, "concurrency")
    row = find(rows, transfers=1)
    of = " of ".join(f"{row.median(name) / 1e9:.2f}" for name in ("throughput", "disk"))
    return _at_least(what, goal, row.samples("ratio"), 0.9, more=f"; {of} GB/s")


def _at_least(
    what: str,
    goal: str,
    samples: list[float],
    bound: float,
    digits: int = 2,
    more: str = "",
    source: str = "concurrency",
) -> Finding:
    """A ratio that is not to be smaller."""
    low, ratio, high = _median_within(samples)
    text = f"{ratio:.{digits}f} ({low:.{digits}f}..{high:.{digits}f}{more})"
    return Finding(what, goal, text, ratio >= bound, source, not low < bound <= high)


def _goodput(report: Report | None) -> list[Finding]:
    """Goodput of the tuned policy, and the forecast for a training that is really killed. None of them without results."""
    found = []
    paper = goodput_published.over_checkfreq(10), goodput_published.most_over_checkfreq()
    beside_paper = f"; PCcheck's: {paper[0]:.2f} for {goodput_published.MODEL}, at most {paper[1]:g}"
    for row in of_part(report, "interval"):
        if row.labels["policy"] == goodput_ours.TUNED:
            what = f"goodput, tuned, every {row.labels['every']}, {row.labels['workload']}"
            samples = row.samples("of the bound")
            found.append(_at_least(what, "at least 0.97 of the bound", samples, 0.97, 3, source="goodput"))
    for row, (low, ratio, high) in goodput_ours.beside_checkfreq(of_part(report, "ours")):
        if row.labels["policy"] != goodput_ours.TUNED:
            continue
        workload, every = row.labels["workload"], row.labels["every"]
        what, text = f"goodput over CheckFreq's, every {every}, {workload}", f"{ratio:.3f} ({low:.3f}..{high:.3f})"
        text += beside_paper if every == 10 else ""
        found.append(Finding(what, "never below 1 beyond noise", text, high >= 1, "goodput", not low < 1 <= high))
    for row in of_part(report, "kills"):
        off, stepped = (goodput_kills.error(row, name) for name in ("formula", "replayed"))
        what = f"forecast of {row.labels['kills']} real kills, {row.labels['policy']}"
        text = f"{off:+.1%} (stepped {stepped:+.1%})"
        found.append(Finding(what, "within 10 % of the steps counted", text, abs(off) <= 0.1, "goodput"))
    return found


def tables(_: Report) -> str:
    """One table of all goals."""

    def load(name: str) -> Report:
        return Report.load(RESULTS / f"{name}.json")

    lines = [(f.what, f.goal, f.found, f.verdict, f.source) for f in findings(load)]
    return table(["what", "goal", "found", "reached", "benchmark"], lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the table, and leaves a file that says it was made."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.goals", description=__doc__)
    parser.add_argument("--json", type=Path, default=RESULTS / "goals.json", help="see benchmarks.docs (%(default)s)")
    args = parser.parse_args(argv)
    report = Report("goals", "Are the goals reached?")
    report.save(args.json)
    print(tables(report))


if __name__ == "__main__":
    sys.exit(main())
