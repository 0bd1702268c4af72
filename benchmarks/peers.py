"""What does a checkpoint cost with DeepFreeze, and with the others? python -m benchmarks.peers --help

The same state (the tensors of NT3 and of ResNet-50, as many and as large as theirs, random values) saved by each approach in
turn, in the same minutes on the same disk; every checkpoint is restored and compared with what was saved. One rank.

Training is an SGD update of all tensors in place and nothing else, so that nothing hides what a checkpoint costs:

  blocking   how long the call that saves holds up training
  extra      what the update right after it takes more than one without a checkpoint: copies made on write show here
             (DeepFreeze: the captured step and the next one, against two plain ones; its copies may be made in either)
  stall      both together
  done       from the call until the approach says that the checkpoint is complete
  durable    the same, on the disk. Where the approach never asks the disk (fsync "no"), fsync of its files is added here
  restore    from a warm page cache into the variables that are trained (jax and Orbax: into new arrays)

The first round warms up and is not counted. The machine's limits are measured in the same rounds. DeepFreeze's synchronous
levels have rounds of their own, after those. TensorFlow's approaches and DeepFreeze run in this environment; torch, Orbax,
safetensors and numpy in .venv-peers, which `python tools/peers.py` makes. Needs 16 GB of memory.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import machine, report, workloads
from benchmarks.peers_children import Children
from benchmarks.report import Report, Row, say, span, table

WORKLOADS = {"nt3": "NT3", "resnet50": "ResNet-50"}
_SECONDS = ("blocking", "extra", "stall", "done", "durable", "restore", "update")
_QUICK_BYTES = 1 << 24
# The sides whose rounds are interleaved. All of them at once would leave the page cache too little memory to write through.
_GROUPS = (("captured", "tensorflow", "others"), ("local", "external"))


def measure(args: argparse.Namespace) -> Report:
    """All approaches over both workloads."""
    found = Report("peers", "What does a checkpoint cost with DeepFreeze, and with others?")
    for workload in WORKLOADS:
        with tempfile.TemporaryDirectory(dir=args.folder, prefix="deepfreeze-") as folder:
            _measure(found, workload, Path(folder).resolve(), args)
    return found


def _measure(found: Report, workload: str, folder: Path, args: argparse.Namespace) -> None:
    nbytes = _QUICK_BYTES if args.quick else workloads.nbytes(workload)
    answers: dict[str, list[dict[str, float]]] = {}
    fsync: dict[str, str] = {}
    limits = machine.Limits(nbytes, folder)
    try:
        for group in _GROUPS:
            say(f"{workload}: starting {', '.join(group)} ...")
            with Children(group, workload, folder, args.quick) as children:
                found.settings.setdefault("versions", {}).update(children.versions)
                fsync.update(children.fsync)
                for number in range(args.samples + 1):
                    say(f"{workload}: round {number} of {args.samples}" + " (warms up)" * (number == 0))
                    if group is _GROUPS[0]:
                        limits.measure()
                    for name, answer in children.round():
                        answers.setdefault(name, []).append(answer)
        seconds = limits.seconds()
    finally:
        limits.close()
    for name, (_, *rounds) in answers.items():
        row = found.row(workload=workload, approach=name, fsync=fsync[name])
        for value in _SECONDS:
            row.add(value, "s", [answer[value] for answer in rounds])
        row.add("bytes", "B", [answer["bytes"] for answer in rounds])
    machine.add_rows(found, seconds, nbytes, workload=workload)


def approaches(found: Report, workload: str) -> list[Row]:
    """The rows of one workload that are no limits, the shortest stall first."""
    rows = [row for row in found.rows if row.labels["workload"] == workload and "approach" in row.labels]
    return sorted(rows, key=lambda row: row.median("stall"))


def limits(found: Report, workload: str) -> list[Row]:
    """The rows of one workload that are limits."""
    return [row for row in found.rows if row.labels["workload"] == workload and "limit" in row.labels]


def tables(found: Report) -> str:
    """For each workload, the approaches; the limits are the tables of ``benchmarks.machine``."""
    header = ["approach", "blocking", "extra", "stall", "done", "durable", "fsync", "MB", "restore"]
    parts = []
    for workload, title in WORKLOADS.items():
        lines = []
        for row in approaches(found, workload):
            times = {name: span(row, name, 1e3) for name in _SECONDS}
            before = [times[name] for name in ("blocking", "extra", "stall", "done", "durable")]
            nbytes = f"{row.median('bytes') / 1e6:.0f}"
            lines.append([row.labels["approach"], *before, row.labels["fsync"], nbytes, times["restore"]])
        parts += [f"{title}, milliseconds:", table(header, lines)]
    return "\n\n".join(parts)


def draw(found: Report, path: Path) -> None:
    """A panel for each workload: stall and time to durable of each approach, and two limits."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(len(WORKLOADS), 1, figsize=(8, 9), sharex=True)
    for axes, (workload, title) in zip(panels, WORKLOADS.items(), strict=True):
        rows = approaches(found, workload)
        _bars(axes, rows, -0.2, "stall", "training stalls", "tab:blue")
        _bars(axes, rows, 0.2, "durable", "on the disk", "tab:orange")
        lines = {machine.MEMCPY: ("one copy in memory", "tab:blue"), machine.DIRECT: ("the disk's best", "tab:orange")}
        for row in limits(found, workload):
            if row.labels["limit"] in lines:
                label, colour = lines[row.labels["limit"]]
                axes.axvline(row.median("seconds") * 1e3, color=colour, linestyle="--", linewidth=1, label=label)
        names = [row.labels["approach"] + " *" * (row.labels["fsync"] == "no") for row in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
        axes.set_title(title)
    panels[-1].set_xlabel("milliseconds (median; line: min to max)")
    figure.text(0.01, 0.008, "* never asks the disk; fsync added")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _bars(axes: Any, rows: list[Row], shift: float, value: str, label: str, colour: str) -> None:
    # Below a tenth of a millisecond (an extra may even be negative) there is nothing but noise; a log scale needs some length.
    low, middle, high = ([max(row.values[value][key] * 1e3, 0.1) for row in rows] for key in ("min", "median", "max"))
    reach = [[m - a for m, a in zip(middle, low)], [b - m for m, b in zip(middle, high)]]
    places = [number + shift for number in range(len(rows))]
    axes.barh(places, middle, 0.4, xerr=reach, label=label, color=colour, error_kw={"linewidth": 0.8})


if __name__ == "__main__":
    report.run("peers", __doc__ or "", measure, tables, draw)
