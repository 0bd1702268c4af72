"""The callback as its user sees it: one rank, Keras 3, real engine, real files."""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.events.event_files import EventFiles
from deepfreeze.format.levels import LEVELS
from deepfreeze.tiers import tiers
from tests.support import h5, jobs, processes, trainings
from tests.support.ranks import until
from tests.support.second_directory import SecondDirectory

pytestmark = pytest.mark.tensorflow


def make(units=8, optimizer="adam", **compiling):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units, "relu"), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", jit_compile=compiling.pop("jit_compile", False), **compiling)
    return model


def data(steps):
    rng = np.random.default_rng(0)
    x, y = rng.random((steps * 2, 4), np.float32), rng.random((steps * 2, 1), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(2)


def fit(model, checkpoint, steps=6, **options):
    callbacks = [checkpoint] if checkpoint is not None else []
    return model.fit(data(steps), verbose=0, shuffle=False, callbacks=callbacks, **options)


def steps(run):
    return [info.step for info in deepfreeze.checkpoints(run)]


def parts(error):
    """A message's four parts: where, expected, found, what to do."""
    assert isinstance(error, deepfreeze.Error)
    found = re.fullmatch(r"(.+?): expected (.+?); found (.+)\. ([A-Z].+)\.", str(error), re.DOTALL)
    assert found, str(error)
    return found.groups()


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


LOCALS = ("auto", None, "given")
DIAGONAL = set(zip(LEVELS, LOCALS))  # each level and each local tier once; the others in `make test-all`

# What it saves, and when


def test_every_k_steps_and_the_last_one_are_saved(run):
    checkpoint = deepfreeze.Checkpoint(run, every=2, keep=10)
    fit(make(), checkpoint, 7)
    assert steps(run) == [2, 4, 6, 7]
    assert checkpoint.stats.steps == [2, 4, 6, 7] and sorted(checkpoint.stats.committed) == [2, 4, 6, 7]


def test_the_final_checkpoint_can_be_left_out(run):
    fit(make(), deepfreeze.Checkpoint(run, every=2, keep=10, final=False), 7)
    assert steps(run) == [2, 4, 6]


def test_keep_bounds_the_committed_checkpoints(run):
    fit(make(), deepfreeze.Checkpoint(run, every=1, keep=3), 7)
    assert steps(run) == [5, 6, 7]
    assert not [path for path in run.iterdir() if path.name.startswith(".trash") or "partial" in path.name]


def test_the_file_loads_with_stock_load_weights_and_equals_save_weights(run, tmp_path):
    model = make()
    fit(model, deepfreeze.Checkpoint(run, every=3))
    model.save_weights(tmp_path / "stock.weights.h5")
    file = deepfreeze.latest(run).path / "model.weights.h5"
    h5.assert_same(file, tmp_path / "stock.weights.h5")
    fresh = make()
    fresh.optimizer.build(fresh.trainable_variables)
    fresh.load_weights(file)
    for mine, theirs in zip(fresh.variables, model.variables, strict=True):
        assert np.array_equal(mine, theirs)
    assert int(fresh.optimizer.iterations.numpy()) == 6


@pytest.mark.parametrize(
    ("wait_for", "local"),
    [
        pytest.param(wait_for, local, marks=[] if (wait_for, local) in DIAGONAL else pytest.mark.full)
        for wait_for in LEVELS
        for local in LOCALS
    ],
)
def test_every_level_and_every_kind_of_local_tier_commits(run, tmp_path, wait_for, local):
    if local == "given":
        local = tmp_path / "node"
        local.mkdir()
    fit(make(), deepfreeze.Checkpoint(run, every=2, keep=10, wait_for=wait_for, local=local))
    assert steps(run) == [2, 4, 6]
    if local not in ("auto", None):
        assert not list(local.iterdir()), "nothing is left on the local tier"


def test_a_training_keeps_its_slots_where_the_chosen_tier_says(run, tmp_path, monkeypatch):
    second = SecondDirectory(tmp_path / "first", tmp_path / "second")
    second.first.mkdir()
    monkeypatch.setattr(tiers, "TIERS", {"second": lambda: second})
    seen = set()

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.update(slot.name for slot in second.first.rglob("*.slot"))

    checkpoint = deepfreeze.Checkpoint(run, every=2, engine=deepfreeze.Engine(slots=3))
    make().fit(data(6), verbose=0, shuffle=False, callbacks=[checkpoint, Look()])
    assert seen and second.needed == 3 * checkpoint.stats.nbytes
    assert second.calls == ["leftovers", "clear", "need", "discard"]


def test_with_wait_for_external_each_step_is_committed_at_once(run):
    """Waiting for external means that each step is committed when training goes on."""
    seen = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(steps(run))

    model = make()
    checkpoint = deepfreeze.Checkpoint(run, every=2, keep=10, wait_for="external")
    model.fit(data(4), verbose=0, shuffle=False, callbacks=[checkpoint, Look()])
    assert seen == [[], [2], [2], [2, 4]]


def test_state_weights_saves_the_weights_alone_and_resumes_the_count(run):
    model = make()
    fit(model, deepfreeze.Checkpoint(run, every=3, state="weights"))
    assert not [path for path in h5.datasets(deepfreeze.latest(run).path / "model.weights.h5") if "optimizer" in path]
    again = make()
    checkpoint = deepfreeze.Checkpoint(run, every=3, state="weights")
    assert checkpoint.open(again) == 6
    checkpoint.close()
    assert all(np.array_equal(a, b) for a, b in zip(again.get_weights(), model.get_weights(), strict=True))


def test_training_is_the_same_with_and_without(run):
    plain, watched = make(), make()
    fit(plain, None, 9)
    fit(watched, deepfreeze.Checkpoint(run, every=1), 9)
    assert all(np.array_equal(a, b) for a, b in zip(plain.get_weights(), watched.get_weights(), strict=True))


def test_a_second_fit_with_the_same_callback_goes_on(run):
    model, checkpoint = make(), deepfreeze.Checkpoint(run, every=4, keep=10)
    fit(model, checkpoint, 6)
    fit(model, checkpoint, 6)
    assert steps(run) == [4, 6, 8, 12]


def test_after_close_the_model_trains_without_a_trace_of_it(run):
    model, checkpoint = make(), deepfreeze.Checkpoint(run, every=2)
    fit(model, checkpoint)
    checkpoint.close()
    assert "apply" not in vars(model.optimizer) and "train_step" not in vars(model)
    fit(model, None, 2)
    assert steps(run) == [4, 6]


def test_an_eager_model_is_captured_too(run, tmp_path):
    model = make(run_eagerly=True)
    fit(model, deepfreeze.Checkpoint(run, every=3, keep=10), 6)
    model.save_weights(tmp_path / "stock.weights.h5")
    assert steps(run) == [3, 6]
    h5.assert_same(deepfreeze.latest(run).path / "model.weights.h5", tmp_path / "stock.weights.h5")


# Resuming


def test_a_new_process_like_model_resumes_where_the_last_one_ended(run):
    first = make()
    fit(first, deepfreeze.Checkpoint(run, every=2))
    second = make()
    checkpoint = deepfreeze.Checkpoint(run, every=2, resume="required")
    assert checkpoint.open(second) == 6 and checkpoint.stats.resumed == 6
    checkpoint.close()
    for mine, theirs in zip(second.optimizer.variables, first.optimizer.variables, strict=True):
        assert np.array_equal(mine, theirs)


def test_resume_off_moves_the_newer_checkpoints_away_and_says_so(run, caplog):
    fit(make(), deepfreeze.Checkpoint(run, every=2))
    fit(make(), deepfreeze.Checkpoint(run, every=2, resume="off"), 3)
    assert steps(run) == [2, 3]
    assert sorted(path.name[:15] for path in (run / "abandoned").iterdir()) == ["step-0000000004", "step-0000000006"]
    assert "step 6 moved to" in caplog.text


def test_resuming_from_an_older_step_abandons_the_newer_ones(run):
    fit(make(), deepfreeze.Checkpoint(run, every=2, keep=10))
    model = make()
    deepfreeze.restore(model, run, step=2)
    fit(model, deepfreeze.Checkpoint(run, every=2, keep=10, resume="off"), 1)
    assert steps(run) == [2, 3]


def test_resume_required_with_nothing_there_is_refused(run):
    with pytest.raises(deepfreeze.NotFoundError) as caught:
        deepfreeze.Checkpoint(run, resume="required").open(make())
    assert parts(caught.value)[1].startswith("a checkpoint to resume from")


# Leaves nothing behind


def census():
    """Python's threads, the engine's threads (all are named df-...; TensorFlow's own come and go), open files."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one of TensorFlow's that has just ended
            names.append((task / "comm").read_text())
    return threading.active_count(), sum(name.startswith("df-") for name in names), sorted(os.listdir("/proc/self/fd"))


def test_threads_and_file_descriptors_are_back_after_fit(run):
    fit(make(), deepfreeze.Checkpoint(run, every=1), 4)  # TensorFlow starts its own threads once
    before = census()
    during = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            during.append(census()[1])

    model = make()
    checkpoint = deepfreeze.Checkpoint(run, every=1)
    model.fit(data(4), verbose=0, shuffle=False, callbacks=[checkpoint, Look()])
    assert max(during) > 0 and before[1] == 0
    assert census() == before


def test_an_exception_inside_fit_loses_nothing_and_leaves_no_lock(run):
    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 4:
                raise RuntimeError("user's own")

    model = make()
    checkpoint = deepfreeze.Checkpoint(run, every=2, wait_for="external")
    with pytest.raises(RuntimeError, match="user's own"):
        model.fit(data(8), verbose=0, shuffle=False, callbacks=[checkpoint, Fail()])
    assert steps(run) == [2, 4]
    checkpoint.close()
    fit(make(), deepfreeze.Checkpoint(run, every=2, resume="required"), 2)
    assert steps(run) == [4, 6]


def test_importing_deepfreeze_imports_neither_tensorflow_nor_the_engine():
    code = "import sys, deepfreeze; deepfreeze.read; assert not {'tensorflow', 'keras', 'veloc_bindings'} & set(sys.modules)"
    processes.run([sys.executable, "-c", code], check=True)


# Bad input: where, expected, found, what to do; nothing lost


def refused(run, kind, model=None, **options):
    with pytest.raises(kind) as caught:
        deepfreeze.Checkpoint(run, **options).open(model or make())
    return parts(caught.value)


def test_missing_parents_are_made_and_said_in_the_first_line(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for run, verbose in (("sweep/a/run", 1), ("sweep/b/run", 1), ("quiet/run", 0)):
        with contextlib.closing(deepfreeze.Checkpoint(run, verbose=verbose)) as checkpoint:
            assert checkpoint.open(make()) == 0
    assert [line for line in capfd.readouterr().err.splitlines() if line.startswith("deepfreeze:")] == [
        "deepfreeze: sweep/a/run is new; the directories above it were made: sweep, sweep/a",
        "deepfreeze: sweep/b/run is new; the directory above it was made: sweep/b",
    ]


def test_resume_required_makes_nothing_where_parents_are_missing(tmp_path):
    where, expected, found, _ = refused(tmp_path / "no" / "run", deepfreeze.NotFoundError, resume="required")
    assert where == str(tmp_path / "no" / "run") and 'resume="required"' in expected and found == "no run"
    assert os.listdir(tmp_path) == []


def test_a_place_that_no_file_system_is_mounted_at_is_asked_about():
    where, expected, found, todo = refused("/no such directory/run", deepfreeze.RunError)
    assert where == "/no such directory/run" and expected == "a directory to make it in" and found == "none but /"
    assert "mounted on this machine?" in todo and not os.path.exists("/no such directory")


def test_a_file_in_place_of_the_run_is_refused_and_kept(tmp_path):
    (tmp_path / "run").write_text("mine")
    where, _, found, _ = refused(tmp_path / "run", deepfreeze.RunError)
    assert where == str(tmp_path / "run") and found == "a file"
    assert (tmp_path / "run").read_text() == "mine"


def test_a_run_that_another_living_job_holds_is_refused_with_host_and_pid(run):
    code = f"from deepfreeze.store.lock import Lock; l = Lock.acquire({str(run)!r}); print('held', flush=True); input()"
    run.mkdir()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with processes.child([sys.executable, "-c", code], **pipes) as other:
        assert other.stdout.readline() == "held\n"
        _where, _, found, _todo = refused(run, deepfreeze.LockedError)
        assert str(other.pid) in found and os.uname().nodename in found
        other.kill()
        other.wait()
        checkpoint = deepfreeze.Checkpoint(run)
        assert checkpoint.open(make()) == 0, "a dead holder's lock is taken over"
        checkpoint.close()


def test_a_job_whose_run_was_taken_is_told_to_end_and_changes_nothing(run):
    """Somebody deleted the lock of a job that is alive, and started a second one."""

    def committed():
        found = {info.step: info.path for info in deepfreeze.checkpoints(run)}
        return {step: (info / "manifest.json").read_bytes() for step, info in found.items()}

    model, before = make(), {}
    with (
        pytest.raises(deepfreeze.EngineError) as caught,
        deepfreeze.capture(model.optimizer, model, run, every=2, keep=1, wait_for="external") as first,
    ):
        for number, (x, y) in enumerate(data(20)):
            if number == 5:
                until(
                    lambda: [info.step for info in deepfreeze.checkpoints(run)] == [4]
                )  # retention has removed step 2
                (run / "lock").unlink()
                fit(make(), deepfreeze.Checkpoint(run, every=1, keep=10), 3)
                before = committed()
            model.train_on_batch(x, y)
            first.step()
    assert number == 5, "the step in which the run was taken is the last one"
    assert list(before) == [4, 5, 6, 7] and committed() == before
    where, _, found, todo = parts(caught.value)
    second = deepfreeze.latest(run).attempt
    assert str(run) in where and f"attempt {second} has taken" in found and "nd this job" in todo


def test_another_models_checkpoint_is_refused_and_the_model_unchanged(run):
    fit(make(), deepfreeze.Checkpoint(run, every=3))
    other = make(units=9)
    before = other.get_weights()
    where, _expected, found, _ = refused(run, deepfreeze.StructureError, other)
    assert "step-0000000006" in where and "layers/dense/vars/0" in found and "[4, 9]" in found and "[4, 8]" in found
    assert all(np.array_equal(a, b) for a, b in zip(before, other.get_weights(), strict=True))


def test_a_truncated_file_is_refused_and_the_older_checkpoint_taken(run, caplog):
    fit(make(), deepfreeze.Checkpoint(run, every=3))
    file = deepfreeze.latest(run).path / "model.weights.h5"
    os.truncate(file, file.stat().st_size // 2)
    heard = []
    checkpoint = deepfreeze.Checkpoint(run, listeners=[heard.append])
    assert checkpoint.open(make()) == 3
    checkpoint.close()
    assert f"step 6 is damaged: {file}: expected" in caplog.text and "Moved to" in caplog.text
    attempt, damaged, going_on, restored, *_said, end = heard
    assert isinstance(attempt, deepfreeze.events.Attempt) and isinstance(end, deepfreeze.events.End)
    # Keras has a logger of its own, which may say that this machine is slow.
    logged = [record.getMessage() for record in caplog.records if record.name == "deepfreeze"]
    assert [damaged.message, going_on.message] == logged and damaged.level == going_on.level == "warning"
    assert "restored step 3" in restored.message and attempt.m <= damaged.m <= end.m
    written = [event for event in EventFiles(run).new() if event.get("message") == damaged.message]
    assert [event["m"] for event in written] == [round(damaged.m - attempt.m, 6)]


def test_a_missing_engine_is_an_error_of_ours(run, monkeypatch, tmp_path):
    monkeypatch.setenv("DEEPFREEZE_LIBRARY", str(tmp_path / "none.so"))
    monkeypatch.setattr("veloc_bindings._library._loaded", None)
    where, expected, _, _todo = refused(run, deepfreeze.EngineError)
    assert where == str(tmp_path / "none.so") and expected == "the native engine"


def test_a_model_without_an_optimizer_is_refused(run):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    checkpoint = deepfreeze.Checkpoint(run)
    checkpoint.set_model(model)  # ``fit`` itself refuses such a model earlier
    with pytest.raises(deepfreeze.UnsupportedError) as caught:
        checkpoint.on_train_begin()
    assert "without an optimizer" in caught.value.found and "compile" in caught.value.todo


def train_with_fault(run, library, fault, steps, *options):
    """In a process of its own, whose engine meets a fault of the operating system."""
    output = jobs.run("small.py", run, steps, *options, DEEPFREEZE_LIBRARY=library, DEEPFREEZE_FAULT=fault)
    return json.loads(output.strip().splitlines()[-1])


BAD_DISK = "fail=EIO:fdatasync:model.weights.h5:1"


def test_a_failed_write_is_raised_with_its_file_and_reason(run, testing_library):
    """A failed write is raised, names file and reason, and the next job goes on."""
    told = train_with_fault(run, testing_library, BAD_DISK, 30, "every=2", "local=null", "pause=0.5")
    assert told["last"] == 3, "the batch after the one in which the disk failed"
    assert "step 2: expected the checkpoint to be committed" in told["error"]
    assert "model.weights.h5" in told["error"] and "Input/output error" in told["error"]
    fit(make(), deepfreeze.Checkpoint(run, every=2, resume="off"), 2)
    assert steps(run) == [2]


@pytest.mark.full
def test_a_failed_write_can_be_a_warning_and_the_next_checkpoint_succeeds(run, testing_library):
    told = train_with_fault(run, testing_library, BAD_DISK, 6, "every=2", "local=null", 'on_error="warn"')
    assert told["error"] is None
    assert len(told["warnings"]) == 1 and "Input/output error" in told["warnings"][0]
    assert steps(run) == [4, 6]


@pytest.mark.full
def test_a_full_local_tier_is_passed_by_with_one_warning(run, testing_library):
    told = train_with_fault(run, testing_library, "fail=ENOSPC:mmap:.slot:1+", 6, "every=1", "keep=10")
    assert told["error"] is None
    assert len(told["warnings"]) == 1 and "No space left" in told["warnings"][0]
    assert steps(run) == [1, 2, 3, 4, 5, 6]


def test_a_warning_points_to_the_user_s_own_line(tmp_path, monkeypatch):
    """Neither to a line of this library nor to one of Keras's."""
    from deepfreeze.errors import EngineError
    from deepfreeze.freeze.saver import Saver

    def fails(self, step, collect, *given):
        collect()
        raise EngineError(where="step", expected="a", found="b", todo="c")

    monkeypatch.setattr(Saver, "save", fails)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=1, on_error="warn", final=False)
    with pytest.warns(deepfreeze.CheckpointWarning) as caught:
        trainings.dense(keras).fit(trainings.data(2), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert {warning.filename for warning in caught if warning.category is deepfreeze.CheckpointWarning} == {__file__}
