"""How is a checkpoint's file written best? python -m benchmarks.io_paths --help

Three ways: direct writes past the page cache (O_DIRECT); buffered writes through the page cache, each chunk of which is pushed to the disk
at once; and copies into the mapped file, which msync makes durable. The engine has the first two. The program io_paths.cc writes new files
of the sizes of ResNet-50 and NT3, with 1 to 8 writers, from memory that begins a page and from memory that does not, onto the disk and into
memory. ``--also NAME=DIRECTORY`` names another file system. In each round the three ways follow each other, in an order that changes from
round to round; a ratio compares files of one round. The first round is not counted: it finds memory for the page cache. CPU time is that of
the program, without the kernel's own threads and the daemons of a network file system.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import jobs
from benchmarks.report import ROOT, Report, Row, interval, run, say, span, table

DIRECT, BUFFERED, MMAP = PATHS = ("direct", "buffered", "mmap")
DISK, MEMORY = "disk", "memory"
UNIT = 4096  # bytes; sizes are multiples of it
SIZES = (200_003_584, 620_003_328)
ALSO_SIZES = SIZES[:1]
WRITERS = (1, 2, 4, 8)
QUICK_SIZES, QUICK_WRITERS = (9 << 20,), (1, 2)
ROUNDS = 11
SOURCES = {True: "aligned", False: "64 bytes off"}
_TIMEOUT = 1800.0  # of all rounds in one place


@dataclass(frozen=True)
class Cell:
    """One size of file and number of writers. Every way of writing is measured in each cell of every place."""

    nbytes: int
    aligned: bool
    writers: int

    def case(self, path: str) -> str:
        """As the program reads it."""
        return f"{path},{self.nbytes},{self.writers},{int(self.aligned)}"


def compile_program(folder: Path) -> Path:
    """Builds the program in ``folder`` with the compiler that builds the engine."""
    cache = ROOT / "build" / "native" / "CMakeCache.txt"
    lines = cache.read_text().splitlines() if cache.exists() else []
    compiler = next((line.partition("=")[2] for line in lines if line.startswith("CMAKE_CXX_COMPILER:")), "c++")
    native, program = ROOT / "native", folder / "io_paths"
    # The engine's own copy past the processor's caches, and what it is made of.
    sources = [
        ROOT / "benchmarks" / "io_paths.cc",
        *(native / "base" / f"{n}.cc" for n in ("copy", "crc32c", "crc32c_wide")),
    ]
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{native}"]
    subprocess.run([compiler, *flags, *map(str, sources), "-o", str(program)], check=True)
    return program


def measured(program: Path, folder: Path, cases: Sequence[str]) -> list[dict[str, float]]:
    """Runs the cases one after the other in ``folder``: seconds, cpu and bytes of each. ``SystemExit`` with the program's message."""
    done = subprocess.run([program, folder, *cases], capture_output=True, text=True, timeout=_TIMEOUT)
    if done.returncode:
        raise SystemExit(done.stderr.strip() or f"{program.name}: ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def takes_direct(folder: Path) -> bool:
    """Whether a file in ``folder`` can be opened for direct writes."""
    path = folder / "probe"
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600))
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)
    return True


def order(cells: Sequence[Cell], rounds: int) -> Iterator[tuple[Cell, str]]:
    """Every cell in each round, its three ways next to each other, each of them first in turn."""
    for number in range(rounds):
        for cell in cells:
            for turn in range(len(PATHS)):
                yield cell, PATHS[(number + turn) % len(PATHS)]


def add_place(report: Report, program: Path, name: str, folder: Path, sizes: Sequence[int], quick: bool) -> None:
    """A row for each cell of one place; none, with a notice, where direct writes are refused."""
    if not takes_direct(folder):
        say(f"{name}: no direct writes there; left out")
        return
    rounds = report.settings["rounds"]
    writers = QUICK_WRITERS if quick else WRITERS
    cells = [Cell(nbytes, aligned, n) for nbytes in sizes for aligned in SOURCES for n in writers]
    plan = list(order(cells, rounds + 1))
    say(f"{name}: {rounds} rounds and one before of {len(cells) * len(PATHS)} files ...")
    samples: dict[tuple[Cell, str], list[dict[str, float]]] = {}
    found = measured(program, folder, [cell.case(path) for cell, path in plan])
    for key, one in zip(plan, found, strict=True):
        samples.setdefault(key, []).append(one)
    for cell in cells:
        row = report.row(place=name, bytes=cell.nbytes, aligned=cell.aligned, writers=cell.writers)
        for path in PATHS:
            counted = samples[cell, path][1:]
            row.add(path, "s", [one["seconds"] for one in counted])
            row.add(f"{path} CPU", "s", [one["cpu"] for one in counted])


