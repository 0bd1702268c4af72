"""Ranks that are no replicas: another model, other options, other weights. All of them are told, in bounded time, what and on which
rank; a model and its optimizer are compared before training begins, weights in the first checkpoint."""

import importlib
import json

import pytest

import deepfreeze
from tests.support import h5, jobs, kerases
from tests.support.horovod import case as launch
from tests.support.refusals import PARTS

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]

MODELS = {
    "units": ("float32 of shape (128, 8)", "float32 of shape (128, 12)"),
    "layer": ("float32 of shape (8, 3)", "float32 of shape (8, 8)"),
    "dtype": ("float32 of shape (8, 3)", "float64 of shape (8, 3)"),
    "optimizer": ("optimizer Adam", "optimizer SGD"),
}
WAYS = ("broadcast", "fit", "open", "loop")
# The checkpoints that stay, and whether each is marked: from the first one, at which the ranks are compared.
SEEDS = {
    "every=1:wrap=false:on_divergence=warn": {3: True, 4: True},
    "every=2:on_divergence=warn": {2: True, 4: True},
    "every=15:on_divergence=warn": {4: True},
    "every=2": {},
    "every=15": {},
    "every=2:on_divergence=raise": {},
    # The last step fails too, and it ends the training before all ranks could be told of the first one.
    "every=2:on_divergence=raise:pause=4": {},
}


# A job that is refused, and the next one in the same run, with the mistake mended.
REFUSED = ["fit:seed:wrap=false:run=refused", "broadcast:seed:run=refused"]

# Horovod matches the ops in a graph by their names; between two steps, in a loop, it goes by their order.
NAMED = ["broadcast:names", "fit:names"]


# What `make test` runs: each Keras, each way and each difference; the other combinations are for `make test-all`.
OFTEN = {
    "keras": [
        *("broadcast:units", "fit:layer", "open:dtype", "loop:optimizer", "broadcast:names"),
        "fit:seed:every=1:wrap=false:on_divergence=warn",
    ],
    "tf_keras": [
        *("broadcast:layer", "fit:units", "open:optimizer", "loop:dtype", "fit:names"),
        "fit:seed:every=2:on_divergence=warn",
    ],
}


def on_each_keras(cases):
    """Parameters ``api`` and ``case``."""
    return pytest.mark.parametrize(
        ("api", "case"),
        [
            pytest.param(api, case, marks=() if case in OFTEN[api] else pytest.mark.full, id=f"{api}-{case}")
            for api in kerases.NAMES
            for case in cases
        ],
    )


