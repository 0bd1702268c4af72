"""Tables and the figure of ``benchmarks.scaling``, from its report alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ranks import OPERATIONS
from benchmarks.report import Report, Row, span, table

TIMES = ("submit", "local", "committed")
_COLOURS = {
    "submit": "#7a7a7a",
    "local": "#2f7ed8",
    "committed": "#c0392b",
    "plan": "#444444",
    "in flight": "#2f7ed8",
    "slots": "#e08e0b",
    "rank 0": "#c0392b",
    "others": "#2f7ed8",
}


_FIXED = ("tensor_bytes", "burst_bytes", "fixed_bytes")


@dataclass(frozen=True)
class Series:
    """How one series is shown."""

    name: str
    title: str  # a format of the report's settings
    axis: str
    what: tuple[str, ...] = TIMES
    fitted: str = ""  # the quantity whose exponent stands in the panel's title
    power_of: str = ""  # what x is in that title
    scale: float = 1.0  # of x

    def titled(self, settings: dict[str, Any]) -> str:
        """The title, with what was fixed while x varied."""
        sizes = {name: f"{settings[name] / 1e6:g} MB" for name in _FIXED}
        return self.title.format_map({**sizes, "workload": settings["workload"]})


SHOWN = (
    Series("bytes", "More bytes, 1 rank", "MB", fitted="committed", power_of="bytes", scale=1e-6),
    Series("tensors", "{tensor_bytes} in more regions, 1 rank", "regions", fitted="committed", power_of="regions"),
    Series("ranks", "The weights of {workload} on more ranks", "ranks", fitted="committed", power_of="ranks"),
    Series("plan", "The placement plan alone, resnet50", "ranks", ("plan",), fitted="plan", power_of="ranks"),
    Series("writers", "{fixed_bytes} by more writer threads, 1 rank", "writers"),
    Series("chunk", "{fixed_bytes} in larger chunks, 1 rank", "KiB", scale=1 / 1024),
)
_DEPTHS = ("in flight", "slots")


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of least squares in log-log; two different x at least."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mean_x, mean_y = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def growth(found: Sequence[Row], name: str) -> float | None:
    """The exponent of a quantity over the upper half of x's range, two rows at least. None of fewer, and where the samples at
    both ends of that half overlap: a slope of noise would look like a finding."""
    found = [row for row in found if name in row.values and row.median(name) > 0]
    if len(found) < 2:
        return None
    xs = [row.labels["x"] for row in found]
    middle = min(math.sqrt(xs[0] * xs[-1]), xs[-2])
    upper = [row for row in found if row.labels["x"] >= middle]
    first, last = upper[0].values[name], upper[-1].values[name]
    if first["min"] <= last["max"] and last["min"] <= first["max"]:
        return None
    return exponent([(row.labels["x"], row.median(name)) for row in upper])


def rows(report: Report, series: str) -> list[Row]:
    """The rows of one series, smallest x first; none if it was not measured."""
    return sorted((row for row in report.rows if row.labels["series"] == series), key=lambda row: row.labels["x"])


def _power(found: list[Row], name: str) -> str:
    power = growth(found, name)
    return "-" if power is None else f"{power:.2f}"


def _number(x: float) -> str:
    return f"{x:g}" if x < 1e5 else f"{x:,.0f}"


def tables(report: Report) -> str:
    """All series as Markdown tables."""
    parts = [_series_table(series, report) for series in SHOWN if rows(report, series.name)]
    if depths := [row for name in _DEPTHS for row in rows(report, name)]:
        parts.append(f"**{_depth_title(report)}**\n\n{_depth_table(depths)}")
    if operations := rows(report, "operations"):
        parts.append(_operations_table(operations))
    elif "operations" in report.settings:
        parts.append(f"Metadata operations: {report.settings['operations']}.")
    return "\n\n".join(parts)


def _series_table(series: Series, report: Report) -> str:
    found = rows(report, series.name)
    names = [name for name in (*series.what, "cpu") if any(name in row.values for row in found)]
    shares = series.name in ("ranks", "plan")
    header = [series.axis, *(["MB per rank"] if shares else [])]
    header += ["CPU s/GB" if name == "cpu" else f"{name}, ms" for name in names]
    lines = []
    for row in found:
        line = [_number(row.labels["x"] * series.scale)]
        if shares:
            line.append(span(row, "bytes", 1e-6, 2))
        lines.append(line + [span(row, name, 1 if name == "cpu" else 1e3, 2) for name in names])
    if series.fitted:
        first = ["exponent", *([_power(found, "bytes")] if shares else [])]
        lines.append(first + [_power(found, name) for name in names])
    return f"**{series.titled(report.settings)}**\n\n{table(header, lines)}"


def _depth_table(found: list[Row]) -> str:
    header = ["varied", "number", "throughput, GB/s", "blocked per submit, ms", "CPU s/GB"]
    lines = [
        [
            row.labels["series"],
            row.labels["x"],
            span(row, "throughput", 1, 2),
            span(row, "blocked", 1e3),
            span(row, "cpu", 1, 2),
        ]
        for row in found
    ]
    return table(header, lines)


def _depth_title(report: Report) -> str:
    return f"Checkpoints of {report.settings['burst_bytes'] / 1e6:g} MB back to back, 1 rank"


def _operations_table(found: list[Row]) -> str:
    header = ["ranks", "of", *OPERATIONS, "all"]
    lines = [[row.labels["x"], row.labels["who"], *(span(row, n, 1, 1) for n in header[2:])] for row in found]
    return f"**Metadata operations on the external store, per rank and checkpoint**\n\n{table(header, lines)}"


def draw(report: Report, path: Path) -> None:
    """A log-log panel for each series."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels: list[Callable] = []
    for series in SHOWN:
        if rows(report, series.name):
            panels.append(lambda axes, series=series: _panel(axes, series, report))
    if any(rows(report, name) for name in _DEPTHS):
        panels.append(lambda axes: _depth_panel(axes, report))
    if rows(report, "operations"):
        panels.append(lambda axes: _operations_panel(axes, rows(report, "operations")))
    if not panels:
        raise SystemExit("scaling: the report has no series to draw")
    lines = -(-len(panels) // 2)
    figure, grid = pyplot.subplots(lines, 2, figsize=(9, 3 * lines), squeeze=False, layout="constrained")
    for axes, panel in zip(grid.flat, panels, strict=False):
        panel(axes)
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(fontsize=8, frameon=False)
    for axes in list(grid.flat)[len(panels) :]:
        axes.axis("off")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _line(axes, found: list[Row], name: str, label: str, scale: float = 1.0, unit: float = 1.0) -> None:
    found = [row for row in found if name in row.values]
    if not found:
        return
    x = [row.labels["x"] * scale for row in found]
    middle = [row.median(name) * unit for row in found]
    low = [m - row.values[name]["min"] * unit for m, row in zip(middle, found, strict=True)]
    high = [row.values[name]["max"] * unit - m for m, row in zip(middle, found, strict=True)]
    style = {"marker": "o", "markersize": 3.5, "linewidth": 1.2, "capsize": 2, "color": _COLOURS[label]}
    axes.errorbar(x, middle, yerr=[low, high], label=label, **style)


def _axes(axes, x: list[float], x_label: str, y_label: str, title: str) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.set_yscale("log")
    # The measured values themselves, as many as there is room for.
    shown = x if len(x) <= 7 else x[::2]
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    # A decade at least, so that what does not grow looks like it.
    low, high = axes.get_ylim()
    if high < 10 * low:
        middle = math.sqrt(low * high)
        axes.set_ylim(middle / math.sqrt(10), middle * math.sqrt(10))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.tick_params(labelsize=8)
    axes.set_xlabel(x_label, fontsize=9)
    axes.set_ylabel(y_label, fontsize=9)
    axes.set_title(title, fontsize=9)


def _panel(axes, series: Series, report: Report) -> None:
    found = rows(report, series.name)
    for name in series.what:
        _line(axes, found, name, name, series.scale, 1e3)
    title = series.titled(report.settings)
    if series.fitted and (power := growth(found, series.fitted)) is not None:
        title += f"\n{series.fitted} ~ {series.power_of}$^{{{power:.2f}}}$"
    _axes(axes, [row.labels["x"] * series.scale for row in found], series.axis, "ms", title)


def _depth_panel(axes, report: Report) -> None:
    x: set[int] = set()
    for name in _DEPTHS:
        found = rows(report, name)
        _line(axes, found, "throughput", name)
        x |= {row.labels["x"] for row in found}
    _axes(axes, sorted(x), "number", "GB/s", _depth_title(report))


def _operations_panel(axes, found: list[Row]) -> None:
    for who in ("rank 0", "others"):
        _line(axes, [row for row in found if row.labels["who"] == who], "all", who)
    title = "Metadata operations per rank and checkpoint"
    _axes(axes, sorted({row.labels["x"] for row in found}), "ranks", "operations", title)
