"""The part of ``benchmarks.concurrency`` whose store answers late: checkpoints per second where every call takes 20 ms.

The engine alone, in a process without TensorFlow, on one rank without a local tier. The tests' engine delays its calls on the store
(native/testing/fault_env.h); its clock and its memory are not delayed. N checkpoints are on their way: another one is submitted as soon
as one is committed, and all but the newest two are removed meanwhile. The settings take turns in one process, and a ratio compares the
samples of one round. rate: commits per second, without the first ones, which fill the engine.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import jobs
from benchmarks.concurrency_rows import cell, find, ratios, turns
from benchmarks.ranks import Job, Ranks
from benchmarks.report import ROOT, Row, say, span, table

LIBRARY = ROOT / "build" / "native-testing" / "libdeepfreeze_testing.so"
DELAY = 20  # ms
NBYTES, CHUNK = 16 << 20, 4 << 20
SETTINGS = ((1, 1), (4, 1), (4, 2), (4, 4))  # N, and how many of them are written at once
BASE = (4, 1)  # the ratios' denominator
ROUNDS = 5
# N -> the commits that fill the engine, and those that are timed. One checkpoint alone is as fast as the next one.
COMMITS, QUICK = {1: (1, 6), 4: (6, 20)}, {1: (1, 2), 4: (2, 4)}
SLOW = "every-call-waits"  # the directory of the store

TEXT = f"""**A store that answers late.** Every call of the engine on this store takes {DELAY} ms, as on a network
file system that is far away. The engine is alone, without a training. N checkpoints of {NBYTES >> 20} MiB are on their way,
in chunks of {CHUNK >> 20} MiB, and `transfers` of them are written at once. The newest two are kept; *there at the end* are
how many lie in the run when the last one is committed, for removals take calls too."""


def measure(quick: bool, disk: Path) -> list[Row]:
    """A row for each setting. SystemExit if the tests' engine is not built."""
    if not LIBRARY.exists():
        raise SystemExit(f"{LIBRARY}: expected the tests' engine; found none: run `make setup`")
    commits, rounds = (QUICK, 1) if quick else (COMMITS, ROUNDS)
    place = jobs.empty(disk, SLOW)
    found: dict[tuple[int, int], list[float]] = {setting: [] for setting in SETTINGS}
    there: dict[tuple[int, int], list[int]] = {setting: [] for setting in SETTINGS}
    with Ranks(1, NBYTES, program="concurrency_engine") as ranks:
        ranks.ask("slow", library=str(LIBRARY), milliseconds=DELAY, part=SLOW)
        engines = {setting: _engine(ranks, place, *setting) for setting in SETTINGS}
        for number in range(rounds):
            say(f"a store that answers late: round {number + 1} of {rounds}")
            for setting in turns(number, SETTINGS):
                filling, count = commits[setting[0]]
                seconds, left = engines[setting].pace(count, filling, setting[0])
                found[setting].append(count / seconds)
                there[setting].append(left)
        for engine in engines.values():
            engine.close()
    rows = []
    for (checkpoints, transfers), rates in found.items():
        row = Row({"checkpoints": checkpoints, "transfers": transfers, "delay": DELAY, "nbytes": NBYTES})
        rows.append(row.add("rate", "1/s", rates).add("left", "1", there[checkpoints, transfers]))
    return rows


def _engine(ranks: Ranks, place: Path, checkpoints: int, transfers: int) -> Job:
    many = {"in_flight": checkpoints, "uncommitted": checkpoints, "transfers": transfers}
    return ranks.open([[(NBYTES, 0)]], place, None, chunk_bytes=CHUNK, **many)


def compared(rows: list[Row], row: Row) -> list[float]:
    """Of each round: the rate over that of ``BASE``."""
    return ratios(row, find(rows, checkpoints=BASE[0], transfers=BASE[1]))


def tables(rows: list[Row]) -> str:
    """A line for each setting."""
    lines = []
    for row in rows:
        setting = row.labels["checkpoints"], row.labels["transfers"]
        ratio = "1" if setting == BASE else cell(compared(rows, row), 2)
        lines.append([*setting, span(row, "rate", digits=2), ratio, span(row, "left", digits=0)])
    over = f"over N = {BASE[0]} with one transfer (95 %)"
    return f"{TEXT}\n\n" + table(["N", "transfers", "checkpoints/s", over, "there at the end"], lines)