def measure(args: argparse.Namespace) -> Report:
    """All places, one after the other."""
    report = Report("io_paths", "How is a checkpoint's file written best?")
    report.settings["rounds"] = 2 if args.quick else ROUNDS
    sizes = QUICK_SIZES if args.quick else SIZES
    with jobs.places(args.folder) as (disk, memory), ExitStack() as stack:
        program = compile_program(disk)
        add_place(report, program, DISK, disk, sizes, args.quick)
        add_place(report, program, MEMORY, memory, sizes, args.quick)
        for name, directory in args.also:
            folder = Path(tempfile.mkdtemp(dir=directory, prefix="deepfreeze-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            add_place(report, program, name, folder, QUICK_SIZES if args.quick else ALSO_SIZES, args.quick)
    return report


def ratios(row: Row, path: str) -> list[float]:
    """Of each round: the seconds of a way over those of direct writes."""
    return [one / two for one, two in zip(row.samples(path), row.samples(DIRECT), strict=True)]


def tables(report: Report) -> str:
    """A line for each place, size, source and number of writers."""

    def over_direct(row: Row, path: str) -> str:
        found = ratios(row, path)
        low, high = interval(found)
        return f"{Row({}).add('ratio', '', found).median('ratio'):.2f} ({low:.2f}..{high:.2f})"

    lines = [
        [
            row.labels["place"],
            f"{row.labels['bytes'] / 1e6:.0f}",
            SOURCES[row.labels["aligned"]],
            row.labels["writers"],
            *(span(row, path, 1e3, 0) for path in PATHS),
            *(over_direct(row, path) for path in (BUFFERED, MMAP)),
            " / ".join(f"{row.median(f'{path} CPU') * 1e3:.0f}" for path in PATHS),
        ]
        for row in report.rows
    ]
    head = ["place", "MB", "source", "writers", *(f"{path}, ms" for path in PATHS)]
    head += [f"{path} / {DIRECT} (95 %)" for path in (BUFFERED, MMAP)]
    return table([*head, f"CPU of {' / '.join(PATHS)}, ms"], lines)


def draw(report: Report, path: Path) -> None:
    """A panel for each place: the ratios over the writers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys(row.labels["place"] for row in report.rows))
    figure, all_axes = pyplot.subplots(
        1, len(panels), figsize=(3.6 * len(panels), 3.8), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, place in zip(all_axes[0], panels, strict=True):
        rows = [row for row in report.rows if row.labels["place"] == place]
        kinds = dict.fromkeys((row.labels["bytes"], row.labels["aligned"]) for row in rows)
        for way, line in ((BUFFERED, "--"), (MMAP, "-")):
            for number, (nbytes, aligned) in enumerate(kinds):
                these = [row for row in rows if (row.labels["bytes"], row.labels["aligned"]) == (nbytes, aligned)]
                middle = [Row({}).add("ratio", "", ratios(row, way)).median("ratio") for row in these]
                label = f"{way}, {nbytes / 1e6:.0f} MB, {SOURCES[aligned]}"
                axes.plot([row.labels["writers"] for row in these], middle, f"o{line}", color=f"C{number}", label=label)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set(title=place, xlabel="writers", xscale="log")
        axes.set_xticks(shown := sorted({row.labels["writers"] for row in rows}), shown)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    all_axes[0][0].set(ylabel="time over that of direct writes", ylim=(0, None))
    all_axes[0][0].legend(fontsize=6)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def place(text: str) -> tuple[str, Path]:
    """NAME=DIRECTORY."""
    name, _, directory = text.partition("=")
    if not name or name in (DISK, MEMORY) or not Path(directory).is_dir() or not directory:
        raise argparse.ArgumentTypeError(
            f"expected NAME=DIRECTORY, a new name and a directory that is there; found {text}"
        )
    return name, Path(directory)


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this benchmark has."""
    parser.add_argument(
        "--also",
        type=place,
        action="append",
        default=[],
        metavar="NAME=DIRECTORY",
        help="another file system, for example a network's, and what the table calls it (may be repeated)",
    )


if __name__ == "__main__":
    run("io_paths", __doc__ or "", measure, tables, draw, options)
