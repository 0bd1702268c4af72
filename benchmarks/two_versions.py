"""An older version of the project and this one, measured in turns on one machine. python -m benchmarks.two_versions --help

Each benchmark is run by the older version and then by this one; in every second round, by this one first. Each version runs its own code of
the benchmark, with its own engine, so the older one must know the same options and rows; ``callback`` alone runs this version's code on
either. The result of each run is kept in a folder for the
two commits. A measurement that was ended goes on from there.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import callback, noise
from benchmarks.before import Quantity, quantities
from benchmarks.report import QUICK, RESULTS, ROOT, Report, say, table

# Of each benchmark, the options by which it leaves out what the table does not show.
BENCHMARKS: dict[str, list[str]] = {
    "stall": [],
    "peers": [],
    "overhead": ["--parts", "trainings"],
    "restore": [],
    "callback": [],
}
_ON_EITHER = {"callback"}  # has an option for the tree that is measured
_FILE = RESULTS / "two_versions.json"
_SIDES = ("before", "now")


def compared() -> Iterator[Quantity]:
    """The lines of the table."""
    yield from (one for one in quantities() if one.benchmark in BENCHMARKS)
    for model in callback.MODELS:
        for when, text in callback.WHEN.items():
            yield Quantity("callback", f"{model}, {text}", {"model": model}, when, "us", 1e6, 0)


def measure(trees: dict[str, Path], rounds: int, into: Path) -> None:
    """Runs each benchmark in the tree of each side, so many times; a JSON file for each run. SystemExit if one fails, or lacks a row."""
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
                half = path.with_suffix(".half")  # a run that was killed has no result
                program = [".venv/bin/python", "-m", f"benchmarks.{benchmark}", "--noise", str(busy), "--anyway"]
                files = ["--json", str(half), "--png", str(path.with_suffix(".png"))]
                where, tree = trees[side], []
                if benchmark in _ON_EITHER:
                    where, tree = trees["now"], ["--tree", str(trees[side])]
                done = subprocess.run([*program, *options, *tree, *files], cwd=where, stdout=subprocess.DEVNULL)
                if done.returncode:
                    raise SystemExit(f"{benchmark} of {trees[side]} has failed, with exit code {done.returncode}")
                found = Report.load(half)
                for one in compared():
                    if one.benchmark == benchmark and not _samples(one, found):
                        raise SystemExit(
                            f"{benchmark} of {trees[side]} has no row for {one.what!r}: too old a version?"
                        )
                half.rename(path)


def gathered(into: Path, rounds: int, commits: dict[str, str]) -> Report:
    """The samples of all rounds: a row for each line of the table. ``commits``: of each side."""
    found = Report("two_versions", "What has changed?", {**commits, "rounds": rounds})
    first = Report.load(_path(into, "stall", 0, "now"))
    found.machine, found.noise = first.machine, first.noise
    for one in compared():
        row = found.row(**one.key)
        for side in _SIDES:
            reports = [Report.load(_path(into, one.benchmark, number, side)) for number in range(rounds)]
            unit = one.of(reports[0])["unit"]
            row.add(side, unit, [sample for report in reports for sample in _samples(one, report)])
    return found


def tables(found: Report) -> str:
    """A line for each quantity: before, now, and the ratio of their medians. Results that are older than a benchmark have none of its
    lines."""
    lines = []
    measured = {row.labels["benchmark"] for row in found.rows}
    for one in (one for one in compared() if one.benchmark in measured):
        row = found.find(**one.key)
        medians = [row.median(side) for side in _SIDES]
        # A slowdown and a stall may be negative, where noise is larger than they are.
        ratio = "-" if one.zero or min(medians) <= 0 else f"{medians[1] / medians[0]:.2f}"
        lines.append([one.benchmark, one.what, one.unit, *(one.cell(row.values[side]) for side in _SIDES), ratio])
    heads = [f"{side}, {found.settings[side]}" for side in _SIDES]
    return table(["benchmark", "what", "unit", *heads, "now / before"], lines)


def _samples(one: Quantity, found: Report) -> list[float]:
    """The samples of a line; none if the report has no such row."""
    try:
        return found.find(**one.labels).samples(one.value)
    except KeyError:
        return []


def _path(into: Path, benchmark: str, number: int, side: str) -> Path:
    return into / f"{benchmark}-{number}-{side}.json"


def _commit(tree: Path) -> str:
    """The commit of a clone that is set up; "-changed" is added if files of it differ. ValueError if it is no such clone."""
    if not (tree / ".venv" / "bin" / "python").exists():
        raise ValueError(f"{tree}: expected a clone in which `make setup` was run; found no .venv/bin/python")
    if not (tree / ".git").exists():
        raise ValueError(f"{tree}: expected a clone; found no .git")
    asked = ["git", "-C", str(tree), "describe", "--always", "--exclude=*", "--abbrev=7", "--dirty=-changed"]
    done = subprocess.run(asked, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{tree}: git does not tell its commit: {done.stderr.strip()}")
    return done.stdout.strip()


def _at_least_one(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1; found {text}")
    return int(text)


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.two_versions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tree", type=Path, help="a clone with the older version, in which `make setup` was run")
    parser.add_argument("--rounds", type=_at_least_one, default=2, help="(%(default)s)")
    parser.add_argument(
        "--into", type=Path, default=QUICK / "two_versions", help="folder for each run's result (%(default)s)"
    )
    parser.add_argument("--json", type=Path, default=_FILE, help="where the samples go (%(default)s)")
    args = parser.parse_args(argv)
    trees = {"before": args.tree.resolve(), "now": ROOT}
    try:
        commits = {side: _commit(tree) for side, tree in trees.items()}
    except ValueError as error:
        parser.error(str(error))
    into = args.into.resolve() / "-".join(commits.values())
    measure(trees, args.rounds, into)
    found = gathered(into, args.rounds, commits)
    found.save(args.json)
    print(tables(found))


if __name__ == "__main__":
    main()
