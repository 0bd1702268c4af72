"""The picture of a plan of a step: which tensor is copied and written when, the memory that copies hold, and the use of the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deepfreeze import wording
from deepfreeze.cli import picture
from deepfreeze.plan.step import usage
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.question import Question
from deepfreeze.plan.step.step_plan import StepPlan

_ROWS = 20  # of the largest tensors; all others share a row
_COPY, _WRITE, _DIRECT, _HELD, _LIMIT = "#2b6ca3", "#d9822b", "#c0392b", "#9db8cf", "black"
_PHASES = {"forward": "#f1f6fb", "backward": "#fdf3e3", "update": "#e9f3e4", "between": "#ececec"}
_OTHERS = "all others"


def draw(plan: StepPlan, title: str, path: Path) -> None:
    """Draws the plan into a PNG file, which is replaced if it exists. Errors of ``picture.new_figure`` and ``picture.publish``."""
    rows = _rows(plan.question)
    figure = picture.new_figure(10, 4 + 0.22 * len(rows))
    from matplotlib.patches import Patch

    upper, memory, rate = figure.subplots(3, 1, sharex=True, height_ratios=(2 + 0.22 * len(rows), 1.4, 1.4))
    axis = _Axis(plan)
    for panel in (upper, memory, rate):
        axis.phases(panel)
        panel.spines[["top", "right"]].set_visible(False)
    _moves(upper, axis, plan, rows)
    colours = {"copied": _COPY, "held": _HELD, "written": _WRITE, "written without a copy": _DIRECT}
    handles = [Patch(color=colour, label=label) for label, colour in colours.items()]
    handles += [Patch(facecolor=_PHASES[name], edgecolor="#cccccc", label=name) for name in axis.seen]
    upper.legend(
        handles=handles, frameon=False, fontsize=7, ncols=len(handles), loc="lower left", bbox_to_anchor=(0, 1)
    )
    picture.set_title(upper, title, pad=18)
    _memory(memory, axis, plan)
    _rate(rate, axis, plan.question, plan.parts)
    rate.set_xlim(axis.edges[0], axis.edges[-1])
    rate.set_xlabel("milliseconds from the end of the captured step")
    picture.publish(figure, path)


def _rows(question: Question) -> list[tuple[str, list[int]]]:
    """(label, indices of the tensors) of each row: the largest tensors in the order of their updates, then all others."""
    tensors = question.tensors
    by_size = sorted(range(len(tensors)), key=lambda index: -tensors[index].nbytes)
    largest = sorted(by_size[:_ROWS], key=lambda index: (tensors[index].update, index))
    rows = [(f"{tensors[index].name}, {wording.size(tensors[index].nbytes)}", [index]) for index in largest]
    others = by_size[_ROWS:]
    if others:
        rows.append((f"{_OTHERS}, {wording.size(sum(tensors[index].nbytes for index in others))}", others))
    return rows


class _Axis:
    """The axis of time, in milliseconds: 0 is the end of the captured step. ``windows``: those that it shows; ``seen``: their phases."""

    def __init__(self, plan: StepPlan) -> None:
        question = self.question = plan.question
        first = min((part.write if part.copy is None else part.copy for part in plan.parts), default=0)
        self.windows = range(min(0, first), max(question.horizon, plan.end + 1))
        self.seen = [name for name in _PHASES if any(window.phase == name for window in question.windows)]

    def begin(self, number: int) -> float:
        """The moment at which a window begins."""
        between = range(number) if number >= 0 else range(number, 0)
        seconds = sum(self.question.window(one).seconds for one in between)
        return 1e3 * (seconds if number >= 0 else -seconds)

    @property
    def edges(self) -> list[float]:
        """The moments at which the windows that are shown begin, and the one at which the last of them ends."""
        return [self.begin(number) for number in (*self.windows, self.windows.stop)]

    def phases(self, panel: Any) -> None:
        """Colours the background by phase, with a line where a step ends."""
        for number in self.windows:
            colour = _PHASES[self.question.window(number).phase]
            panel.axvspan(self.begin(number), self.begin(number + 1), color=colour, linewidth=0, zorder=0)
            if number % len(self.question.windows) == 0:
                panel.axvline(self.begin(number), color="#888888", linewidth=0.8, zorder=1)


def _moves(panel: Any, axis: _Axis, plan: StepPlan, rows: Sequence[tuple[str, list[int]]]) -> None:
    """A bar in each window in which a tensor's parts are copied or written. Its height is the share of the tensor."""
    per_step = len(plan.question.windows)
    for row, (_, indices) in enumerate(rows):
        those = [part for part in plan.parts if part.tensor in indices]
        whole = sum(part.nbytes for part in those) or 1
        for part in those:
            if part.copy is not None:
                begin = axis.begin(part.copy)
                panel.broken_barh(
                    [(begin, axis.begin(part.write + 1) - begin)], (row - 0.06, 0.12), color=_HELD, zorder=2
                )
        shares: dict[tuple[int, str], float] = {}
        for part in those:
            moves = [(part.write, _DIRECT)] if part.copy is None else [(part.copy, _COPY), (part.write, _WRITE)]
            for move in moves:
                shares[move] = shares.get(move, 0.0) + part.nbytes / whole
        for (number, colour), share in shares.items():
            begin, height = axis.begin(number), 0.8 * max(share, 0.15)
            where = (row - height / 2, height)
            panel.broken_barh([(begin, axis.begin(number + 1) - begin)], where, color=colour, alpha=0.9, zorder=3)
        if len(indices) == 1:
            update = plan.question.tensors[indices[0]].update
            for number in (update - per_step, update):
                if number in axis.windows:
                    panel.plot([axis.begin(number)], [row], "|", color="black", markersize=8, zorder=4)
    panel.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=7)
    panel.set_ylim(len(rows) - 0.4, -0.6)


def _memory(panel: Any, axis: _Axis, plan: StepPlan) -> None:
    question = plan.question
    held, base = usage.held(question, plan.parts), usage.bases(question)
    number = np.array(axis.windows) % question.horizon
    panel.stairs((held + base)[number] / 1e6, axis.edges, fill=True, color=_HELD, label="copies")
    if base.any():
        panel.stairs(base[number] / 1e6, axis.edges, fill=True, color="#cccccc", label="without copies")
    limit = plan.peak if question.memory is None else question.memory
    label = f"smallest peak, {wording.size(limit)}" if question.memory is None else f"memory={wording.size(limit)}"
    panel.axhline(limit / 1e6, color=_LIMIT, linewidth=0.8, linestyle="--", label=label)
    panel.set_ylim(bottom=0)
    panel.set_ylabel("memory, MB", fontsize=8)
    _legend_above(panel)


def _legend_above(panel: Any) -> None:
    """Draws the panel's legend above the panel, where no bar is covered."""
    panel.legend(frameon=False, fontsize=7, ncols=2, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0)


def _rate(panel: Any, axis: _Axis, question: Question, parts: Sequence[PlannedPart]) -> None:
    number = np.array(axis.windows) % question.horizon
    seconds = np.array([question.window(int(one)).seconds or np.inf for one in number])
    used, there = usage.written(question, parts)[number], usage.capacities(question)[number]
    panel.stairs(used / seconds / 1e9, axis.edges, fill=True, color=_WRITE, label="written")
    panel.stairs(there / seconds / 1e9, axis.edges, color=_LIMIT, linewidth=0.8, label="the store takes")
    panel.set_ylim(bottom=0)
    panel.set_ylabel("rate, GB/s", fontsize=8)
    _legend_above(panel)
