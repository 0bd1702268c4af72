"""The picture of ``deepfreeze plan --plot``: interval and overhead over steps."""

from __future__ import annotations

from pathlib import Path

from deepfreeze.cli import picture
from deepfreeze.plan.auto_section import AutoSection

_COLOURS = ("#2b6ca3", "#c0392b")  # of the interval, of the overhead


def draw(section: AutoSection, run: str, path: Path) -> None:
    """Draws the plan into a PNG file, which is replaced if it exists. Errors of ``picture.new_figure`` and ``picture.publish``."""
    figure = picture.new_figure(8, 5)
    from matplotlib.ticker import MaxNLocator

    upper, lower = figure.subplots(2, 1, sharex=True)
    begun = [(one.step, one.after) for one in section.decisions] or [(section.step, section.interval)]
    steps, intervals = zip(*begun, strict=True)
    upper.step([*steps, section.last_step], [*intervals, intervals[-1]], where="post", color=_COLOURS[0])
    upper.plot(steps, intervals, "o", markersize=3, color=_COLOURS[0])
    upper.set_ylim(bottom=0)
    upper.yaxis.set_major_locator(MaxNLocator(integer=True))
    upper.set_ylabel("steps between checkpoints (k)")
    picture.set_title(upper, run)
    ends = [one.step for one in section.windows]
    percents = [100 * one.overhead for one in section.windows]
    ranges = [
        [100 * (one.overhead - one.low) for one in section.windows],
        [100 * (one.high - one.overhead) for one in section.windows],
    ]
    if ends:
        lower.errorbar(
            ends, percents, ranges, fmt="o", markersize=3, capsize=2, color=_COLOURS[1], label="measured, 95 %"
        )
    lower.axhline(100 * section.overhead, color="black", linewidth=0.8, linestyle="--", label="budget")
    lower.axhline(0, color="grey", linewidth=0.8, linestyle=":")
    lower.set_ylabel("overhead, %")
    lower.set_xlabel("step")
    lower.legend(frameon=False, fontsize=8)
    for panel in (upper, lower):
        panel.grid(axis="y", alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    picture.publish(figure, path)
