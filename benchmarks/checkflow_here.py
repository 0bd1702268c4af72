"""The parts of ``benchmarks.checkflow`` that ask whether it would pay to follow such plans on this machine.

marks: steps of both with all marks and without, in turns, and the time of one mark.

forecast: the steps of NT3 and ResNet-50 are profiled while they train, with a checkpoint in every step. Their plans say how much memory
copies would hold, and the simulator how long a step would take, beside what today's captures were seen to hold and to take.

prototypes: a training really follows its plan, in two ways, in turns with the same training without checkpoints and with today's. "Late
copies in parts" copies each part before the next update of its tensor. "Direct writes" writes parts straight from the training's tensors,
and copies before an update what is not written yet.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import jobs
from benchmarks.checkflow_plans import Reachable, reachable
from benchmarks.report import Row, interval, say, span, table
from deepfreeze.errors import OptionError
from deepfreeze.plan.step import planning, usage
from deepfreeze.plan.step.baselines import GREEDY, UPDATE
from deepfreeze.plan.step.checkflow import SECONDS
from deepfreeze.plan.step.greedy import at_update, greedy
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.profile import StepProfile

WORKLOADS = {"resnet50": "ResNet-50", "nt3": "NT3"}
RANKS, EVERY = (1, 2), (1, 4)
PLAN, TODAY, LATE = "plan", "today", "late copies in parts"
PAIRS = 120  # of steps with marks and without
# Of the prototypes: turns, steps of each, and steps in which every one is to be committed.
ROUNDS, STEPS, LAST = 5, 30, 200
SHARE, BLOCKS = (
    0.25,
    32e6,
)  # of the checkpoint, and bytes of the writers' blocks: at most so much memory, or it does not pay
_LIMIT = 1500.0  # seconds of a job


def marks(quick: bool) -> list[Row]:
    """A row for each workload."""
    rows = []
    with jobs.places(None) as (disk, _):
        for workload in list(WORKLOADS)[:1] if quick else WORKLOADS:
            say(f"{workload}: steps with marks and without ...")
            params = {"workload": workload, "pairs": 5 if quick else PAIRS}
            (found,) = jobs.gather("checkflow_marks_rank", params, 1, disk, _LIMIT)
            row = Row({"workload": workload, "marks": found["marks"]}).add("mark", "s", [found["mark"]])
            ratios = [one / other for one, other in zip(found["marked"], found["plain"], strict=True)]
            rows.append(
                row.add("plain", "s", found["plain"]).add("marked", "s", found["marked"]).add("over plain", "", ratios)
            )
    return rows


def marks_table(rows: list[Row]) -> str:
    """A line for each workload."""
    lines = []
    for row in rows:
        ratios = row.samples("over plain")
        low, high = interval(ratios)
        over = f"{statistics.median(ratios):.4f} ({low:.4f}..{high:.4f})"
        figures = [
            len(ratios),
            span(row, "plain", 1e3),
            span(row, "marked", 1e3),
            over,
            f"{row.median('mark') * 1e6:.2f}",
        ]
        lines.append([WORKLOADS[row.labels["workload"]], row.labels["marks"], *figures])
    return table(["workload", "marks", "pairs", "step, ms", "step with marks, ms", "ratio (95 %)", "a mark, us"], lines)


def forecast(quick: bool) -> list[Row]:
    """A row for each workload, number of ranks, store, interval and way."""
    rows: list[Row] = []
    with jobs.places(None) as places:
        for workload in list(WORKLOADS)[:1] if quick else WORKLOADS:
            for ranks in RANKS[:1] if quick else RANKS:
                for store, folder in zip(("disk", "tmpfs"), places, strict=True):
                    say(f"{workload}, {ranks} ranks, {store}: profile ...")
                    params = {"workload": workload, "folder": str(jobs.empty(folder, "run")), "every": 1}
                    first, *_ = jobs.gather("checkflow_rank", params, ranks, folder, _LIMIT)
                    labels: dict[str, Any] = {"workload": workload, "ranks": ranks, "store": store}
                    rows += _forecasts(labels, first, 5.0 if quick else SECONDS)
    return rows


def _forecasts(labels: dict[str, Any], found: dict[str, Any], seconds: float) -> list[Row]:
    profile = StepProfile.from_json(found["profile"])
    rows = []
    for every in EVERY:
        asked = planning.question(profile, every=every)
        step = sum(window.seconds for window in asked.windows)
        rate = sum(window.capacity for window in asked.windows) / step

        def row(
            how: str,
            extra: float | None,
            each: float | None,
            every: int = every,
            step: float = step,
            rate: float = rate,
        ) -> Row:
            made = Row({**labels, "every": every, "how": how, "windows": len(profile.windows)})
            made.add("state", "B", [profile.nbytes]).add("profiled step", "s", [step]).add("rate", "B/s", [rate])
            made.add("extra", "B", [] if extra is None else [extra])
            return made.add("step", "s", [] if each is None else [each])

        try:
            found_plan = reachable(profile, every, seconds=seconds)
        except OptionError as error:
            rows.append(row(PLAN, None, None))
            rows[-1].labels["impossible"] = error.todo
        else:
            for how, parts in _ways_of(found_plan):
                if parts is None:
                    rows.append(row(how, None, None))
                    rows[-1].labels["impossible"] = "no plan"
                else:
                    extra = usage.peak(found_plan.plan.question, parts) - asked.base
                    rows.append(row(how, extra, found_plan.played(parts).seconds / every))
            plan = found_plan.plan
            rows[-1].add("gap", "", [plan.gap]).add("faster", "", [found_plan.faster])
            rows[-1].add("finest", "B", [max(0.0, plan.fine_bound - asked.base)])
        if every == 1:
            seen = row("today, measured", found["held"], statistics.median(found["seconds"]))
            seen.add("plain", "s", [statistics.median(found["plain"])])
            rows.append(seen.add("committed", "", [found["committed"] / max(1, found["taken"])]))
    return rows


def _ways_of(found: Reachable) -> Iterator[tuple[str, Sequence[PlannedPart] | None]]:
    """(way, its parts or None if it has no plan), all for one store and with parts of one size; the plan comes last."""
    asked = found.plan.question
    sizes = planning.parts(asked)
    yield UPDATE, at_update(asked, sizes)
    yield GREEDY, greedy(asked, sizes)
    yield PLAN, found.plan.parts


def prototypes(quick: bool) -> list[Row]:
    """A row for each workload and way."""
    rows = []
    with jobs.places(None) as (disk, _):
        for workload in list(WORKLOADS)[:1] if quick else WORKLOADS:
            say(f"{workload}: prototypes ...")
            params = {"workload": workload, "folder": str(jobs.empty(disk, "run"))}
            params |= {
                "rounds": 1 if quick else ROUNDS,
                "steps": 10 if quick else STEPS,
                "last": 0 if quick else LAST,
            }
            (found,) = jobs.gather("checkflow_prototype_rank", params, 1, disk, _LIMIT)
            rows += _ways(workload, found)
    return rows


def _ways(workload: str, found: dict[str, Any]) -> list[Row]:
    plain = found["seconds"]["without checkpoints"]
    rows = []
    for name, rounds in found["seconds"].items():
        row = Row({"workload": workload, "how": name}).add("state", "B", [found["nbytes"]])
        row.add("step", "s", [statistics.median(one) for one in rounds])
        over = [statistics.median(one) / statistics.median(other) for one, other in zip(rounds, plain, strict=True)]
        row.add("over plain", "", over).add("used", "s", found["used"][name])
        way = found["ways"].get(name)
        if way is not None:
            for figure, unit in (
                ("extra", "B"),
                ("held", "B"),
                ("held_by_step", "B"),
                ("mapped", "B"),
                ("waited", "s"),
                ("gated", "B"),
                ("profiled", "s"),
                ("forecast", "s"),
                ("played", "s"),
                ("played_extra", "B"),
                ("faster", ""),
            ):
                row.add(figure, unit, [way[figure]])
            row.add("committed", "", [way["committed"] / way["due"]]).add("blocks", "B", [found["blocks"]])
            row.labels["parts"] = way["parts"]
        elif name == TODAY:
            row.add("committed", "", [found["today"]["committed"] / found["today"]["steps"]])
        rows.append(row)
    for name, why in found["impossible"].items():
        rows.append(Row({"workload": workload, "how": name, "impossible": why}))
    if found["last"] is not None:
        row = Row({"workload": workload, "how": f"direct writes, {LAST} steps"})
        row.add("step", "s", found["last"]["seconds"])
        rows.append(row.add("committed", "", [found["last"]["committed"] / len(found["last"]["seconds"])]))
    return rows


def forecast_table(rows: list[Row]) -> str:
    """A line for each row of ``forecast``."""
    lines = []
    for row in rows:
        labels, state = row.labels, row.median("state")
        what = [labels[name] for name in ("ranks", "store", "every", "how")]
        extra = f"{row.median('extra') / state:.2f}" if row.samples("extra") else labels["impossible"]
        commits = row.median("committed") if row.samples("committed") else 1.0
        step = row.median("step") if row.samples("step") else 0.0
        figures = [f"{commits / labels['every'] / step:.1f}" if step else "-"]
        figures += [span(row, name, 1e3, 0) for name in ("step", "profiled step")]
        figures += [span(row, "rate", 1e-9, 2), span(row, "faster", 1, 2)]
        gap = f"{row.median('gap'):.1%}" if row.samples("gap") else "-"
        held = [span(row, "state", 1e-6, 0), extra, _share(row, "finest"), gap]
        lines.append([WORKLOADS[labels["workload"]], *what, *held, *figures])
    head = [
        "workload",
        "ranks",
        "store",
        "every",
        "way",
        "checkpoint of a rank, MB",
        "copies held, of the checkpoint",
        "bound",
        "gap",
        "commits a second",
        "step, ms",
        "profiled step, ms",
        "store while training, GB/s",
        "planned for a store so many times as fast",
    ]
    return table(head, lines)


def prototype_table(rows: list[Row]) -> str:
    """A line for each row of ``prototypes``, and the sentence that follows from them."""
    lines = []
    for row in rows:
        labels = row.labels
        over = row.samples("over plain")
        ratio = "-" if not over else "{:.3f} ({:.3f}..{:.3f})".format(statistics.median(over), *interval(over))
        committed = f"{row.median('committed'):.0%}" if row.samples("committed") else "-"
        lines.append([
            WORKLOADS[labels["workload"]], _named(labels),
            _share(row, "extra"), _share(row, "played_extra"), _share(row, "held_by_step"), _share(row, "held"),
            *(span(row, name, 1e3, 0) for name in ("profiled", "forecast", "played", "step")), ratio,
            span(row, "used", 1e3, 0), committed,
        ])  # fmt: skip
    head = [
        "workload",
        "way",
        "copies held by the plan, of the checkpoint",
        "by the simulator in a median step",
        "copies held in a median step",
        "copies held at most",
        "profiled step, ms",
        "step by the simulator, of the profile alone, ms",
        "the same, with the rates seen",
        "step, ms",
        "over plain",
        "of a core, ms",
    ]
    return (
        table([*head, "committed"], lines) + "\n\n" + " ".join(_sentence(workload, rows) for workload in _known(rows))
    )


def _named(labels: dict[str, Any]) -> str:
    """The name of a way, and why it is impossible if it is."""
    return f"{labels['how']}: {labels['impossible']}" if "impossible" in labels else str(labels["how"])


def _share(row: Row, name: str) -> str:
    """A number of bytes as a part of the checkpoint; "-" if the row has none."""
    return f"{row.median(name) / row.median('state'):.2f}" if row.samples(name) else "-"


def _known(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row.labels["workload"] for row in rows))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """``text``: what the best way to follow a plan holds and takes; ``pays``: that is little enough; ``sure``: another run would say so
    too."""

    text: str
    pays: bool
    sure: bool = True


def verdict(rows: list[Row], workload: str) -> Verdict:
    """Of the ways to follow a plan of a workload's step the one that pays, else the one with the shortest step. One pays if copies and
    blocks hold at most ``SHARE`` of the checkpoint and ``BLOCKS``, with steps no longer than today's, all of which are committed."""
    own = {row.labels["how"]: row for row in rows if row.labels["workload"] == workload}
    ways = [_judged(row, own[TODAY]) for row in own.values() if row.samples("held")]
    return min(ways, key=lambda one: (not one[0].pays, one[1]))[0] if ways else Verdict("there is no plan", False)


