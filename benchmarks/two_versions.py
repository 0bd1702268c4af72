"""An older version of the project and this one, measured in turns on one machine. python -m benchmarks.two_versions --help

Each benchmark is run by the older version and then by this one; in every second round, by this one first. Each version runs its own code of
the benchmark, with its own engine. The results are kept in a folder, so that a run which was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import noise
from benchmarks.before import Quantity, quantities
from benchmarks.report import QUICK, RESULTS, ROOT, Report, say, table

# Of each benchmark, the options by which it leaves out what the table does not show.
BENCHMARKS: dict[str, list[str]] = {"stall": [], "peers": [], "overhead": ["--parts", "trainings"], "restore": []}
_FILE = RESULTS / "two_versions.json"
_SIDES = ("before", "now")


def compared() -> Iterator[Quantity]:
    """The lines of the table."""
    yield from (one for one in quantities() if one.benchmark in BENCHMARKS)


def measure(trees: dict[str, Path], rounds: int, into: Path) -> None:
    """Runs each benchmark in the tree of each side, so many times; a JSON file for each run. ``CalledProcessError`` if one fails."""
    into.mkdir(parents=True, exist_ok=True)
    busy = into / "noise.json"
    if not busy.exists():
        noise.main(["--json", str(busy)])
    for number in range(rounds):
        for benchmark, options in BENCHMARKS.items():
            for side in _SIDES if number % 2 == 0 else reversed(_SIDES):
                path = _path(into, benchmark, number, side)
                if path.exists():
                    continue
                say(f"round {number + 1} of {rounds}: {benchmark}, {side} ...")
                program = [".venv/bin/python", "-m", f"benchmarks.{benchmark}", "--noise", str(busy), "--anyway"]
                files = ["--json", str(path), "--png", str(path.with_suffix(".png"))]
                subprocess.run([*program, *options, *files], cwd=trees[side], check=True, stdout=subprocess.DEVNULL)


def gathered(into: Path, rounds: int, commit: str) -> Report:
    """The samples of all rounds: a row for each line of the table. ``commit``: the older version."""
    found = Report("two_versions", "What has changed?", {"commit": commit, "rounds": rounds})
    found.noise = Report.load(_path(into, "stall", 0, "now")).noise
    for one in compared():
        row = found.row(**one.key)
        for side in _SIDES:
            reports = [Report.load(_path(into, one.benchmark, number, side)) for number in range(rounds)]
            values = [report.find(**one.labels).values[one.value] for report in reports]
            row.add(side, values[0]["unit"], [sample for value in values for sample in value["samples"]])
    return found


def tables(found: Report) -> str:
    """A line for each quantity: before, now, and the ratio of their medians."""
    lines = []
    for one in compared():
        row = found.find(**one.key)
        medians = [row.median(side) for side in _SIDES]
        # A slowdown and a stall may be negative, where noise is larger than they are.
        ratio = "-" if one.zero or min(medians) <= 0 else f"{medians[1] / medians[0]:.2f}"
        lines.append([one.benchmark, one.what, one.unit, *(one.cell(row.values[side]) for side in _SIDES), ratio])
    return table(["benchmark", "what", "unit", f"before, {found.settings['commit']}", "now", "now / before"], lines)


def _path(into: Path, benchmark: str, number: int, side: str) -> Path:
    return into / f"{benchmark}-{number}-{side}.json"


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.two_versions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tree", type=Path, help="a clone with the older version, in which `make setup` was run")
    parser.add_argument("--rounds", type=int, default=2, help="(%(default)s)")
    parser.add_argument(
        "--into", type=Path, default=QUICK / "two_versions", help="where each run's result is kept (%(default)s)"
    )
    parser.add_argument("--json", type=Path, default=_FILE, help="where the samples go (%(default)s)")
    args = parser.parse_args(argv)
    tree = args.tree.resolve()
    if not (tree / ".venv" / "bin" / "python").exists():
        parser.error(f"{tree}: expected a clone in which `make setup` was run; found no .venv/bin/python")
    asked = ["git", "-C", str(tree), "rev-parse", "--short=7", "HEAD"]
    commit = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    into = args.into.resolve()
    measure({"before": tree, "now": ROOT}, args.rounds, into)
    found = gathered(into, args.rounds, commit)
    found.save(args.json)
    print(tables(found))


if __name__ == "__main__":
    main()
