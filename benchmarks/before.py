"""The figures of the version before the package was ordered into folders, beside those of today. python -m benchmarks.before --help

Measures nothing. ``benchmarks/published/before.json`` has the older figures, ``benchmarks/results`` those of today.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import restore
from benchmarks.report import RESULTS, ROOT, Report, table

FILE = ROOT / "benchmarks" / "published" / "before.json"
_MODELS = {"nt3": "NT3", "resnet50": "ResNet-50"}


@dataclass(frozen=True)
class Quantity:
    """A line of the table. It shows ``value`` of the row with these ``labels`` in the results of one benchmark, as (value - ``zero``) x
    ``scale``, in ``unit``."""

    benchmark: str
    what: str
    labels: dict[str, Any]
    value: str
    unit: str = "ms"
    scale: float = 1e3
    digits: int = 1
    zero: float = 0.0

    @property
    def key(self) -> dict[str, str]:
        """The labels of its row in ``FILE``."""
        return {"benchmark": self.benchmark, "what": self.what}

    def of(self, results: Report) -> dict[str, Any]:
        """Unit, median, smallest and largest, from the benchmark's report."""
        found = results.find(**self.labels).values[self.value]
        return {name: found[name] for name in ("unit", "median", "min", "max")}

    def cell(self, found: dict[str, Any]) -> str:
        """``median (min..max)``; the median alone of one sample."""
        middle, low, high = (
            f"{(found[name] - self.zero) * self.scale:.{self.digits}f}" for name in ("median", "min", "max")
        )
        return middle if found["min"] == found["max"] else f"{middle} ({low}..{high})"


@dataclass
class Section:
    """The lines of one benchmark."""

    benchmark: str
    quantities: list[Quantity] = field(default_factory=list)

    def add(self, what: str, value: str, /, labels: dict[str, Any], **shown: Any) -> None:
        """Adds a line to the section. ``shown``: the fields of ``Quantity`` that say how its value is shown."""
        self.quantities.append(Quantity(self.benchmark, what, labels, value, **shown))


def quantities() -> Iterator[Quantity]:
    """All lines. The first ones say what the machine could do on either day."""
    for section in (_machine(), _stall(), _peers(), _overhead(), _restore(), _scaling()):
        yield from section.quantities


def _machine() -> Section:
    lines = Section("peers")
    for limit in (
        "memcpy, touched memory",
        "memcpy, fresh pages",
        "page-cache read",
        "disk write, O_DIRECT",
        "disk read, O_DIRECT",
    ):
        labels = {"limit": limit, "workload": "nt3"}
        lines.add(f"{limit}, 620 MB", "rate", labels, unit="GB/s", scale=1e-9, digits=2)
    return lines


def _stall() -> Section:
    lines = Section("stall")
    for workload, model in _MODELS.items():
        labels = {"kind": "checkpoint", "workload": workload, "ranks": 1, "wait_for": "captured"}
        lines.add(f"{model}, plain step", "plain", labels, digits=0)
        lines.add(f"{model}, blocking", "blocking", labels, digits=2)
        lines.add(f"{model}, whole stall", "stall", labels)
    for ranks in (1, 2, 4):
        labels = {"kind": "checkpoint", "workload": "light", "ranks": ranks, "wait_for": "captured"}
        lines.add(f"`light`, {ranks} rank{'s' * (ranks > 1)}, whole stall", "stall", labels)
    lines.add("`light`, 1 rank, waits for local, blocking", "blocking", {"kind": "checkpoint", "wait_for": "local"})
    return lines


def _peers() -> Section:
    lines = Section("peers")
    for workload, model in _MODELS.items():
        for value in ("stall", "durable", "restore"):
            lines.add(f"{model}, {value}", value, {"workload": workload, "approach": "DeepFreeze"})
    return lines


def _overhead() -> Section:
    lines = Section("overhead")
    slowdown = {"unit": "%", "scale": 1e2, "zero": 1.0}
    for workload, model in _MODELS.items():
        for every in (15, 5, 1):
            labels = {"workload": workload, "ranks": 1, "every": every}
            lines.add(f"{model}, every {every}, slowdown", "slowdown", labels, **slowdown)
        labels = {"workload": workload, "ranks": 1, "every": None}
        lines.add(f"{model}, peak extra memory", "extra memory", labels, unit="MB", scale=1e-6, digits=0)
    return lines


def _restore() -> Section:
    lines = Section("restore")
    for what in (restore.COLD, restore.WARM, "of 2 ranks, cached", "local tier: commit, restore"):
        lines.add(f"NT3, {what}", "seconds", {"workload": "nt3", "what": what}, digits=0)
    lines.add("NT3, one layer, not cached", "seconds, not cached", {"workload": "nt3", "what": "one layer"})
    return lines


def _scaling() -> Section:
    lines = Section("scaling")
    for ranks in (1, 8):
        labels = {"series": "ranks", "x": ranks}
        lines.add(f"NT3's weights, {ranks} rank{'s' * (ranks > 1)}, committed", "committed", labels, digits=0)
    lines.add("NT3's weights, 1 rank, CPU", "cpu", {"series": "ranks", "x": 1}, unit="s/GB", scale=1, digits=2)
    rate = {"unit": "GB/s", "scale": 1, "digits": 2}
    lines.add("two checkpoints of 60 MB in flight", "throughput", {"series": "in flight", "x": 2}, **rate)
    lines.add("placement plan, 1024 ranks", "plan", {"series": "plan", "x": 1024})
    return lines


def taken(results: Path, commit: str, date: str) -> Report:
    """What ``FILE`` holds of the results in a folder. ``commit``, ``date``: where and when they were published."""
    reports = {one.benchmark: Report.load(results / f"{one.benchmark}.json") for one in quantities()}
    machine = reports["stall"].machine
    made = Report("before", "What has changed?", {"commit": commit, "date": date}, machine)
    for one in quantities():
        made.row(**one.key).values["found"] = one.of(reports[one.benchmark])
    return made


def tables(before: Report) -> str:
    """A line for each quantity: before, and now."""
    reports = {one.benchmark: Report.load(RESULTS / f"{one.benchmark}.json") for one in quantities()}
    lines = []
    for one in quantities():
        earlier, now = before.find(**one.key).values["found"], one.of(reports[one.benchmark])
        lines.append([one.benchmark, one.what, one.unit, one.cell(earlier), one.cell(now)])
    days = " and ".join(sorted({report.machine["date"] for report in reports.values()}))
    return table(["benchmark", "what", "unit", f"before, {before.machine['date']}", f"now, {days}"], lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the table; with --of it makes the file of older figures anew."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.before", description=__doc__)
    parser.add_argument("--of", type=Path, metavar="DIR", help=f"older JSON files, of which {FILE.name} is to be made")
    parser.add_argument("--commit", help="that had them")
    parser.add_argument("--date", help="of that commit")
    args = parser.parse_args(argv)
    if args.of:
        if not (args.commit and args.date):
            parser.error("--of needs --commit and --date")
        taken(args.of, args.commit, args.date).save(FILE)
    print(tables(Report.load(FILE)))


if __name__ == "__main__":
    main()
