"""The figure of ``benchmarks.goodput``: throughput and goodput over the interval, as Figures 8 and 9 of PCcheck show them, ours beside the
published ones; and the accuracy of the training that was really killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import goodput_ours as ours
from benchmarks import goodput_published as published
from benchmarks.report import Report, Row, of_part

COLOURS = {
    ours.EPOCH_ONLY: "#8c8c8c",
    ours.SYNCHRONOUS: "#e0a030",
    ours.CHECKFREQ: "#c0392b",
    ours.MANY: "#2b6ca3",
    ours.TUNED: "#2e8b57",
}
OF_PAPER = {"CheckFreq": "#c0392b", "GPM": "#e0a030", "PCcheck": "#2b6ca3", "Ideal": "#8c8c8c"}
Curve = tuple[
    str, str, list[float], list[float], list[float]
]  # name, colour, intervals, throughput and goodput over the best one


def draw(report: Report, path: Path) -> None:
    """A line of panels for each workload and for the paper's model, and one for the real kills, as far as they were measured."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows, killed = of_part(report, "ours"), of_part(report, "kills")
    drawn = [(name, _curves(rows, name)) for name in ours.workloads(rows)]
    if of_part(report, "published"):
        drawn.append((f"PCcheck: {published.MODEL}, Figures 8 and 9", _published(of_part(report, "published"))))
    count = len(drawn) + bool(killed)
    figure, panels = pyplot.subplots(count, 2, figsize=(9, 3 * count), layout="constrained", squeeze=False)
    for (name, curves), (left, right) in zip(drawn, panels, strict=False):
        for label, colour, intervals, throughput, useful in curves:
            left.plot(intervals, throughput, "o-", color=colour, label=label)
            right.plot(intervals, useful, "o-", color=colour, label=label)
        left.set(title=name, ylabel="throughput / plain")
        right.set(title=name, ylabel="goodput / bound")
        ticks = sorted({interval for curve in curves for interval in curve[2]})
        for panel in (left, right):
            panel.set_xscale("log")
            panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            panel.minorticks_off()
            panel.set(xlabel="steps between checkpoints", ylim=(0, None))
            panel.axhline(1, color="black", linewidth=0.8, linestyle=":")
        left.legend(fontsize=8, frameon=False)
    if killed:
        _killed(killed, *panels[-1])
    for panel in panels.flat:
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _curves(rows: list[Row], workload: str) -> list[Curve]:
    curves = []
    for policy, colour in COLOURS.items():
        found = [row for row in rows if (row.labels["workload"], row.labels["policy"]) == (workload, policy)]
        found.sort(key=lambda row: row.labels["every"])
        if found:
            throughput = [1 / row.median("slowdown") for row in found]
            useful = [row.median("of the bound") for row in found]
            curves.append((policy, colour, [row.labels["every"] for row in found], throughput, useful))
    return curves


def _published(rows: list[Row]) -> list[Curve]:
    """The paper's goodput over that of plain steps: it has no bound of its own."""
    best = 1 / published.plain()
    curves = []
    for system, colour in OF_PAPER.items():
        found = [row for row in rows if row.labels["system"] == system]
        throughput = [1 / published.job(system, row.labels["interval"]).step / best for row in found]
        useful = [row.median("published") / best for row in found]
        curves.append((system, colour, [row.labels["interval"] for row in found], throughput, useful))
    return curves


def _killed(rows: list[Row], left: Any, right: Any) -> None:
    """Useful steps over the wall time, with the forecasts at the end; and the accuracy."""
    for row, colour in zip(rows, (COLOURS[ours.TUNED], COLOURS[ours.CHECKFREQ]), strict=True):
        minutes = [0.0, *(at / 60 for at in row.samples("at"))]
        left.plot(minutes, [0.0, *row.samples("steps at")], color=colour, label=row.labels["policy"])
        left.plot(row.labels["seconds"] / 60, row.median("formula"), "x", color=colour)
        right.plot([at / 60 for at in row.samples("tested at")], row.samples("accuracy"), "o-", color=colour)
    left.set(title="NT3, really killed (x: the formula's forecast)", xlabel="minutes", ylabel="steps", ylim=(0, None))
    right.set(title="NT3, really killed", xlabel="minutes", ylabel="test accuracy", xlim=(0, None), ylim=(0, 1.05))
    left.legend(fontsize=8, frameon=False)
