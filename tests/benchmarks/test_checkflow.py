"""The benchmark of planned steps: the paper's figures come out of the roofline profile, and prototypes save what the tensors held."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import checkflow_goals, checkflow_grid, checkflow_here, checkflow_models
from benchmarks.checkflow_parts import FilePart, PartWriter, Room, Slice
from benchmarks.checkflow_published import entries
from benchmarks.report import Report, Row
from deepfreeze.plan.step.question import Question

# Of the eight models at batch 32: the most by which a peak can be below CheckFreq's, in percent.
MOST = {
    "alexnet": 31.5,
    "bert_roberta_base": 43.3,
    "mnasnet0_5": 0.8,
    "resnet18": 4.1,
    "r3d_18": 12.3,
    "transformer_1_1": 28.2,
    "vgg11": 14.9,
    "vit_b_16": 5.4,
}
# MB of a part: no single size has all entries of the paper.
PART = {"AlexNet": 24, "BERT": 0.5}


def question(model: str, batch: int, rate: float) -> Question:
    return checkflow_models.question(model, batch, rate * 1e9, 80e-6, cyclic=False)


def test_the_papers_feasibility_comes_out_with_the_named_profile():
    """The roofline of an RTX 3090 with at least 80 us an operator."""
    assert len(entries()) == 9
    for entry in entries():
        asked = question(checkflow_grid.MODELS[entry.model], entry.batch, entry.rate)
        found, by = checkflow_grid.feasible(asked, PART[entry.model] * 1e6, seconds=60.0)
        assert found == entry.feasible, (entry, by)


def test_the_most_that_can_be_saved_is_as_the_issue_has_computed_it():
    for model, percent in MOST.items():
        asked = question(model, 32, 63)
        assert 100 * asked.nbytes / (asked.base + asked.nbytes) == pytest.approx(percent, abs=0.05), model


def test_a_cell_holds_if_all_its_entries_come_out():
    def row(found: str) -> Row:
        labels = {
            "model": "AlexNet",
            "batch": 32,
            "rate": 63,
            "least": 80,
            "size": 8,
            "published": "yes",
            "found": found,
        }
        return Row(labels)

    assert checkflow_grid.holds([row("yes")]) and not checkflow_grid.holds([row("yes"), row("unknown")])
    assert "63" in checkflow_grid.tables([row("yes")]) and "(63?)" in checkflow_grid.tables([row("unknown")])


@pytest.fixture
def tensors():
    rng = np.random.default_rng(5)
    return [rng.integers(0, 256, size, np.uint8) for size in (10_000, 3_000_000, 50)]


def written(folder, parts, step=7):
    data = (folder / f"step-{step:010d}").read_bytes()
    return [data[part.offset : part.offset + part.nbytes] for part in parts]


def parts_of(copy):
    """Three parts, the first of which has bytes of two tensors."""
    first = FilePart(0, (Slice(0, 0, 10_000), Slice(2, 0, 50)), 10_050, 0, copy, 1)
    return [
        first,
        *(
            FilePart(1 + n, (Slice(1, n * 1_500_000, 1_500_000),), 1_500_000, (1 + n) << 21, copy, 2 + n)
            for n in (0, 1)
        ),
    ]


def arrays(tensors, part):
    return [tensors[one.tensor][one.begin : one.begin + one.nbytes] for one in part.slices]


def test_copies_in_parts_save_what_the_tensors_held(tmp_path, tensors):
    parts, room = parts_of(copy=0), Room(4_000_000, 1_500_000)
    writer = PartWriter(tmp_path, parts, room, 2)
    expected = [b"".join(array.tobytes() for array in arrays(tensors, part)) for part in parts]
    for part in parts:
        writer.copied(7, part, arrays(tensors, part))
    for tensor in tensors:
        tensor += 1
    for part in parts:
        writer.due(7, part)
    writer.close()
    assert writer.committed == [7] and written(tmp_path, parts) == expected
    assert room.most == 3_010_050 and room.held == 0


def test_an_update_behind_a_gate_does_not_change_what_is_saved(tmp_path, tensors):
    parts, room = parts_of(copy=None), Room(4_000_000, 1_500_000)
    writer = PartWriter(tmp_path, parts, room, 1)
    expected = [b"".join(array.tobytes() for array in arrays(tensors, part)) for part in parts]
    with writer._opening:  # the store hangs meanwhile
        for part in parts:
            writer.direct(7, part, arrays(tensors, part))
        writer.gate(7, parts)
        for tensor in tensors:
            tensor += 1
    writer.close()
    assert writer.committed == [7] and written(tmp_path, parts) == expected
    assert writer.gated == room.most == 3_010_050 and room.held == 0


def prototype(how: str, held: float, over: float, committed: float = 1.0) -> Row:
    row = Row({"part": "prototypes", "workload": "nt3", "how": how, "parts": 10})
    row.add("state", "B", [620e6]).add("held", "B", [held]).add("extra", "B", [held]).add("blocks", "B", [16e6])
    row.add("over plain", "", [over, over]).add("step", "s", [0.5, 0.5]).add("forecast", "s", [0.49])
    return row.add("committed", "", [committed])


@pytest.mark.parametrize(
    ("late", "pays"),
    [((150e6, 1.05), True), ((200e6, 1.05), False), ((150e6, 1.2), False), ((150e6, 1.05, 0.99), False)],
)
def test_it_pays_if_memory_steps_and_commits_are_as_wanted(late, pays):
    today = Row({"part": "prototypes", "workload": "nt3", "how": checkflow_here.TODAY}).add(
        "over plain", "", [1.1, 1.1]
    )
    rows = [today, prototype(checkflow_here.LATE, *late), prototype("direct writes", 500e6, 1.3)]
    assert checkflow_here.verdict(rows, "nt3").pays == pays
    report = Report("checkflow", "")
    report.rows = rows
    found = {one.what: one.verdict for one in checkflow_goals.findings(report)}
    assert found["a step that follows a plan, NT3"] == ("yes" if pays else "**no**")
    assert (
        found["copies held by late copies in parts, NT3"] == "yes"
        and found["a step's time by the simulator, NT3"] == "yes"
    )


def test_without_results_nothing_is_said():
    assert [one.verdict for one in checkflow_goals.findings(None)] == ["-"]


@pytest.mark.tensorflow
@pytest.mark.full
def test_keras_models_have_the_weights_of_the_table():
    from benchmarks import checkflow_keras

    for name, layers in checkflow_models.models().items():
        model, _, _ = checkflow_keras.model(name, 1)
        assert 4 * sum(int(np.prod(one.shape)) for one in model.trainable_weights) == sum(
            layer.weight_bytes for layer in layers
        ), name
