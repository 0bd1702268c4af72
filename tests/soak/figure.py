"""A soak's samples over time, one panel for each quantity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.soak.sampling import QUANTITIES


def draw(report: dict[str, Any], path: Path) -> None:
    """From what tests/soak/continuous.py writes as JSON."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(QUANTITIES) // 2, 2, figsize=(11, 9), sharex=True, layout="constrained")
    minutes = [second / 60 for second in report["seconds"]]
    for axis, (name, unit) in zip(axes.flat, QUANTITIES.items()):
        verdict = report["quantities"][name]
        axis.plot(minutes, report["samples"][name], linewidth=0.8)
        axis.axvline(minutes[len(minutes) // 2], color="0.8", linewidth=0.8)
        axis.set_ylim(bottom=0)
        grown = f"{verdict['growth']:+.2g} in the second half"
        axis.set_title(
            f"{name}{f' ({unit})' if unit else ''}: {grown}, {'flat' if verdict['flat'] else 'NOT FLAT'}", fontsize=9
        )
    for axis in axes[-1]:
        axis.set_xlabel("minutes")
    counts = report["counts"]
    figure.suptitle(
        f"{counts['submitted']} checkpoints of {report['settings']['world']} ranks, {counts['faults']} planned faults, "
        f"{counts['failed']} steps failed and were reported, {counts['verified']} verified byte by byte",
        fontsize=10,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
