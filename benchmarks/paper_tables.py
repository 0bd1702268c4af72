"""The tables of the paper's experiment: what each approach costs, and how far ours is below the others, beside the paper's own ratios."""

from __future__ import annotations

from benchmarks import paper_published
from benchmarks.paper_published import NODES, OURS
from benchmarks.report import Report, Row, interval, table

METRICS = ("preparation", "blocking", "overhead", "cpu")
SLOWEST = "blocking, slowest rank"


def within_noise(row: Row, name: str) -> bool:
    """Whether the measured cost is lost in noise: the interval of the difference of two times includes zero, and no cost is negative."""
    return interval(row.samples(name))[0] <= 0


def estimate(row: Row, name: str, digits: int = 1) -> str:
    """Milliseconds: the median and its 95 % interval; "-" if the row doesn't have it."""
    samples = row.samples(name)
    if not samples:
        return "-"
    low, high = interval(samples)
    text = f"{row.median(name) * 1e3:.{digits}f} ({low * 1e3:.{digits}f}..{high * 1e3:.{digits}f})"
    return f"{text}, within noise" if name in ("overhead", "cpu") and within_noise(row, name) else text


def ratio(report: Report, approach: str, metric: str, **labels: object) -> float | None:
    """An approach's time over ours. None if it was not measured, or can't be told from none at all."""
    name = SLOWEST if metric == "blocking" else metric
    try:
        rows = [report.find(approach=each, **labels) for each in (approach, OURS)]
    except KeyError:
        return None
    if not all(row.samples(name) for row in rows) or any(within_noise(row, name) for row in rows):
        return None
    return rows[0].median(name) / rows[1].median(name)


def trainings(report: Report) -> list[Row]:
    """The rows of real trainings."""
    return [row for row in report.rows if "ranks" in row.labels]


def tables(report: Report) -> str:
    """Trainings, the blocking phase over nodes if it was measured, and all ratios beside the paper's."""
    parts = [_trainings(report)]
    if len(trainings(report)) < len(report.rows):
        parts.append("Blocking phase of the slowest rank over nodes, ms:\n\n" + _nodes(report))
    parts.append(f"How many times less {OURS} takes than the others, and in the paper:\n\n" + _ratios(report))
    return "\n\n".join(parts)


def _trainings(report: Report) -> str:
    header = ["workload", "ranks", "approach", "checkpoints", "plain iteration, ms", "preparation, ms", "blocking, ms"]
    header += ["overhead, ms", "overhead in CPU time, ms", "blocking of the slowest rank, ms"]
    lines = [
        [
            *row.labels.values(),
            len(row.samples("blocking")),
            f"{row.median('iteration') * 1e3:.0f}",
            *(estimate(row, metric) for metric in (*METRICS, SLOWEST)),
        ]
        for row in trainings(report)
    ]
    return table(header, lines)


def _nodes(report: Report) -> str:
    rows = [row for row in report.rows if "nodes" in row.labels]
    lines = []
    for workload, approach in dict.fromkeys((row.labels["workload"], row.labels["approach"]) for row in rows):
        each = {
            row.labels["nodes"]: row
            for row in rows
            if (row.labels["workload"], row.labels["approach"]) == (workload, approach)
        }
        lines.append([workload, approach, *(estimate(each[n], SLOWEST) if n in each else "-" for n in NODES)])
    return table(["workload", "approach", *_named(NODES, "node")], lines)


def _ratios(report: Report) -> str:
    lines = []
    for (workload, metric), ((alone, together), others) in _compared().items():
        for other in others:
            measured = [
                ratio(report, other, metric, workload=alone, ranks=1),
                ratio(report, other, metric, workload=together, ranks=2),
                *(ratio(report, other, metric, workload=alone, nodes=n) for n in (1, 8)),
            ]
            published = (paper_published.ratios().get((workload, n, metric), {}).get(other) for n in (1, 8))
            lines.append([workload, metric, other, *map(_times, [*measured, *published])])
    header = ["workload", "what", "below", *_named((1, 2), "rank"), *_named((1, 8), "node")]
    return table([*header, *(f"the paper, {name}" for name in _named((1, 8), "node"))], lines)


def _compared() -> dict[tuple[str, str], tuple[tuple[str, str], list[str]]]:
    """(the paper's workload, metric) -> our workloads, and the approaches that ours is compared with; in the paper's order."""
    return {
        (workload, metric): (paper_published.WORKLOADS[workload], list(others))
        for (workload, _, metric), others in paper_published.ratios().items()
    }


def _named(numbers: tuple[int, ...], what: str) -> list[str]:
    return [f"{n} {what}{'s' * (n > 1)}" for n in numbers]


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}x"
