"""The benchmark of planned steps: the paper's figures come out of the roofline profile, and prototypes save what the tensors held."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import checkflow_goals, checkflow_grid, checkflow_here, checkflow_models
from benchmarks.checkflow_parts import FilePart, PartWriter, Room, Slice, rate, rates
from benchmarks.checkflow_plans import Reachable, Seen, seconds_seen
from benchmarks.checkflow_published import entries
from benchmarks.report import Report, Row
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.plan.step.question import Question, SavedTensor, StepWindow
from deepfreeze.plan.step.step_plan import StepPlan
from tests.support.ranks import until

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
    row.add("state", "B", [620e6]).add("held", "B", [held]).add("held_by_step", "B", [held]).add(
        "extra", "B", [held]
    ).add("blocks", "B", [16e6])
    row.add("over plain", "", [over, over]).add("step", "s", [0.5 * over, 0.5 * over])
    row.add("played", "s", [0.55 * over]).add("profiled", "s", [0.6]).add("played_extra", "B", [held])
    return row.add("committed", "", [committed])


@pytest.mark.parametrize(
    ("late", "pays"),
    [((150e6, 1.05), True), ((200e6, 1.05), False), ((150e6, 1.2), False), ((150e6, 1.05, 0.99), False)],
)
def test_it_pays_if_memory_steps_and_commits_are_as_wanted(late, pays):
    today = Row({"part": "prototypes", "workload": "nt3", "how": checkflow_here.TODAY})
    today.add("over plain", "", [1.1, 1.1]).add("step", "s", [0.55, 0.55])
    rows = [today, prototype(checkflow_here.LATE, *late), prototype("direct writes", 500e6, 1.3)]
    assert checkflow_here.verdict(rows, "nt3").pays == pays
    report = Report("checkflow", "")
    report.rows = rows
    found = {one.what: one.verdict for one in checkflow_goals.findings(report)}
    assert found["a step that follows a plan, NT3"] == ("yes" if pays else "**no**")
    assert (
        found["copies held by the simulator, late copies in parts, NT3"] == "yes"
        and found["a step by the simulator, late copies in parts, NT3"] == "yes"
    )


def test_without_results_nothing_is_said():
    assert [one.verdict for one in checkflow_goals.findings(None)] == ["-"]


@pytest.mark.tensorflow
@pytest.mark.full
def test_keras_models_have_the_weights_of_the_table():
    from benchmarks import checkflow_keras

    for name, layers in checkflow_models.models().items():
        model = checkflow_keras.model(name)
        assert 4 * sum(int(np.prod(one.shape)) for one in model.trainable_weights) == sum(
            layer.weight_bytes for layer in layers
        ), name


def test_a_later_step_is_written_into_the_file_of_an_older_one(tmp_path, tensors):
    parts, room = parts_of(copy=0), Room(4_000_000, 1_500_000)
    writer = PartWriter(tmp_path, parts, room, 1)
    files, expected = set(), []
    for step in range(1, 6):
        expected = [b"".join(array.tobytes() for array in arrays(tensors, part)) for part in parts]
        for part in parts:
            writer.copied(step, part, arrays(tensors, part))
            writer.due(step, part)
        until(lambda step=step: step in writer.committed)
        files.add((tmp_path / f"step-{step:010d}").stat().st_ino)
        for tensor in tensors:
            tensor += 1
    assert len(files) == 2, "each step has a new file"
    writer.close()
    assert written(tmp_path, parts, 5) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000005"], "older files are left"


@pytest.mark.tensorflow
@pytest.mark.full
@pytest.mark.parametrize("direct", [False, True])
def test_a_prototype_saves_the_weights_of_its_step(tmp_path, direct):
    """A training that follows a plan: the latest file has the values that all tensors had at the end of its step."""
    import keras

    from benchmarks import checkflow_prototype_rank as prototype_rank
    from benchmarks.checkflow_training import checkpoint, fit
    from deepfreeze.state.training_state import TrainingState
    from deepfreeze.store import step_plans
    from deepfreeze.store.run import Run

    class Train:
        def __init__(self) -> None:
            keras.utils.set_random_seed(3)
            layers = [keras.layers.Dense(512, "relu") for _ in range(4)]
            self.model = keras.Sequential([keras.Input((512,)), *layers, keras.layers.Dropout(0.5)])
            self.model.compile(keras.optimizers.Adam(1e-3), "mse", jit_compile=False)

        def __call__(self, steps, *callbacks):
            x = np.random.default_rng(3).random((64, 512), np.float32)
            fit(self.model, x, x, steps, *callbacks)

    train = Train()
    train(3)
    train(60, checkpoint(tmp_path / "profiled", 1, profile=True))
    found = step_plans.read_profile(Run.open(tmp_path / "profiled"))
    assert found is not None
    profile = StepProfile.from_json(found.profile)
    train.model.train_function = None
    named = prototype_rank._named(train)
    # A function that is added before the optimizer makes its ops can wait for gradients alone. Without them it would run at once.
    updates = [one.name for one in profile.windows if one.phase == "update" and "iteration" not in one.name]
    assert updates and all(any("gradient" in op for op in named.ahead[name]) for name in updates)
    way = prototype_rank.Planned("way", train, profile, named, tmp_path / "way", direct)
    # A window of the profile begins behind all marks before it, also where TensorFlow runs their ops later.
    graph = SimpleNamespace(get_operation_by_name=lambda name: name)
    for window in range(len(profile.windows)):
        begun = set(way.step._begin(graph, window, early=True))
        assert all(begun >= set(named.behind[one.name]) for one in profile.windows[: window + 1])
    by_name = {one.spec.name: one.variable for one in TrainingState.of(train.model, "full").tensors}
    seen: dict[int, list[bytes]] = {}

    class Recorder(prototype_rank.PlannedClock):
        def on_train_batch_end(self, batch, logs=None):
            seen[way.step.step] = [np.asarray(by_name[one.name]).tobytes() for one in profile.tensors]

    train.model.train_function = way.function
    train(12, Recorder(way.step, way.room))
    way.writer.close()
    newest = max(way.writer.committed)
    assert newest >= max(seen) - 2, "steps were not committed"
    saved = written(tmp_path / "way", way.parts, newest)
    expected = [
        b"".join(seen[newest][one.tensor][one.begin : one.begin + one.nbytes] for one in part.slices)
        for part in way.parts
    ]
    assert saved == expected
    assert any(part.copy is None for part in way.parts) == direct


def test_copies_that_use_no_more_of_a_core_than_today_cost_nothing():
    windows = (StepWindow(1.0, 1000, busy=1.0), StepWindow(1.0, 1000, busy=1.0))
    asked = Question(windows, (SavedTensor("kernel", 1000, 0),), carry=1000)
    parts = (PlannedPart(0, 0, 1000, -1, 0),)
    found = Reachable(StepPlan(asked, parts, 0.0, 0.0, None, True), 1.0, asked)
    assert found.played(seen=Seen(1000.0, 1000.0, 1, 1000.0)).seconds == found.played().seconds == pytest.approx(2.0)
    assert found.played(seen=Seen(1000.0, 1000.0, 1, 1000.0, cost=1 / 1000)).seconds == pytest.approx(3.0)
    # Half a second of the copy is behind the end of the step, which waits for it.
    assert found.played(seen=Seen(1000.0, 1000.0, 1, 1000.0 / 1.5)).seconds == pytest.approx(2.5)


def test_the_rates_of_a_store_beside_copies_and_without_come_out():
    alone, beside = 100.0, 40.0
    copies = [(1.0, 2.0, 7), (1.5, 3.0, 7), (8.0, 9.0, 7)]
    # Two parts at once from 0 to 2, one that begins without copies and ends beside them, and one without any.
    written = [(0.0, 2.0, 70), (0.0, 2.0, 70), (2.5, 4.0, 120), (5.0, 6.0, 100)]
    assert rates(written, copies) == pytest.approx((alone, beside))
    assert rate(written) == pytest.approx(80.0) and rate(copies) == pytest.approx(7.0) and rate([]) == math.inf
    assert rates(written, []) == pytest.approx((80.0, 80.0)), "there are no copies that tell them apart"


def test_windows_that_were_not_seen_share_the_time_between_those_that_were():
    windows = [StepWindow(seconds, 0) for seconds in (1.0, 1.0, 2.0)]
    assert seconds_seen(windows, {0: 10.0, 2: 13.0, 3: 14.0}).tolist() == [1.5, 1.5, 1.0]
    assert seconds_seen(windows, {0: 10.0, 1: 13.0, 2: 12.0, 3: 14.0}).tolist() == [3.0, 0.0, 1.0]


def test_the_simulators_step_is_judged_over_todays():
    """The machine was half as fast in the rounds as in the profile: that says nothing of the simulator."""
    today = Row({"how": checkflow_here.TODAY}).add("step", "s", [1.0, 1.1, 1.0])
    way = Row({"how": checkflow_here.LATE}).add("step", "s", [1.2, 1.32, 1.2])
    way.add("played", "s", [0.6]).add("profiled", "s", [0.5])
    found = checkflow_goals._simulated(way, today, "NT3")
    assert found.reached and found.found.startswith("+0.0%")


@pytest.mark.tensorflow
@pytest.mark.parametrize("each, size", [(1.0, 8), (0.51, 8), (0.5, 16)])
def test_the_largest_batch_is_the_one_that_memory_has_room_for(monkeypatch, each, size):
    """A training takes 4 GB, and each sample of its batch so many more. Of 20 GB it may take three quarters, less three copies of the 1 GB
    that the weights have: 12 GB."""
    from benchmarks import checkflow_keras_rank as rank

    tried = []
    memory = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 20_000_000_000}
    monkeypatch.setattr(rank, "os", SimpleNamespace(sysconf=memory.get))
    monkeypatch.setattr(rank.checkflow_keras, "batch", lambda model, samples: (samples, None))
    monkeypatch.setattr(rank, "fit", lambda model, x, y, steps: tried.append(x))
    monkeypatch.setattr(rank, "_used", lambda: int((4 + each * tried[-1]) * 1e9))
    weight = SimpleNamespace(numpy=lambda: SimpleNamespace(nbytes=1_000_000_000))
    assert rank._largest(SimpleNamespace(weights=[weight])) == size
    assert tried == [2**n for n in range(size.bit_length())]
