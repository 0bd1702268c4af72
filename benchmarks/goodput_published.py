"""The part of ``benchmarks.goodput`` that reproduces Figure 9 of PCcheck (ASPLOS 2025) for VGG16 from its Figure 8, by the closed formula.

The plain step is that of PCcheck's row "none". The time to load is solved from the ideal's goodput, the time until PCcheck's commit at
intervals of 25 and 50 steps from these two rows themselves; so the other ten rows test the formula.
"""

from __future__ import annotations

import math

from benchmarks import goodput_replay as replay
from benchmarks import pccheck_published
from benchmarks.goodput_replay import Job
from benchmarks.goodput_trace import ARTIFACT, SECONDS, Trace
from benchmarks.report import Row, table

MODEL = "VGG16"
INTERVALS = (10, 25, 50)
POLICIES = {"CheckFreq": replay.ONE, "GPM": replay.SYNCHRONOUS, "PCcheck": replay.SEVERAL, "Ideal": replay.SYNCHRONOUS}
UNCOMMITTED = 4  # of PCcheck; its artifact says so
SOLVED = {("PCcheck", 25), ("PCcheck", 50)}  # rows that give a time until the commit, and so test nothing
TEXT = """**The published figure.** Figure 9 of PCcheck (VGG16) from its Figure 8 by the closed formula: the trace's {seconds:.0f} s, and
{events} events as PCcheck's artifact counts them (the whole machines in each change of the trace, the first row's among them). The time to
load, {load:.3f} s, is that of the ideal's rows. The rows with an asterisk give their time Tw until the commit themselves, so the other ten
test the formula."""


def throughput(system: str, interval: int | str) -> float:
    """Iterations per second of Figure 8."""
    return _value("Figure 8", system, interval)


def published(system: str, interval: int | str) -> float:
    """Useful iterations per second of Figure 9."""
    return _value("Figure 9", system, interval)


def _value(source: str, system: str, interval: int | str) -> float:
    key = MODEL, system, str(interval)
    (line,) = (one for one in pccheck_published.lines(source) if (one["model"], one["system"], one["interval"]) == key)
    return float(line["value"])


def plain() -> float:
    """Seconds of a step without checkpoints."""
    return 1 / throughput("PCcheck", "none")


def load() -> float:
    """Seconds to load a checkpoint, as the artifact implies: each of the ideal's rows gives the same within 2 ms (``solved_load``)."""
    lines = pccheck_published.lines("artifact")
    (line,) = (one for one in lines if (one["model"], one["quantity"]) == (MODEL, "time to load a checkpoint"))
    return float(line["value"])


def solved_load(interval: int) -> float:
    """Seconds to load a checkpoint that the ideal's row of this interval implies, whose steps are plain ones."""
    return replay.load_of(published("Ideal", interval), plain(), SECONDS, ARTIFACT, lost=interval * plain() / 2)


def over_checkfreq(interval: int) -> float:
    """PCcheck's goodput over CheckFreq's of Figure 9."""
    return published("PCcheck", interval) / published("CheckFreq", interval)


def most_over_checkfreq() -> float:
    """PCcheck's goodput over CheckFreq's at the same interval, at most, of all models."""
    lines = pccheck_published.lines("text 5.2")
    (line,) = (one for one in lines if (one["interval"], one["quantity"]) == ("same interval", "goodput ratio at most"))
    systems = line["system"].removeprefix("PCcheck over ").split(" / ")
    return float(line["value"].split(" / ")[systems.index("CheckFreq")])


def job(system: str, interval: int) -> Job:
    """The training of one row. The time until the commit is PCcheck's; every 10 steps it is more than the formula lets count."""
    step = plain() if system == "Ideal" else 1 / throughput(system, interval)
    made = Job(POLICIES[system], plain(), step, interval, load(), math.inf, UNCOMMITTED)
    if (system, interval) not in SOLVED:
        return made
    commit = replay.commit_of(published(system, interval), made, SECONDS, ARTIFACT)
    return Job(POLICIES[system], plain(), step, interval, load(), commit, UNCOMMITTED)


def measure(trace: Trace | None) -> list[Row]:
    """A row for each system and interval. ``trace``: given by the user; its real events are counted beside the artifact's."""
    rows = []
    for system in POLICIES:
        for interval in INTERVALS:
            one = job(system, interval)
            row = Row({"system": system, "interval": interval, "solved": (system, interval) in SOLVED, "load": load()})
            row.add("published", "1/s", [published(system, interval)])
            row.add("formula", "1/s", [replay.goodput(one, SECONDS, ARTIFACT)])
            if row.labels["solved"]:
                row.add("commit", "s", [one.commit])
            if trace is not None:
                row.labels["events"] = len(trace.events)
                row.add("real events", "1/s", [replay.goodput(one, trace.seconds, len(trace.events))])
            rows.append(row)
    return rows


def tables(rows: list[Row]) -> str:
    """A line for each row: published, computed, how far they differ, and with the real events."""
    real = rows[0].labels.get("events")
    lines = []
    for row in rows:
        found, given = row.median("formula"), row.median("published")
        commit = f"{row.median('commit'):.2f}" if "commit" in row.values else "-"
        star = "\\*" if row.labels["solved"] else ""
        line = [
            row.labels["system"] + star,
            row.labels["interval"],
            f"{given:.4f}",
            f"{found:.4f}",
            f"{found / given - 1:+.3%}",
            commit,
        ]
        lines.append([*line, f"{row.median('real events'):.4f}"] if real else line)
    head = ["VGG16", "every", "Figure 9, steps/s", "formula, steps/s", "difference", "Tw, s"]
    head += [f"with the trace's {real} events"] if real else []
    text = TEXT.format(seconds=SECONDS, events=ARTIFACT, load=rows[0].labels["load"])
    return f"{text}\n\n{table(head, lines)}"
