"""The paper's Figures 5 and 6, of our own, and how far ours is below the other approaches over ranks and nodes, beside the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.paper_published import NODES, WORKLOADS, ratios
from benchmarks.paper_tables import ratio, trainings, within_noise
from benchmarks.report import Report, Row, interval

COLOURS = ("#8c8c8c", "#c9a227", "#d4703a", "#2b6ca3", "#17936b", "#7fb2dd", "#a58bc4")
_EDGE = "#444444"
_TIMES = (1, 2, 5, 10, 20, 50)


def draw(report: Report, path: Path) -> None:
    """Two panels with a group of bars for each workload and number of ranks; below them the ratios of the blocking phase."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = trainings(report)
    approaches = list(dict.fromkeys(row.labels["approach"] for row in rows))
    colours = dict(zip(approaches, COLOURS, strict=False))
    figure = plt.figure(figsize=(8, 10.5), layout="constrained")
    grid = figure.add_gridspec(3, 2)
    _bars(figure.add_subplot(grid[0, :]), rows, "blocking", "Blocking phase, mean over ranks", colours)
    title = "Runtime overhead of an iteration (hatched: within noise; diamonds: in CPU time)"
    _bars(figure.add_subplot(grid[1, :]), rows, "overhead", title, colours)
    for place, workload in enumerate(WORKLOADS):
        _ratios(figure.add_subplot(grid[2, place]), report, workload, colours)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in colours.values()]
    labels = [
        name.replace("placement", "veloc-opt,").replace("largest axis", "veloc-opt, largest axis")
        for name in approaches
    ]
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _bars(panel: Any, rows: list[Row], metric: str, title: str, colours: dict[str, str]) -> None:
    ticks = []
    place = 0.0
    for name, ranks in dict.fromkeys((row.labels["workload"], row.labels["ranks"]) for row in rows):
        begin = place
        for row in (row for row in rows if (row.labels["workload"], row.labels["ranks"]) == (name, ranks)):
            _bar(panel, row, metric, place, colours[row.labels["approach"]])
            place += 1
        ticks.append(((begin + place - 1) / 2, f"{name}\n{ranks} rank{'s' * (ranks > 1)}"))
        place += 1
    panel.set_xticks(*zip(*ticks, strict=True))
    # Overheads may be below zero, by noise: linear near it.
    if metric == "blocking":
        panel.set_yscale("log")
    else:
        panel.set_yscale("symlog", linthresh=10)
        panel.axhline(0, color="black", linewidth=0.8)
    panel.set_ylabel("ms (median, 95 % interval)")
    _style(panel, title)


def _bar(panel: Any, row: Row, metric: str, place: float, colour: str) -> None:
    middle, error = _estimate(row, metric)
    noise = metric == "overhead" and within_noise(row, metric)
    look = {"color": "white", "edgecolor": colour, "hatch": "////"} if noise else {"color": colour}
    panel.bar(place, middle, 0.9, yerr=error, ecolor=_EDGE, capsize=2, **look)
    if metric == "overhead" and row.samples("cpu"):
        middle, error = _estimate(row, "cpu")
        panel.errorbar(
            place, middle, error, fmt="D", markersize=3, color="black", markerfacecolor="white", elinewidth=0.6
        )


def _ratios(panel: Any, report: Report, workload: str, colours: dict[str, str]) -> None:
    """Lines: nodes; dots: trainings; crosses: the paper."""
    alone, together = WORKLOADS[workload]
    for approach in colours:
        if approach not in ratios()[workload, 8, "blocking"]:
            continue
        series = {
            "-": [(n, ratio(report, approach, "blocking", workload=alone, nodes=n)) for n in NODES],
            "o": [
                (n, ratio(report, approach, "blocking", workload=w, ranks=n)) for n, w in ((1, alone), (2, together))
            ],
            "x": [(n, ratios().get((workload, n, "blocking"), {}).get(approach)) for n in NODES],
        }
        for look, points in series.items():
            known = [(n, value) for n, value in points if value is not None]
            if known:
                panel.plot(*zip(*known, strict=True), look, color=colours[approach])
    panel.set_xscale("log", base=2)
    panel.set_xticks(NODES, map(str, NODES))
    panel.set_yscale("log")
    panel.set_yticks(_TIMES, [f"{value}x" for value in _TIMES])
    panel.minorticks_off()
    panel.set_ylabel("times veloc-opt's")
    panel.set_xlabel("line: nodes, o: ranks, x: the paper's nodes", fontsize=9)
    _style(panel, f"Blocking phase of the slowest rank, {workload}")


def _style(panel: Any, title: str) -> None:
    panel.set_title(title, loc="left", fontsize=10)
    panel.grid(axis="y", alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)


def _estimate(row: Row, name: str) -> tuple[float, list[list[float]]]:
    """Milliseconds: the median, and how far its interval reaches down and up."""
    low, high = interval(row.samples(name))
    middle = row.median(name)
    return middle * 1e3, [[max(0.0, middle - low) * 1e3], [max(0.0, high - middle) * 1e3]]
