"""The figure of ``benchmarks.interval``: the interval and the overhead of each period, over the steps."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import Report, Row

TICKS = (0, 5, 10, 20, 50, 100, 200)  # %


def draw(report: Report, path: Path) -> None:
    """A column for each workload and goal: above the interval, below the overhead. The second job begins at the line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = [row for row in report.rows if row.labels["kind"] == "overhead"]
    columns = list(dict.fromkeys((row.labels["workload"], row.labels["goal"]) for row in found))
    figure, panels = pyplot.subplots(
        2, len(columns), figsize=(3.6 * len(columns) + 0.6, 5), layout="constrained", squeeze=False, sharex="col"
    )
    for (workload, goal), (above, below) in zip(columns, panels.T, strict=True):
        cases = {
            row.labels["case"]: row for row in found if (row.labels["workload"], row.labels["goal"]) == (workload, goal)
        }
        border = max(cases["alone"].samples("step"), default=0.0)
        for case, colour in (("auto", "#2b6ca3"), ("static", "#c0392b")):
            name = {"auto": "Auto", "static": "static"}[case]
            parts = [(cases["alone"], 0.0)] if case == "auto" else []
            steps, k, cost = _joined([*parts, (cases[case], border)])
            above.step(steps, k, where="pre", color=colour, label=name)
            below.plot(steps, [100 * one for one in cost], color=colour, marker=".", linewidth=0.8, label=name)
        below.axhline(100 * goal, color="black", linewidth=0.8, linestyle=":")
        below.axhline(200 * goal, color="grey", linewidth=0.8, linestyle=":")
        below.set_yscale("symlog", linthresh=10)
        below.set_yticks(TICKS, [str(tick) for tick in TICKS])
        below.minorticks_off()
        for panel in (above, below):
            panel.axvline(border, color="black", linewidth=0.8)
            panel.grid(alpha=0.3)
            panel.spines[["top", "right"]].set_visible(False)
        above.set(title=f"{workload}, p = {goal:.1%}", ylim=(0, None))
        below.set_xlabel("step; line: the second job begins")
        above.legend(fontsize=8, frameon=False, loc="lower right")
    panels[0][0].set_ylabel("k, steps")
    panels[1][0].set_ylabel("overhead, % (dotted: p, 2 p)")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _joined(parts: list[tuple[Row, float]]) -> tuple[list[float], list[float], list[float]]:
    """Steps, intervals and overheads of rows, the steps of each moved on by so many."""
    steps, k, cost = [], [], []
    for row, by in parts:
        steps += [step + by for step in row.samples("step")]
        k += row.samples("k")
        cost += row.samples("of a period")
    return steps, k, cost
