"""A soak's samples over time, one panel for each quantity: while jobs run, and between them."""

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
    running, resting = report["running"], report["resting"]
    minutes, between = ([second / 60 for second in samples["seconds"]] for samples in (running, resting))
    for axis, (name, unit) in zip(axes.flat, QUANTITIES.items()):
        verdict = report["quantities"].get(name)
        axis.plot(minutes, running[name], linewidth=0.8, color="0.7", label="while jobs run")
        axis.plot(between, resting[name], linewidth=0.8, color="tab:blue", label="between two jobs")
        axis.axvline(minutes[len(minutes) // 2], color="0.8", linewidth=0.8)
        axis.set_ylim(bottom=0)
        said = "too short to tell"
        if verdict is not None:
            said = f"{verdict['growth']:+.2g} in the second half, {'flat' if verdict['flat'] else 'NOT FLAT'}"
        axis.set_title(f"{name}{f' ({unit})' if unit else ''}: {said}", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("minutes")
    axes.flat[0].legend(fontsize=8, loc="lower right")
    counts = report["counts"]
    figure.suptitle(
        f"{counts['submitted']} checkpoints of {report['settings']['world']} ranks, {counts['faults']} planned faults, "
        f"{counts['failed']} steps failed and were reported, {counts['verified']} verified byte by byte",
        fontsize=10,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
