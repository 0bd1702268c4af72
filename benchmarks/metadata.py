"""How many calls does a checkpoint make to a store's metadata server, with many ranks? python -m benchmarks.metadata --help

Counts calls about names (open, stat, rename, unlink, list, fsync of a directory ...) of one checkpoint, and the names read in listings. The
protocol by which ranks meet is run alone, in a time of its own: the ranks come within a second, and the commit takes a tenth of it. Beside
it real engines, as threads of one process, on this machine's clock. Needs the engine's tests, build/native-testing (make setup).
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from benchmarks import report
from benchmarks.report import ROOT, Report, Row, say, table

COUNTER = ROOT / "build" / "native-testing" / "counts_test"
RANKS = (2, 8, 64, 1024)
ENGINES = (2, 8, 64)
ON_NODE = 8
COUNTED = ("names", "calls", "first", "all")
# Counted in the same way when every rank listed the checkpoint's directory, each on a node of its own, and every rank had a file
# that rank 0 opened, read and removed: ranks -> names read in all.
BEFORE = {8: 1100, 16: 7800, 32: 51_000, 64: 342_000}
BEFORE_FIRST = 6  # rank 0's calls for each rank


def count(ranks: int, on_node: int, kind: str) -> dict[str, int]:
    """The counts of one checkpoint of such a job. RuntimeError if the engine's tests are not built."""
    if not COUNTER.exists():
        raise RuntimeError(f"{COUNTER}: expected the engine's tests; found none: run `make setup`")
    done = subprocess.run([COUNTER, str(ranks), str(on_node), kind], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def measure(args: argparse.Namespace) -> Report:
    """The protocol with a rank and with eight on a node, then engines."""
    found = Report("metadata", "What does a checkpoint ask of a store's metadata server, with many ranks?")
    for ranks in RANKS[: 2 if args.quick else None]:
        for on_node in (1, ON_NODE):
            _add(found, ranks, on_node, "protocol", 1)  # the same in each run: it has no clock
    for ranks in ENGINES[: 2 if args.quick else None]:
        _add(found, ranks, ON_NODE, "engines", args.samples)
    return found


def _add(found: Report, ranks: int, on_node: int, kind: str, samples: int) -> None:
    say(f"{kind}: {ranks} ranks, {on_node} on a node")
    counts = [count(ranks, on_node, kind) for _ in range(samples)]
    row = found.row(kind=kind, ranks=ranks, on_node=on_node)
    for name in (*COUNTED, *(("looks", "visits") if kind == "protocol" else ())):
        row.add(name, "1", [one[name] for one in counts])


def tables(found: Report) -> str:
    """A line for each job."""
    header = ["", "ranks", "on a node", "calls of rank 0", "most of another rank", "calls of all", "names read by all"]
    lines = []
    for row in found.rows:
        counts = [report.span(row, name, digits=0) for name in ("first", "calls", "all", "names")]
        lines.append([row.labels["kind"], row.labels["ranks"], row.labels["on_node"], *counts])
    before = [["before", n, 1, f"about {BEFORE_FIRST * n}", "-", "-", f"{names:,}"] for n, names in BEFORE.items()]
    return table(header, lines + before)


def _series(found: Report, on_node: int, name: str) -> tuple[list[int], list[float]]:
    rows: list[Row] = [r for r in found.rows if (r.labels["kind"], r.labels["on_node"]) == ("protocol", on_node)]
    return [row.labels["ranks"] for row in rows], [row.median(name) for row in rows]


def draw(found: Report, path: Path) -> None:
    """Names read by all, and calls of rank 0 and of another rank, over the number of ranks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (names, calls) = pyplot.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    names.loglog(list(BEFORE), list(BEFORE.values()), "o--", color="gray", label="before")
    calls.loglog(list(BEFORE), [BEFORE_FIRST * n for n in BEFORE], "o--", color="gray", label="rank 0, before")
    for on_node, line in ((1, "s-"), (ON_NODE, "^-")):
        label = "a rank on a node" if on_node == 1 else f"{on_node} ranks on a node"
        names.loglog(*_series(found, on_node, "names"), line, label=label)
        calls.loglog(*_series(found, on_node, "first"), line, label=f"rank 0, {label}")
        calls.loglog(*_series(found, on_node, "calls"), line, label=f"another rank, {label}", alpha=0.6)
    for axes, title in ((names, "Names read by all ranks"), (calls, "Calls about names")):
        axes.set(xlabel="ranks", title=f"{title}, for a checkpoint")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    report.run("metadata", __doc__ or "", measure, tables, draw)
