"""The goals of ``benchmarks.checkflow``, and the figures that it found."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from benchmarks import checkflow_grid, checkflow_here
from benchmarks.checkflow_here import WORKLOADS
from benchmarks.finding import UNKNOWN, Finding
from benchmarks.report import Report, Row, interval, of_part
from deepfreeze.wording import size

SOURCE = "checkflow"
# Of a mark in seconds, and of a step with all of them; of a plan; of what the simulator forecasts.
MARK, MARKED, GAP, PEAK_OFF, STEP_OFF = 1e-6, 1.002, 0.01, 0.1, 0.05


def findings(report: Report | None) -> list[Finding]:
    """All goals of a planned step."""
    parts = {
        name: [] if report is None else of_part(report, name) for name in ("grid", "marks", "forecast", "prototypes")
    }
    return [
        *_table(parts["grid"]),
        *_marks(parts["marks"]),
        *_gap(parts["forecast"]),
        *_prototypes(parts["prototypes"]),
    ]


def _table(rows: list[Row]) -> Iterable[Finding]:
    what, goal = "Checkflow's Table I, of a roofline profile", "all entries in a cell of the grid"
    if not rows:
        yield Finding(what, goal, UNKNOWN, False, SOURCE)
        return
    cells = checkflow_grid.cells(rows)
    held = [cell for cell, those in cells.items() if checkflow_grid.holds(those)]
    named = ", ".join(f"{least} us and {part} MB" for least, part in held)
    text = f"{len(held)} of {len(cells)} cells" + (f": {named}" if held else "")
    yield Finding(what, goal, text, bool(held), SOURCE)


def _marks(rows: list[Row]) -> Iterable[Finding]:
    for row in rows:
        name = WORKLOADS[row.labels["workload"]]
        mark, ratios = row.median("mark"), row.samples("over plain")
        yield Finding(f"a mark, {name}", "at most 1 us", f"{mark * 1e6:.2f} us", mark <= MARK, SOURCE)
        low, high = interval(ratios)
        ratio = statistics.median(ratios)
        text = f"{ratio - 1:+.2%} ({low - 1:+.2%}..{high - 1:+.2%}), {len(ratios)} pairs, {row.labels['marks']} marks"
        what = f"a step with all marks, {name}"
        yield Finding(what, "at most 0.2 %", text, ratio <= MARKED, SOURCE, not low <= MARKED <= high)


def _gap(rows: list[Row]) -> Iterable[Finding]:
    for every in checkflow_here.EVERY:
        plans = [row for row in rows if row.labels["how"] == checkflow_here.PLAN and row.labels["every"] == every]
        known = [row for row in plans if row.samples("gap") and row.median("gap") < 1]
        if not known:
            continue
        worst = max(known, key=lambda row: row.median("gap"))
        gap, unknown = worst.median("gap"), sum(len(row.samples("gap")) for row in plans) - len(known)
        text = f"{gap:.1%} at most ({size(round(gap * worst.median('extra')))}), of {len(known)} plans"
        text += f"; {unknown} without a bound in the time" if unknown else ""
        what = f"plans of the step, every={every}, gap to the bound"
        yield Finding(what, "at most 1 % in a minute", text, gap <= GAP and not unknown, SOURCE)


def _prototypes(rows: list[Row]) -> Iterable[Finding]:
    for workload, name in WORKLOADS.items():
        own = {row.labels["how"]: row for row in rows if row.labels["workload"] == workload}
        late = own.get(checkflow_here.LATE)
        if late is not None and late.samples("held_by_step"):
            off = late.median("played_extra") / late.median("held_by_step") - 1
            what = f"copies held by the simulator, late copies in parts, {name}"
            yield Finding(what, "within 10 % of the prototype's", f"{off:+.1%}", abs(off) <= PEAK_OFF, SOURCE)
        for way in own.values():
            if way.samples("played"):
                yield _simulated(way, own[checkflow_here.TODAY], name)
        if own:
            verdict = checkflow_here.verdict(rows, workload)
            goal = "copies and blocks at most 0.25 of the checkpoint and 32 MB, no longer than today's steps"
            yield Finding(f"a step that follows a plan, {name}", goal, verdict.text, verdict.pays, SOURCE, verdict.sure)


def _simulated(way: Row, today: Row, name: str) -> Finding:
    """How far the simulator's step is from the prototype's. Both are over today's step, which is the one that was profiled: the machine's
    speed changes between the profile and a round."""
    forecast = way.median("played") / way.median("profiled")
    rounds = zip(way.samples("step"), today.samples("step"), strict=True)
    ratios = [forecast * now / step - 1 for step, now in rounds]
    low, high = interval(ratios)
    off = statistics.median(ratios)
    sure = not (low <= -STEP_OFF <= high or low <= STEP_OFF <= high)
    what, goal = f"a step by the simulator, {way.labels['how']}, {name}", "within 5 % of the prototype's"
    return Finding(what, goal, f"{off:+.1%} ({low:+.1%}..{high:+.1%})", abs(off) <= STEP_OFF, SOURCE, sure)