def _judged(row: Row, today: Row) -> tuple[Verdict, float]:
    """The verdict on one way, and by what part its steps are longer than today's."""
    held, state = row.median("held") + row.median("blocks"), row.median("state")
    # Round by round: both are over the plain steps of their round.
    ratios = [one / other for one, other in zip(row.samples("over plain"), today.samples("over plain"), strict=True)]
    low, high = interval(ratios)
    longer, committed = statistics.median(ratios) - 1, row.median("committed")
    text = (
        f"{row.labels['how']}: {held / 1e6:.0f} of {(SHARE * state + BLOCKS) / 1e6:.0f} MB, a step {longer:+.1%} ({low - 1:+.1%}.."
        f"{high - 1:+.1%}) over today's, {committed:.0%} of the steps committed"
    )
    is_small = held <= SHARE * state + BLOCKS and committed >= 1
    return Verdict(text, is_small and longer <= 0, not is_small or not low <= 1 <= high), longer


def _sentence(workload: str, rows: list[Row]) -> str:
    found = verdict(rows, workload)
    pays = ("pays" if found.pays else "does not pay") + ("" if found.sure else ", within noise,")
    return f"{WORKLOADS[workload]}: execution {pays} here ({found.text})."


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of ``benchmarks.checkflow``."""

    measure: Any
    tables: Any


MARKS, FORECAST, PROTOTYPES = (
    Part(marks, marks_table),
    Part(forecast, forecast_table),
    Part(prototypes, prototype_table),
)
