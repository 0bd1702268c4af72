"""The paper's experiment: what counts as a cost, what is noise, and the paper's own figures beside ours."""

from __future__ import annotations

import pytest

from benchmarks import paper_nodes, paper_tables
from benchmarks.paper_plan import NEAR, SPACE, WARM, extra, near, turns
from benchmarks.paper_published import OURS, WORKLOADS, ratios
from benchmarks.report import RESULTS, Report
from deepfreeze.format.tensors import REPLICATED, TensorSpec


def test_the_papers_ratios_are_those_of_its_text():
    assert ratios()["ResNet-50", 8, "blocking"] == {"keras-default": 22, "veloc-single": 7.4, "veloc-sharded": 7}
    assert ratios()["NT3", 8, "overhead"] == {"keras-default": 6.5, "veloc-single": 6.2, "veloc-sharded": 2.5}
    assert {workload for workload, _, _ in ratios()} == set(WORKLOADS)


def test_approaches_take_turns_and_plain_steps_lie_between_all_that_count():
    plan = turns(("a", "b", "c"), begin=10, every=4, samples=3)
    assert [turn.step for turn in plan[:3]] == [10 + WARM + SPACE * n for n in range(3)]
    assert not any(turn.counts for turn in plan[:3])
    counted = [turn for turn in plan if turn.counts]
    assert "".join(turn.approach for turn in counted) == "abcbcacab"
    assert [later.step - turn.step for turn, later in zip(plan[2:], counted, strict=False)] == [4] * 9


def test_a_checkpoint_is_compared_with_the_plain_steps_beside_it():
    # Every step is slower by 1 than the one before it: compared with all plain steps, a checkpoint would seem to cost 20.
    seconds = {step: float(step) for step in range(1, 60)}
    plain = [step for step in seconds if step not in (40, 41)]
    assert near(seconds, 40, plain) == pytest.approx(40.5) and NEAR == 2
    assert extra(seconds, 40, plain) == 0
    seconds[40] += 3
    seconds[41] += 1
    assert extra(seconds, 40, plain) == 2
    assert extra(seconds, 40, plain, later=4) == 4


@pytest.fixture
def report():
    """One rank: ours costs nothing that can be told, Keras's way does, our bindings do on the clock alone."""
    made = Report("paper", "")
    for approach, overhead, cpu in (
        ("keras-default", [0.6, 0.7, 0.8], [0.5, 0.5, 0.6]),
        ("veloc-single", [0.2, 0.3, 0.25], [-0.01, 0.02, 0.01]),
        (OURS, [-0.3, -0.28, -0.29], [0.03, 0.04, 0.05]),
    ):
        row = made.row(workload="nt3", ranks=1, approach=approach)
        row.add("iteration", "s", [1.9]).add("overhead", "s", overhead).add("cpu", "s", cpu)
        for name in ("blocking", paper_tables.SLOWEST):
            row.add(name, "s", [{"keras-default": 1.5, "veloc-single": 0.6, OURS: 0.15}[approach]] * 3)
    return made


def line(text, *cells):
    """The one line of a table that begins with these cells."""
    (found,) = [each for each in text.splitlines() if each.startswith("| " + " | ".join(cells) + " |")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_what_may_be_no_cost_at_all_is_called_noise(report):
    text = paper_tables.tables(report)
    assert line(text, "nt3", "1", OURS)[7:9] == ["-290.0 (-300.0..-280.0), within noise", "40.0 (30.0..50.0)"]
    assert line(text, "nt3", "1", "veloc-single")[7:9] == ["250.0 (200.0..300.0)", "10.0 (-10.0..20.0), within noise"]
    assert line(text, "nt3", "1", "keras-default")[3] == "3"


def test_a_ratio_stands_beside_the_papers_unless_it_is_one_of_noise(report):
    text = paper_tables.tables(report)
    assert line(text, "NT3", "blocking", "keras-default")[3:] == ["10x", "-", "-", "-", "-", "11.1x"]
    assert line(text, "NT3", "overhead", "keras-default")[3:] == ["-", "-", "-", "-", "-", "6.5x"]
    assert "over nodes" not in text


def test_nodes_have_their_own_table_and_ratios(report):
    for nodes, seconds in ((1, 0.2), (8, 0.05)):
        for approach, times in (("veloc-sharded", 3), (OURS, 1)):
            row = report.row(workload="nt3", nodes=nodes, approach=approach)
            row.add(paper_tables.SLOWEST, "s", [times * seconds])
    text = paper_tables.tables(report)
    assert line(text, "nt3", "veloc-sharded")[2:] == ["600.0 (600.0..600.0)", "-", "-", "150.0 (150.0..150.0)"]
    assert line(text, "NT3", "blocking", "veloc-sharded")[3:] == ["-", "-", "3x", "3x", "-", "3.8x"]


@pytest.mark.full
def test_every_approach_is_timed_on_each_node_in_turn(tmp_path, monkeypatch):
    tensors = [TensorSpec("a", "float32", (300, 40), REPLICATED), TensorSpec("b", "float32", (70,), REPLICATED)]
    monkeypatch.setattr(paper_nodes, "specs", lambda workload: tensors)
    made = Report("paper", "")
    paper_nodes.measure(made, "small", samples=2, disk=tmp_path, nodes=(1, 2))
    assert [(row.labels["nodes"], row.labels["approach"]) for row in made.rows] == [
        (nodes, approach) for nodes in (1, 2) for approach in paper_nodes.APPROACHES
    ]
    assert all(len(row.samples(paper_tables.SLOWEST)) == 2 and min(row.samples("blocking")) > 0 for row in made.rows)
    captured, local = (made.find(nodes=2, approach=name).median(paper_tables.SLOWEST) for name in ("captured", OURS))
    assert captured < local


@pytest.mark.full
def test_the_figure_is_drawn_from_published_results_and_with_nodes(report, tmp_path):
    from benchmarks.paper_figure import draw

    report.row(workload="nt3", nodes=8, approach=OURS).add(paper_tables.SLOWEST, "s", [0.1])
    for number, made in enumerate((report, Report.load(RESULTS / "paper.json"))):
        draw(made, tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").stat().st_size > 10_000
