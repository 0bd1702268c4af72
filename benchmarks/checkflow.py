"""Does Checkflow's experiment come out? python -m benchmarks.checkflow --help

Checkflow (2025) plans in which operator of a step each tensor is copied, and in which its copy leaves the GPU, so that every step is saved
and training never waits. Two parts are from a profile by the roofline of the paper's GPU (an RTX 3090, its eight models layer by layer):

grid: Table I, whether a plan exists, over the least time of an operator and the size of parts, neither of which the paper says.
peaks: Figure 2, the memory that a plan needs beyond that of training, for each model, batch and link.

cpu: the same eight models in Keras, profiled while they train on this CPU with a checkpoint in every step.

marks: what profiling a step costs.

forecast, prototypes: would it pay to follow such a plan here? Profiles of NT3 and ResNet-50 on this machine, and trainings that follow
their plans, beside the same ones with today's captures.

None needs a GPU. HiGHS solves the programs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import checkflow_cpu, checkflow_grid, checkflow_here, checkflow_peaks
from benchmarks.report import Report, add_parts, before, of_part, run

PARTS = {
    "grid": checkflow_grid,
    "peaks": checkflow_peaks,
    "cpu": checkflow_cpu,
    "marks": checkflow_here.MARKS,
    "forecast": checkflow_here.FORECAST,
    "prototypes": checkflow_here.PROTOTYPES,
}
FIGURE = "![What a plan of the step saves, and hides](figures/checkflow.png)"


def measure(args: argparse.Namespace) -> Report:
    """All parts, or those of ``--parts``: then the rows of the other parts stay as they are in the JSON file, if this machine made it."""
    report = Report("checkflow", "Does Checkflow's experiment come out?")
    stays = before(args, report, list(PARTS))
    for name, part in PARTS.items():
        found = part.measure(args.quick) if name in args.parts else of_part(stays, name)
        report.add_part(name, found)
    return report


def tables(report: Report) -> str:
    """The tables of all parts that were measured, in Markdown, and the figure."""
    shown = [part.tables(rows) for name, part in PARTS.items() if (rows := of_part(report, name))]
    return "\n\n".join([*shown, FIGURE])


def draw(report: Report, path: Path) -> None:
    """The share of the state that is hidden and the reduction of the peak, model by model, with the paper's ranges behind them; and for
    which links there is a plan."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = of_part(report, "peaks")
    batches = sorted({row.labels["batch"] for row in rows}) or [1]
    figure, panels = pyplot.subplots(
        3, len(batches), figsize=(5 * len(batches), 7.5), layout="constrained", squeeze=False, height_ratios=(3, 3, 2)
    )
    for column, batch in enumerate(batches):
        those = [row for row in rows if row.labels["batch"] == batch]
        names = list(dict.fromkeys(row.labels["model"] for row in those))
        rates = sorted({row.labels["rate"] for row in those}, reverse=True)
        for number, rate in enumerate(rates):
            for row in those:
                if row.labels["rate"] != rate or "extra" not in row.values:
                    continue
                at = names.index(row.labels["model"]) + 0.8 * (number + 0.5) / len(rates) - 0.4
                colour = pyplot.get_cmap("Blues")(0.9 - 0.6 * number / max(1, len(rates) - 1))
                for panel, value in (
                    (panels[0][column], checkflow_peaks.saved),
                    (panels[1][column], checkflow_peaks.hidden),
                ):
                    panel.bar(at, 100 * value(row), 0.8 / len(rates), color=colour)
        upper, lower, links = panels[0][column], panels[1][column], panels[2][column]
        for row in those:
            there = "extra" in row.values
            at = names.index(row.labels["model"]), rates.index(row.labels["rate"])
            links.scatter(*at, s=60, color="#1f5fa8" if there else "none", edgecolor="#1f5fa8", linewidth=0.8)
        links.set_yticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        links.set(ylim=(len(rates) - 0.4, -0.6))
        upper.axhspan(
            1, 42, color="#e0a030", alpha=0.15, linewidth=0, zorder=0, label="Checkflow, Figure 2: 1 to 42 %, over 90 %"
        )
        lower.axhspan(90, 100, color="#e0a030", alpha=0.15, linewidth=0, zorder=0)
        upper.set(title=f"batch {batch}")
        for panel in (upper, lower):
            for number, rate in enumerate(rates):
                colour = pyplot.get_cmap("Blues")(0.9 - 0.6 * number / max(1, len(rates) - 1))
                panel.bar(0, 0, color=colour, label=f"{rate:g} GB/s")
            panel.set(ylim=(0, None))
        for panel, what in (
            (upper, "peak below CheckFreq's, %"),
            (lower, "copies hidden, %"),
            (links, "a plan (filled) for\na link of, GB/s"),
        ):
            panel.set(ylabel=what, xlim=(-0.6, len(names) - 0.4))
            panel.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
            panel.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this benchmark has."""
    add_parts(parser, list(PARTS))


if __name__ == "__main__":
    run("checkflow", __doc__ or "", measure, tables, draw, options)
