"""A run remembers which checkpoint it was seeded from."""

import dataclasses
import gc
import json
import os
import shutil

import numpy as np
import pytest

import deepfreeze
from deepfreeze.cli.main import main
from deepfreeze.format.run_file import MAX_PATH, Parent
from deepfreeze.state import lineage
from deepfreeze.store.writable_run import WritableRun
from tests.hostile import cases
from tests.support import files, kerases

pytestmark = pytest.mark.tensorflow

PARENT = Parent("/runs/old", "a" * 32, 40, "b" * 32)
X, Y = np.zeros((4, 4), np.float32), np.zeros((4, 2), np.float32)


def network(api, head="head"):
    inputs = api.Input((4,))
    hidden = api.layers.Dense(3, name="base")(inputs)
    return api.Model(inputs, api.layers.Dense(2, name=head)(hidden))


def trained(api, model, run, **options):
    model.compile(api.optimizers.Adam(1e-2), "mse", jit_compile=False)
    model.fit(X, Y, verbose=0, callbacks=[deepfreeze.Checkpoint(run, every=1, local=None, **options)])
    return model


def parent(run):
    return deepfreeze.latest(run).parent


@pytest.fixture(scope="module")
def once(api, tmp_path_factory):
    """What ``old`` is a copy of."""
    run = tmp_path_factory.mktemp("once") / "old"
    trained(api, network(api), run)
    return run


@pytest.fixture
def old(once, tmp_path):
    """A run with a checkpoint, which came from nowhere."""
    assert parent(once) is None
    return shutil.copytree(once, tmp_path / "old")


def expected(old):
    info = deepfreeze.latest(old)
    return Parent(str(old), info.run_id, info.step, info.attempt)


def test_a_run_that_transfer_or_restore_seeded_names_its_parent(api, old, tmp_path):
    model = network(api, head="fresh")
    deepfreeze.transfer(model, old)
    trained(api, model, tmp_path / "transferred")
    assert parent(tmp_path / "transferred") == expected(old)
    model = network(api)
    model.compile(api.optimizers.Adam(1e-2), "mse", jit_compile=False)
    deepfreeze.restore(model, old)
    model.optimizer.iterations.assign(0)
    trained(api, model, tmp_path / "restored")
    assert parent(tmp_path / "restored") == expected(old)
    assert (
        WritableRun.open(old).run_id
        == parent(tmp_path / "restored").run_id
        != WritableRun.open(tmp_path / "restored").run_id
    )


