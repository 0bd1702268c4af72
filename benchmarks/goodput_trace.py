"""Reads a trace of preemptions for ``benchmarks.goodput``, or makes one of the same rate of events.

A trace is a CSV file: one sample in each row, with the columns row number, Unix time in seconds, and GPUs that the job held. An event is a
sample that differs from the one before it. The trace that PCcheck's artifact published has 215 samples of 63 s (collected by André et
al. on Google Cloud): 48 events in 13482 s, of which 26 are losses.
"""

from __future__ import annotations

import csv
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deepfreeze.errors import OptionError

COLUMNS = ("", "Time", "GPUs")
PER_MACHINE = 4  # GPUs of a machine of the published trace
# The published trace: seconds from the first sample to the last one, events, and what PCcheck's artifact counts in it (``Trace.artifact``).
SECONDS, EVENTS, ARTIFACT = 13482.0, 48, 51


@dataclass(frozen=True)
class Trace:
    """``seconds``: how long the trace is. ``held``: GPUs at its beginning. ``events``: (seconds since the beginning, change in GPUs), in
    order. ``source``: where the trace comes from, in words."""

    seconds: float
    held: int
    events: Sequence[tuple[float, int]]
    source: str

    @property
    def times(self) -> list[float]:
        """Seconds of each event since the beginning."""
        return [at for at, _ in self.events]

    @property
    def mtbf(self) -> float:
        """The mean time between two events (the MTBF of the job), in seconds."""
        return self.seconds / len(self.events)

    @property
    def losses(self) -> int:
        """How many events took GPUs away."""
        return sum(change < 0 for _, change in self.events)

    @property
    def artifact(self) -> int:
        """Events as PCcheck's artifact counts them: the whole machines in each change, the first row's among them."""
        return sum(abs(change) // PER_MACHINE for change in (self.held, *(change for _, change in self.events)))

    def faster(self, clock: float) -> Trace:
        """The same events at a clock that runs ``clock`` times as fast."""
        events = [(at / clock, change) for at, change in self.events]
        return Trace(self.seconds / clock, self.held, events, self.source)

    def first(self, seconds: float) -> Trace:
        """The part up to ``seconds``; later events are left out."""
        return Trace(seconds, self.held, [event for event in self.events if event[0] < seconds], self.source)


def seeded(seed: int, seconds: float = SECONDS, events: int = EVENTS) -> Trace:
    """A trace with as many events in as many seconds as the published one, at random moments. One machine comes or goes in each."""
    chosen = random.Random(seed)
    held = first = 14 * PER_MACHINE
    made = []
    for at in sorted(chosen.uniform(0, seconds) for _ in range(events)):
        change = PER_MACHINE if held <= PER_MACHINE else chosen.choice((-PER_MACHINE, PER_MACHINE))
        held += change
        made.append((at, change))
    return Trace(seconds, first, made, f"seed {seed}")


def read(path: Path) -> Trace:
    """The trace in a file. ``OptionError`` if the file can't be read, is no trace, has times out of order, no event, or never a GPU."""
    times, held = _columns(path)
    for row, (before, after) in enumerate(itertools.pairwise(times)):
        if after <= before:
            raise _wrong(
                path,
                "times in ascending order",
                f"{after:.15g} after {before:.15g} in row {row + 1}",
                "sort the rows by time",
            )
    if not any(held):
        raise _wrong(
            path, "a job that holds a GPU at some time", f"0 GPUs in all {len(held)} rows", "give another trace"
        )
    changes = [after - before for before, after in itertools.pairwise(held)]
    events = [(at - times[0], change) for at, change in zip(times[1:], changes, strict=True) if change]
    if not events:
        found = f"{held[0]} GPUs in all {len(held)} rows"
        raise _wrong(
            path, "at least one event, a row with other GPUs than the row before it", found, "give another trace"
        )
    return Trace(times[-1] - times[0], held[0], events, path.name)


def _columns(path: Path) -> tuple[list[float], list[int]]:
    """Times and GPUs of all rows."""
    todo = "give a CSV file with the columns row number, Unix time in seconds and GPUs held, or leave --trace out"
    try:
        with path.open(newline="") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _wrong(path, "a readable CSV file", str(error), todo) from error
    names = ",".join(COLUMNS)
    if tuple(header) != COLUMNS:
        raise _wrong(path, f"the header {names!r}", repr(",".join(header)), todo)
    times, held = [], []
    for number, row in enumerate(rows):
        try:
            _, at, gpus = row
            times.append(float(at))
            held.append(int(gpus))
        except ValueError:
            times.append(math.nan)
        if not math.isfinite(times[-1]) or held[-1] < 0:
            raise _wrong(
                path, "a number, seconds and GPUs (0 or more) in each row", f"{','.join(row)!r} in row {number}", todo
            )
    return times, held


def _wrong(path: Path, expected: str, found: str, todo: str) -> OptionError:
    return OptionError(where=path, expected=expected, found=found, todo=todo)
