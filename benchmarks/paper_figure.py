"""The paper's Figures 5 and 6, of our own: blocking time and runtime overhead of each approach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.report import Report, Row

COLOURS = ("#8c8c8c", "#c9a227", "#d4703a", "#2b6ca3", "#17936b", "#7fb2dd", "#a58bc4")


def draw(report: Report, path: Path) -> None:
    """Two panels, a group of bars for each workload and number of ranks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    groups = list(dict.fromkeys((row.labels["workload"], row.labels["ranks"]) for row in report.rows))
    approaches = list(dict.fromkeys(row.labels["approach"] for row in report.rows))
    figure, panels = plt.subplots(2, 1, figsize=(8, 7.5), layout="constrained")
    titles = {"blocking": "Blocking phase, mean over ranks", "overhead": "Runtime overhead of an iteration"}
    for panel, (metric, title) in zip(panels, titles.items(), strict=True):
        ticks = []
        place = 0.0
        for name, ranks in groups:
            rows = [row for row in report.rows if (row.labels["workload"], row.labels["ranks"]) == (name, ranks)]
            begin = place
            for row in rows:
                _bar(panel, row, metric, place, COLOURS[approaches.index(row.labels["approach"])])
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
        panel.set_ylabel("ms")
        panel.set_title(title, loc="left", fontsize=10)
        panel.grid(axis="y", alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[n]) for n in range(len(approaches))]
    labels = [
        name.replace("placement", "veloc-opt,").replace("largest axis", "veloc-opt, largest axis")
        for name in approaches
    ]
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _bar(panel: Any, row: Row, metric: str, place: float, colour: str) -> None:
    value = row.values[metric]
    middle, low, high = (value[key] * 1e3 for key in ("median", "min", "max"))
    panel.bar(place, middle, 0.9, color=colour, yerr=[[middle - low], [high - middle]], ecolor="#444444", capsize=2)