@kerases.one_api_will_do
def test_a_path_given_by_its_relative_name_is_recorded_whole(api, old, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = network(api, head="fresh")
    deepfreeze.transfer(model, "old")
    trained(api, model, "new")
    assert parent("new") == expected(old)


def test_layers_that_moved_to_another_model_are_recognised(api, old, tmp_path):
    part = network(api, head="fresh")
    base = api.Model(part.input, part.get_layer("base").output)
    deepfreeze.transfer(base, old)
    outputs = api.layers.Dense(2, name="another")(base.output)
    model = api.Model(base.input, outputs)
    del base, part
    trained(api, model, tmp_path / "new")
    assert parent(tmp_path / "new") == expected(old)


def test_of_several_the_last_counts(api, old, tmp_path):
    trained(api, network(api), tmp_path / "older")
    model = network(api)
    deepfreeze.transfer(model, tmp_path / "older", include="head")
    deepfreeze.transfer(model, old, include="base")
    trained(api, model, tmp_path / "new")
    assert parent(tmp_path / "new") == expected(old)


@kerases.one_api_will_do
def test_what_changes_no_model_makes_no_parent(api, old, tmp_path):
    model = network(api, head="fresh")
    deepfreeze.transfer(model, old, dry_run=True)
    with pytest.raises(deepfreeze.Error):
        deepfreeze.transfer(model, old, include="head", rename={"head": "base"})
    trained(api, model, tmp_path / "new")
    assert parent(tmp_path / "new") is None


@kerases.one_api_will_do
def test_a_run_that_goes_on_keeps_its_parent(api, old, tmp_path):
    model = network(api, head="fresh")
    deepfreeze.transfer(model, old)
    trained(api, model, tmp_path / "new")
    # The same program started again seeds the model again, or does not; either way the run has begun long ago.
    model = network(api, head="fresh")
    trained(api, model, tmp_path / "new")
    assert deepfreeze.latest(tmp_path / "new").step == 2 and parent(tmp_path / "new") == expected(old)
    trained(api, network(api), tmp_path / "other")
    deepfreeze.transfer(model, tmp_path / "other", include="base")
    trained(api, model, tmp_path / "new")
    assert parent(tmp_path / "new") == expected(old)
    # A run without a parent gets none by going on, not even from itself.
    model = network(api)
    trained(api, model, old, resume_epochs=False)
    assert parent(old) is None and deepfreeze.latest(old).step == 2


@kerases.one_api_will_do
def test_a_run_that_begins_again_has_the_parent_of_its_new_beginning(api, old, tmp_path):
    run = tmp_path / "new"

    class Dies(api.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            raise KeyboardInterrupt

    model = network(api, head="fresh")
    deepfreeze.transfer(model, old)
    model.compile(api.optimizers.Adam(1e-2), "mse", jit_compile=False)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, verbose=0, callbacks=[deepfreeze.Checkpoint(run, every=1, local=None), Dies()])
    before = WritableRun.open(run)
    assert deepfreeze.latest(run) is None and before.parent == expected(old)
    trained(api, network(api), run)
    assert parent(run) is None
    assert WritableRun.open(run) == dataclasses.replace(before, parent=None)
    # From scratch in a run that has checkpoints: those are set aside.
    model = network(api)
    deepfreeze.transfer(model, old)
    trained(api, model, run, resume="off")
    assert parent(run) == expected(old) and os.listdir(run / "abandoned")


@kerases.one_api_will_do
def test_a_run_is_not_its_own_parent(api, old):
    model = network(api)
    deepfreeze.transfer(model, old)
    trained(api, model, old, resume="off")
    assert parent(old) is None


def test_nothing_is_kept_alive_or_remembered_of_what_is_gone(api, old):
    gc.collect()
    before = len(lineage._remembered)
    model = network(api)
    deepfreeze.transfer(model, old)
    assert len(lineage._remembered) == before + 4
    assert lineage.parent_of(model.variables) == expected(old)
    del model
    gc.collect()
    assert len(lineage._remembered) <= before


def test_what_is_no_variable_is_passed_by():
    lineage.remember([object(), 5], PARENT)
    assert lineage.parent_of([object(), 5]) is None


def test_a_run_file_with_a_parent_is_covered_by_its_checksum(tmp_path):
    """A run file with a parent reads back, and its checksum covers the parent."""
    run = WritableRun.open_or_make(tmp_path / "run")
    seeded = run.set_parent(PARENT)
    assert seeded == WritableRun.open(run.path) == dataclasses.replace(run, parent=PARENT)
    assert os.listdir(run.path) == ["run.json"]
    data = (run.path / "run.json").read_bytes()
    for at in range(len(data)):
        files.flip(run.path / "run.json", at, 1 << at % 8)
        with pytest.raises(deepfreeze.CorruptError):
            WritableRun.open(run.path)
        (run.path / "run.json").write_bytes(data)
    assert seeded.set_parent(PARENT) is seeded
    assert seeded.set_parent(None) == WritableRun.open(run.path) == run


def test_any_path_can_be_recorded(tmp_path):
    run = WritableRun.open_or_make(tmp_path / "run")
    for path in ("/a\nb", "/\udcff\udc80", "/" + "\U0001f40d" * 5000, "/a\u202eb", "/" + "x" * 10_000, 'a"b\\c'):
        made = Parent.at(path, "a" * 32, 2**63 - 1, "b" * 32)
        assert os.path.isabs(made.path) and len(made.path) <= MAX_PATH
        assert run.set_parent(made) == WritableRun.open(run.path)
        run = WritableRun.open(run.path)


def test_a_parent_that_may_not_be_written_is_an_error_of_ours(tmp_path):
    run = WritableRun.open_or_make(tmp_path / "run")
    (run.path / "run.json.tmp").mkdir()
    with pytest.raises(deepfreeze.RunError):
        run.set_parent(PARENT)
    assert WritableRun.open(run.path).parent is None


def test_ls_shows_the_parent(tmp_path, capsys):
    path = files.write_run(tmp_path / "run", signed=True)
    WritableRun.open(path).set_parent(PARENT)
    assert main(["ls", str(path)]) == 1
    assert "seeded from: /runs/old@40\n" in capsys.readouterr().out
    files.write_checkpoint(path, 5)
    assert main(["ls", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "seeded from: /runs/old@40"
    assert main(["ls", "--json", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["parent"] for one in found] == [dataclasses.asdict(PARENT)]
    assert found[0]["run_id"] == files.RUN_ID
    WritableRun.open(path).set_parent(None)
    assert main(["ls", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)[0]["parent"] is None


def test_a_parent_that_somebody_else_wrote_is_read(tmp_path):
    run = files.write_run(tmp_path / "run")
    (run / "run.json").write_bytes(cases.seeded_run()())
    assert WritableRun.open(run).parent == Parent("/runs/old", "c" * 32, 40, files.ATTEMPT)