def reports(folder, case):
    return [json.loads((folder / f"{case}-{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture
def horovod(two, api, tmp_path):
    """Runs cases, one after the other: after each refusal the ranks go on together. Returns their folder."""

    def run(*cases):
        two.run("unlike_models", api=api, folder=tmp_path, cases=cases)
        return tmp_path

    return run


@pytest.fixture(scope="module")
def mpi(tmp_path_factory):
    """The same without Horovod, and what belongs to communicators alone."""
    folder = tmp_path_factory.mktemp("mpi")
    cases = [
        "fit:none:run=alike",
        "fit:none:run=alike:resume=required",
        "fit:seed:on_divergence=warn",
        "open:units",
        "fit:layer",
        "loop:none",
    ]
    cases += ["open:none:rank1=keep", "open:none:rank1=every", "open:none:comm=self"]
    jobs.run(*launch("unlike_models", api="keras", folder=folder, world="mpi", cases=cases), ranks=2)
    return folder


def assert_all_ranks_are_told(folder, case, kind, **wanted):
    """Nothing was done: no step, no run."""
    for report in reports(folder, case):
        error = report["error"]
        assert error is not None and error["kind"] == kind, (case, error)
        for part in PARTS:
            assert error[part] and wanted.get(part, "") in error[part], (case, part, error)
        assert report["step"] == 0 and report["unchanged"], case
    assert not (folder / case).exists(), case


@on_each_keras([f"{way}:{difference}" for way in WAYS for difference in MODELS])
def test_another_model_on_one_rank_is_refused_on_all_before_training(horovod, case):
    folder = horovod(case)
    expected, found = MODELS[case.partition(":")[2]]
    assert_all_ranks_are_told(
        folder, case, "StructureError", where="rank 1", expected=f"the same model as on rank 0, which has {expected}"
        if "optimizer" in case else expected, found=found, todo="the same model, with the same optimizer, on every rank",
    )  # fmt: skip


@on_each_keras(NAMED)
def test_layers_that_keras_counted_differently_are_refused_on_all_ranks(horovod, case, api):
    folder = horovod(case)
    # Keras 2 gives no layer the name of its model.
    kernel = "dense_2/kernel" if kerases.is_2(importlib.import_module(api)) else "sequential_1/dense_2/kernel"
    found, todo = "float32 of shape (128, 8) in its place", "give the layers names"
    for report in reports(folder, case):
        error = report["error"]
        assert error["kind"] == "StructureError" and error["where"] == "rank 1", error
        assert error["found"].startswith(f"{kernel}, {found}")
        assert todo in error["todo"] and report["step"] == 0 and report["unchanged"]
    assert deepfreeze.checkpoints(folder / case) == [] if case == "fit:names" else not (folder / case).exists()


@on_each_keras([f"fit:seed:{options}" for options in SEEDS])
def test_replicas_that_nobody_made_alike_are_named_in_the_first_checkpoint(horovod, case):
    folder = horovod(case)
    first, second = reports(folder, case)
    early, named = first["warnings"][0], [text for text in first["warnings"] if "differ" in text]
    assert "step 2: expected the same weights on all ranks; found others on rank 1 than on rank 0" in early
    assert not any("found others on rank" in text for text in second["warnings"]), "rank 0 says it"
    kept = SEEDS[case.partition("seed:")[2]]
    assert {info.step: info.diverged > 0 for info in deepfreeze.checkpoints(folder / case)} == kept
    if kept:
        assert first["error"] is second["error"] is None and named
        step = {"1": 2, "2": 2, "15": 4}[case.partition("every=")[2].partition(":")[0]]
        assert f"step {step}: expected the same weights" in named[0] and "rank 1" in named[0] and "kernel" in named[0]
        assert "BroadcastState" in named[0]
    else:
        step = 4 if "every=15" in case else 2
        for report in (first, second):
            # Both usual causes, wherever the user looks.
            assert "DistributedOptimizer" in report["error"]["text"] and "roadcast" in report["error"]["text"]
        assert first["error"]["where"].endswith(f"step {step}") and "kernel" in first["error"]["found"]
        assert "rank 1" in first["error"]["found"] and "BroadcastState" in first["error"]["todo"]


@pytest.mark.parametrize(
    "api", [kerases.NAMES[0], *(pytest.param(a, marks=pytest.mark.full) for a in kerases.NAMES[1:])]
)
def test_what_was_refused_is_not_resumed_from(horovod):
    folder = horovod(*REFUSED)
    for before, after in zip(*(reports(folder, case) for case in REFUSED), strict=True):
        assert "differ between the ranks" in before["error"]["text"]
        assert after["error"] is None and after["step"] == 4, "from scratch"
    assert [(info.step, info.diverged) for info in deepfreeze.checkpoints(folder / "refused")] == [(3, 0), (4, 0)]


@pytest.mark.parametrize(
    "api", [*(pytest.param(a, marks=pytest.mark.full) for a in kerases.NAMES[:-1]), kerases.NAMES[-1]]
)
def test_a_broadcast_makes_them_alike_and_nothing_is_said(horovod):
    folder = horovod("broadcast:seed")
    for report in reports(folder, "broadcast:seed"):
        assert report["error"] is None and not report["warnings"] and report["step"] == 4
    infos = deepfreeze.checkpoints(folder / "broadcast:seed")
    assert [(info.step, info.diverged) for info in infos] == [(3, 0), (4, 0)]


@pytest.mark.full
def test_the_ranks_of_a_communicator_save_one_checkpoint_together(mpi):
    for case, step in (("fit:none:run=alike", 4), ("fit:none:run=alike:resume=required", 8), ("loop:none", 4)):
        for report in reports(mpi, case):
            assert report["error"] is None and not report["warnings"] and report["step"] == step, (case, report)
    assert [(i.step, i.world_size) for i in deepfreeze.checkpoints(mpi / "alike")] == [(7, 2), (8, 2)]
    assert [(i.step, i.world_size) for i in deepfreeze.checkpoints(mpi / "loop:none")] == [(3, 2), (4, 2)]
    assert len(list((mpi / "loop:none" / "events").iterdir())) == 1, "rank 0 alone keeps the events"


@pytest.mark.full
def test_ranks_of_a_communicator_with_other_weights_are_named(mpi):
    first, second = reports(mpi, "fit:seed:on_divergence=warn")
    assert first["error"] is second["error"] is None
    assert "others on rank 1 than on rank 0" in first["warnings"][0]
    assert any("step 2: " in text and "rank 1" in text and "kernel" in text for text in first["warnings"][1:])


@pytest.mark.parametrize(
    ("case", "kind", "wanted"),
    [
        ("open:units", "StructureError", {"expected": MODELS["units"][0], "found": MODELS["units"][1]}),
        ("fit:layer", "StructureError", {"expected": MODELS["layer"][0], "found": MODELS["layer"][1]}),
        (
            "open:none:rank1=keep",
            "OptionError",
            {"expected": "keep=Latest(2), as on rank 0", "found": "keep=Latest(7)"},
        ),
        ("open:none:rank1=every", "OptionError", {"expected": "every=1, as on rank 0", "found": "every=7"}),
    ],
)
@pytest.mark.full
def test_ranks_of_a_communicator_that_are_unlike_are_refused_on_all(mpi, case, kind, wanted):
    assert_all_ranks_are_told(mpi, case, kind, where="rank 1", **wanted)


@pytest.mark.full
def test_communicators_of_one_rank_each_are_jobs_of_their_own(mpi):
    errors = [report["error"] for report in reports(mpi, "open:none:comm=self")]
    (refused,) = [error for error in errors if error is not None]
    assert refused["kind"] == "LockedError" and "world is one rank" in refused["todo"]


def test_a_communicator_of_another_size_than_horovods_is_refused(two, tmp_path):
    cases = ["fit:none", "open:none:comm=self"]
    two.run("unlike_models", api="keras", folder=tmp_path, world="both", cases=cases)
    assert all(report["error"] is None for report in reports(tmp_path, "fit:none"))
    expected, todo = "a communicator of Horovod's 2 ranks", "leave world= out"
    assert_all_ranks_are_told(
        tmp_path, "open:none:comm=self", "OptionError", where="world=", expected=expected, found="one of 1", todo=todo
    )


@pytest.mark.parametrize(
    "api", [kerases.NAMES[0], *(pytest.param(api, marks=pytest.mark.full) for api in kerases.NAMES[1:])]
)
def test_ranks_whose_captures_differ_after_a_fit_go_on_together(two, api, tmp_path):
    first, second = two.run("again", api=api, folder=tmp_path)
    assert (first, second) == (2, 6), "rank 0 went on alone, with a new optimizer"
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 3, 4, 6]
    h5.assert_same(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5", tmp_path / "6.weights.h5")
