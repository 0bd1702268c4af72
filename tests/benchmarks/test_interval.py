"""Auto beside a second writer: which steps are compared, and what the tables say of it."""

from __future__ import annotations

import pytest

from benchmarks import checkfreq_published, goals, interval, interval_figure
from benchmarks.interval_periods import Course, overhead, overhead_within
from benchmarks.interval_writer import Writers
from benchmarks.report import Report

# Steps 101 to 112, of which 102, 105, 108 and 111 were captured. A captured step takes 2 s or more, the one before the next capture waits.
STEPS = Course(100, [1, 2.5, 1, 1.5, 2, 1, 1, 2, 1, 1, 2, 1], [99, 102, 105, 108, 111, 114], [0.9, 1.1])


def found(alone: float, beside: float, adapted: float) -> dict:
    """A comparison in which steps take 1 s, and a checkpoint costs so much of each of its steps; as much as a step before Auto has come to
    its interval."""

    def course(begin: int, k: int, cost: float, case: str) -> list[dict]:
        parts = [(begin, 1.0)] + [(begin + 50 * number, cost) for number in range(1, 1 + interval.SETTLED[case])]
        return [Course(at, [1 + by] * 40, list(range(at + 1, at + 41, k)), [1.0] * 8).data() for at, by in parts]

    courses = {"alone": (10, 4, alone), "static": (300, 4, beside), "auto": (1000, 8, adapted)}
    courses = {case: course(*one, case) for case, one in courses.items()}
    made = {"writers": 32, "every": 4, "nbytes": 206_000_000, "courses": courses}
    decisions = [[10, 4, "profile"], [1015, 8, "store"]]
    return {**made, "decisions": decisions, "told": {"alone": 0.029, "auto": None}}


def report(alone: float = 0.03, beside: float = 0.3, adapted: float = 0.04) -> Report:
    made = Report("interval", "Does Auto keep its promise?")
    interval.add(made, "resnet50", 0.035, found(alone, beside, adapted))
    for way, seconds in zip(interval.WAYS, (0.2, 0.05, 0.02), strict=True):
        row = made.row(kind="stall", workload="resnet50", way=way, nbytes=206_000_000)
        row.add("stall", "s", [seconds])
    return made


def test_a_period_is_a_captured_step_and_those_up_to_the_next():
    periods = STEPS.periods()
    assert [(one.step, one.k) for one in periods] == [(105, 3), (108, 3), (111, 3)]
    assert [one.seconds * 3 for one in periods] == pytest.approx([5, 4, 4])
    assert STEPS.costs() == pytest.approx([2 / 3, 1 / 3, 1 / 3])


def test_each_part_counts_against_the_plain_steps_beside_it():
    slower = Course(200, [2, 4, 4, 2, 4, 4, 2], [201, 204, 207], [2.0, 2.0])
    assert overhead([STEPS]) == pytest.approx(13 / 9 - 1)
    assert overhead([slower]) == pytest.approx(20 / 12 - 1)
    assert overhead([STEPS, slower]) == pytest.approx((13 + 20) / (9 + 12) - 1)
    low, high = overhead_within([STEPS, slower])
    assert low < overhead([STEPS, slower]) < high and overhead_within([STEPS, slower]) == (low, high)
    noisy = Course(200, slower.seconds, slower.captured, [1.0, 3.0])
    assert overhead_within([noisy])[0] < overhead_within([slower])[0] < overhead_within([noisy])[1]
    with pytest.raises(SystemExit, match="12 steps from step 100 on have no two checkpoints"):
        overhead([Course(100, [1] * 12, [102], [1.0])])


def test_a_profile_costs_what_its_steps_take_more():
    assert STEPS.extra(105) == pytest.approx(3)
    assert STEPS.extra(90) == 0


def test_the_papers_tables_stand_beside_ours():
    shown = interval.tables(report())
    assert "| resnet50 | 3.5% | second job; static | 32 | 4 | 18 | +30.0% (+30.0%..+30.0%) | - |" in shown
    assert "| resnet50 | 3.5% | second job; Auto | 32 | 8 | 24 | +4.0% (+4.0%..+4.0%) | - |" in shown
    assert "| CheckFreq: VGG16 | 5.0% | second job on the disk; static | - | 14 | - | +35.0% | - |" in shown
    assert "| resnet50 | 206 | 1000 steps | 250 |" in shown
    assert "| CheckFreq: VGG16 | 1055 | its data set's | 83 |" in shown
    assert "| resnet50 | captures in the graph | 20 | 0.10 |" in shown
    assert "| CheckFreq: VGG16, V100+SSD | snapshot and persist overlapped | 300 | 0.08 |" in shown


def test_a_second_writer_that_is_too_weak_is_said():
    assert "second job; static, below 2 p with the most writers | 32 |" in interval.tables(report(beside=0.06))
    (_, found, _) = goals._interval(report(beside=0.06))
    assert found.verdict == "-" and "static +6.0%" in found.found


@pytest.mark.parametrize(("adapted", "reached"), [(0.044, True), (0.046, False)])
def test_auto_may_cost_a_point_more_than_its_budget(adapted, reached):
    alone, beside, profile = goals._interval(report(alone=adapted, adapted=adapted))
    assert alone.reached is beside.reached is reached and beside.applies
    assert alone.goal == "at most p + 1 point" and beside.goal.startswith("at most p + 1 point where")
    assert profile.found == "+0.00%" and profile.reached
    assert [one.verdict for one in goals._interval(None)] == ["-", "-", "-"]


def test_the_papers_figures_are_found_by_their_names():
    assert checkfreq_published.value("Table 5", "VGG16", "alone", "interval") == 14
    with pytest.raises(KeyError, match="Table 5: VGG16, on paper, interval"):
        checkfreq_published.value("Table 5", "VGG16", "on paper", "interval")


def test_a_second_writer_writes_until_it_is_ended(tmp_path):
    with Writers(tmp_path, 2):
        (folder,) = tmp_path.iterdir()
        assert [path.stat().st_size > 0 for path in folder.iterdir()] == [True, True]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_interval_and_overhead_are_drawn_over_the_steps(tmp_path):
    interval_figure.draw(report(), tmp_path / "interval.png")
    assert (tmp_path / "interval.png").read_bytes().startswith(b"\x89PNG")
