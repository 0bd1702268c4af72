"""What a benchmark found: rows of labelled raw samples, as JSON; tables and figures are made from that file alone.

{"benchmark": ..., "question": ..., "machine": {...}, "settings": {...}, "noise": {...},
 "rows": [{"labels": {...}, "values": {"blocking": {"unit": "s", "samples": [...], "median": ..., "min": ..., "max": ...}}}]}
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import noise
from benchmarks.measured_on import machine

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FIGURES = ROOT / "docs" / "figures"
QUICK = ROOT / "build" / "bench"  # what only shows that a benchmark works takes the place of nothing
_BEGUN = time.monotonic()


@dataclass
class Row:
    """One line of a table: what was varied (``labels``) and what was measured (``values``: name -> unit and raw samples)."""

    labels: dict[str, Any]
    values: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, unit: str, samples: Iterable[float]) -> Row:
        """Adds raw samples of one quantity; an empty list is left out."""
        raw = [float(sample) for sample in samples]
        if raw:
            middle = {"median": statistics.median(raw), "min": min(raw), "max": max(raw)}
            self.values[name] = {"unit": unit, **middle, "samples": raw}
        return self

    def median(self, name: str) -> float:
        """The median of one quantity; KeyError if it was not measured."""
        return self.values[name]["median"]

    def samples(self, name: str) -> list[float]:
        """Its raw samples, [] if it was not measured."""
        return self.values.get(name, {}).get("samples", [])


@dataclass
class Report:
    """All rows of one benchmark."""

    benchmark: str
    question: str
    settings: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=machine)
    rows: list[Row] = field(default_factory=list)
    noise: dict[str, float] | None = None  # of the machine, just before; None where it was not measured

    def row(self, **labels: Any) -> Row:
        """A new row at the end."""
        self.rows.append(Row(labels))
        return self.rows[-1]

    def add_part(self, part: str, rows: Iterable[Row]) -> None:
        """Adds the rows of a part, which have its name as the label "part". ValueError if a row has another one there."""
        for row in rows:
            if row.labels.get("part", part) != part:
                raise ValueError(
                    f"{self.benchmark}: a row of the part {part} has the label part={row.labels['part']!r} of its own"
                )
            row.labels = {"part": part, **row.labels}
            self.rows.append(row)

    def find(self, **labels: Any) -> Row:
        """The one row that has these labels. KeyError if there is none."""
        for row in self.rows:
            if all(row.labels.get(key) == value for key, value in labels.items()):
                return row
        raise KeyError(f"{self.benchmark}: no row with {labels}")

    def save(self, path: Path) -> None:
        """Writes the JSON file, its folder too."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"labels": row.labels, "values": row.values} for row in self.rows]
        top = {name: getattr(self, name) for name in ("benchmark", "question", "machine", "settings", "noise")}
        path.write_text(json.dumps({**top, "rows": rows}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Report:
        """Reads what ``save`` wrote."""
        top = json.loads(path.read_text())
        rows = [Row(row["labels"], row["values"]) for row in top.pop("rows")]
        return cls(**top, rows=rows)


def interval(samples: list[float], of: str = "median") -> tuple[float, float]:
    """Where the median lies, or the mean (``of="mean"``), 95 %: the bootstrap's percentiles, the same at every call."""
    import numpy as np  # drawing is what needs it; who only writes samples may have none

    drawn = np.random.default_rng(0).choice(samples, (4000, len(samples)))
    low, high = np.percentile(getattr(np, of)(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)


def span(row: Row, name: str, scale: float = 1.0, digits: int = 1) -> str:
    """``median (min..max)`` of a quantity times ``scale``; "-" if it was not measured."""
    value = row.values.get(name)
    if value is None:
        return "-"
    low, middle, high = (f"{value[key] * scale:.{digits}f}" for key in ("min", "median", "max"))
    return middle if len(value["samples"]) == 1 else f"{middle} ({low}..{high})"


def table(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    rows = [list(header), ["---"] * len(header), *([str(cell) for cell in line] for line in lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def distributions(
    path: Path, title: str, axes_of: tuple[str, str], curves: dict[str, list[float]], zero: bool = False
) -> None:
    """Draws the part of the samples that are at most x, a curve for each name. ``axes_of``: what x and y are; ``zero``: with a line
    at x = 0."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for name, samples in curves.items():
        axes.ecdf(samples, label=name)
    if zero:
        axes.axvline(0, color="black", linewidth=0.8)
    axes.set(xlabel=axes_of[0], ylabel=axes_of[1], title=title)
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def say(text: str) -> None:
    """Progress and the seconds since the start, to the terminal and not into what is piped on."""
    print(f"{time.monotonic() - _BEGUN:5.0f} s  {text}", file=sys.stderr, flush=True)


def add_parts(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Adds the option --parts, which chooses some of a benchmark's parts."""

    def parts(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := set(chosen) - set(names):
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: expected some of {', '.join(names)}")
        return chosen

    parser.add_argument(
        "--parts", type=parts, default=list(names), metavar="NAMES", help=f"some of {','.join(names)} (all)"
    )


def before(args: argparse.Namespace, made: Report, names: Sequence[str]) -> Report | None:
    """The report that ``made`` takes the place of, if parts of it stay: those that ``args.parts`` leaves out of ``names``. ``SystemExit``
    if another machine made it."""
    if set(args.parts) == set(names) or not args.json.exists():
        return None
    found = Report.load(args.json)
    same = all(found.machine.get(name) == made.machine[name] for name in ("processor", "cores", "memory_bytes"))
    if not same:
        raise SystemExit(f"{args.json} is of another machine: measure all parts, or write elsewhere by --json")
    return found


def of_part(found: Report | None, part: str) -> list[Row]:
    """The rows of one part, [] if it was not measured."""
    return [row for row in found.rows if row.labels["part"] == part] if found else []


def run(
    name: str,
    doc: str,
    measure: Callable[[argparse.Namespace], Report],
    tables: Callable[[Report], str],
    draw: Callable[[Report, Path], None],
    options: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
    argv: Sequence[str] | None = None,
) -> None:
    """The command line that all benchmarks share: measures (or reads an earlier JSON), writes JSON and PNG, prints tables."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help=f"where the raw samples go (benchmarks/results/{name}.json)")
    parser.add_argument("--png", type=Path, help=f"where the figure goes (docs/figures/{name}.png)")
    parser.add_argument("--folder", type=Path, help="on the disk to measure (default: the temporary directory)")
    parser.add_argument("--samples", type=int, default=3, help="repetitions of everything (%(default)s)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small sizes, 2 samples, into build/bench: to see that it works, not to measure",
    )
    parser.add_argument(
        "--from-json", action="store_true", help="measure nothing: tables and figure of --json as it is"
    )
    parser.add_argument(
        "--noise", type=Path, metavar="JSON", help="measured by benchmarks.noise (default: measured first, 30 s)"
    )
    parser.add_argument(
        "--anyway", action="store_true", help="replace published results even if the machine is busier now"
    )
    options(parser)
    args = parser.parse_args(argv)
    if args.quick:
        args.samples = 2
    args.json = args.json or (QUICK if args.quick else RESULTS) / f"{name}.json"
    args.png = args.png or (QUICK if args.quick else FIGURES) / f"{name}.png"
    if args.from_json:
        report = Report.load(args.json)
    else:
        found = _noise(args)
        begun = time.monotonic()
        report = measure(args)
        report.noise = report.noise or found
        report.settings.setdefault("samples", args.samples)
        report.settings["seconds"] = round(time.monotonic() - begun)
        report.save(args.json)
    args.png.parent.mkdir(parents=True, exist_ok=True)
    draw(report, args.png)
    print(tables(report))


def _noise(args: argparse.Namespace) -> dict[str, float] | None:
    """The machine's noise, for the report; ``SystemExit`` if it is too loud for the place that the report goes to."""
    if args.quick and args.noise is None:
        return None
    if args.noise is None:
        say(f"how busy is this machine? {noise.SECONDS:.0f} s ...")
    now = noise.load(args.noise) if args.noise else noise.measure(args.folder)
    if args.json.exists() and args.json.resolve().is_relative_to(RESULTS) and not args.anyway:
        noise.check(now, [args.json], machine())
    return asdict(now)
