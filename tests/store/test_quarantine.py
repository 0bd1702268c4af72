"""A damaged checkpoint is passed by and named, by a job's start and by ``deepfreeze.restore``; moved away by the start, and by
``deepfreeze verify --quarantine``. In real Keras."""

import errno
import json
import logging
import os
import random
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.errors import CorruptError, LockedError, NotFoundError, WorldError
from deepfreeze.events.messages import to_logger
from deepfreeze.inspect.verify import verify
from deepfreeze.store import durable
from deepfreeze.store.lock import Lock
from deepfreeze.store.prune import prune
from deepfreeze.store.quarantine import Fallback
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.training.start import Start
from tests.support import files, h5, restart, threads
from tests.support.seed import SEED

pytestmark = pytest.mark.tensorflow

RECORD, MANIFEST, MODEL = "records", "manifest.json", files.MODEL_FILE
OF_A_STEP = (RECORD, MANIFEST, MODEL)


def make():
    keras.backend.clear_session()  # the names are those of a new process
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def data(first, last):
    """The batches of steps ``first`` + 1 to ``last``."""
    rng = np.random.default_rng(0)
    x, y = rng.random((40, 4), np.float32), rng.random((40, 1), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(2).skip(first).take(last - first)


def train(run, model, first, last, **options):
    checkpoint = deepfreeze.Checkpoint(run, every=2, keep=9, local=None, **options)
    model.fit(data(first, last), verbose=0, shuffle=False, callbacks=[checkpoint])
    return checkpoint


def opened(run, model, **options):
    """The step that a job goes on from."""
    checkpoint = deepfreeze.Checkpoint(run, local=None, **options)
    try:
        return checkpoint.open(model)
    finally:
        checkpoint.close()


def state(model):
    return [np.asarray(v).tobytes() for v in [*model.variables, *model.optimizer.variables]]


def steps(run):
    return [info.step for info in deepfreeze.checkpoints(run)]


def folder(run, step):
    return run / f"step-{step:010d}"


def damage(run, step, name, at=100):
    files.flip(folder(run, step) / name, at)
    return folder(run, step) / name


def moved(run):
    return sorted(os.listdir(run / "damaged")) if (run / "damaged").exists() else []


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with the checkpoints 2, 4 and 6, and the model's state at each."""
    run, model, states = tmp_path_factory.mktemp("trained") / "run", make(), {}

    class Keep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            states[batch + 1] = state(self.model)

    checkpoint = deepfreeze.Checkpoint(run, every=2, keep=9, local=None)
    model.fit(data(0, 6), verbose=0, shuffle=False, callbacks=[checkpoint, Keep()])
    assert steps(run) == [2, 4, 6]
    return run, states


@pytest.fixture
def states(trained):
    return trained[1]


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained[0], tmp_path / "run")


# A job's start


def test_a_job_goes_on_from_the_newest_whole_one_and_says_why(run, states, caplog):
    """A job goes on from the newest whole checkpoint and says what was wrong with the newer ones."""
    attempts = [WritableRun.open(run).manifest(step).attempt for step in (4, 6)]
    content = {step: (folder(run, step) / MODEL).read_bytes() for step in (4, 6)}
    first = damage(run, 6, MODEL, at=content[6].index(b"TREE"))
    second = damage(run, 4, RECORD)
    model = make()
    assert opened(run, model, resume="required") == 2
    assert state(model) == states[2]
    assert steps(run) == [2]
    assert moved(run) == [f"step-{step:010d}-{attempt}" for step, attempt in zip((4, 6), attempts)]
    six, four, last = caplog.messages
    assert re.match(rf"step 6 is damaged: {first}: expected CRC32C \w+ for .+bytes \d+ to \d+\); found \w+\.", six)
    assert re.match(rf"step 4 is damaged: {second}: expected CRC32C \w+ of rank 0's record; found \w+\.", four)
    assert six.endswith(f"Moved to {run}/damaged/{moved(run)[1]}.")
    assert "going on from step 2" in last
    for step, name in zip((4, 6), moved(run)):
        kept = (run / "damaged" / name / MODEL).read_bytes()
        assert len(kept) == len(content[step]) and (kept == content[step]) == (step == 4), "kept, not deleted"


def test_training_after_a_fallback_equals_one_that_met_no_damage(run):
    """Training after a fallback ends with the very state of a training that met no damage."""
    whole = make()
    whole.fit(data(0, 10), verbose=0, shuffle=False)
    damage(run, 6, MODEL, at=3000)
    model = make()
    checkpoint = deepfreeze.Checkpoint(run, every=2, keep=9, local=None)
    start = checkpoint.open(model)
    assert start == 4
    model.fit(data(start, 10), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert checkpoint.stats.resumed == 4
    assert state(model) == state(whole)
    assert steps(run) == [2, 4, 6, 8, 10]
    assert all(verify(run, step).ok for step in steps(run))


@pytest.mark.parametrize("newest", [True, False], ids=["newest", "older"])
@pytest.mark.parametrize("how", ["flipped", "gone", "another-steps"])
def test_a_directory_whose_manifest_is_damaged_is_moved_away_and_named(run, states, caplog, newest, how):
    """An older one stays where it is, until training goes on from a step before it."""
    step = 6 if newest else 4
    file = folder(run, step) / MANIFEST
    if how == "flipped":
        damage(run, step, MANIFEST)
    elif how == "gone":
        file.unlink()
    else:
        shutil.copy(folder(run, 2) / MANIFEST, file)
    model = make()
    assert opened(run, model) == (4 if newest else 6)
    assert state(model) == states[4 if newest else 6]
    if not newest:
        assert moved(run) == [] and folder(run, step).exists(), "in nobody's way, and not even looked at"
        model = make()
        with deepfreeze.capture(model.optimizer, model, run, every=2, resume="off", final=False, local=None):
            pass  # a history of its own, in which step 4 comes again
    assert f"step-{step:010d}-unknown" in moved(run)
    assert f"step {step} is damaged: {file}: expected " in caplog.text or not newest
    assert f"{run}/damaged/" in caplog.text


def test_a_damaged_directory_is_kept_when_another_takes_its_place(run, states):
    """A damaged directory is kept when a dead attempt's checkpoint takes its place."""
    attempt = WritableRun.open(run).manifest(6).attempt
    partial = shutil.copytree(folder(run, 6), run / f"step-0000000006.partial-{attempt}")
    files.before_its_commit(partial)
    damage(run, 6, MANIFEST)
    model = make()
    assert opened(run, model) == 6
    assert state(model) == states[6]
    assert moved(run) == ["step-0000000006-unknown"]


@pytest.mark.parametrize("name", OF_A_STEP)
def test_with_nothing_whole_left_training_warns_and_starts_from_scratch(run, caplog, name):
    """With no whole checkpoint left, training starts from scratch, with a clear warning."""
    for step in (2, 4, 6):
        damage(run, step, name)
    model = make()
    before = state(model)
    assert opened(run, model) == 0
    assert state(model) == before
    assert len(moved(run)) == 3 and steps(run) == []
    assert caplog.messages[-1] == f"no checkpoint of {run} is whole: training starts from scratch"
    assert all(record.levelno == logging.WARNING for record in caplog.records)


@pytest.mark.parametrize("name", OF_A_STEP)
def test_resume_required_with_nothing_whole_left_is_refused(run, name):
    """Resuming with `resume="required"` and no whole checkpoint left is refused; the error says what was moved where."""
    for step in (2, 4, 6):
        damage(run, step, name)
    with pytest.raises(NotFoundError) as caught:
        opened(run, make(), resume="required")
    for step, path in zip((2, 4, 6), moved(run)):
        assert f"step {step} is damaged: {folder(run, step) / name}: expected" in caught.value.found
        assert f"Moved to {run}/damaged/{path}." in caught.value.found
    Lock.acquire(run).release()  # it was given back


def test_a_damaged_structure_is_named_and_no_checkpoint_is_moved(run, states, tmp_path, caplog):
    """A damaged structure is an error that names the file, and no checkpoint is moved."""
    (file,) = (run / "structures").iterdir()
    files.flip(file, 100)
    for resume in ("auto", "required"):
        with pytest.raises(CorruptError) as caught:
            opened(run, make(), resume=resume)
        assert caught.value.where == str(file) and file.stem in caught.value.expected
        assert "another run of the same program" in caught.value.todo
    with pytest.raises(CorruptError, match=file.name):
        deepfreeze.restore(make(), run)
    assert steps(run) == [2, 4, 6] and moved(run) == []
    assert "step 6 is damaged" in caplog.text and "left in place: its own files may be whole" in caplog.text
    # What the message says to do.
    train(tmp_path / "other", make(), 0, 1)
    shutil.copy(tmp_path / "other" / "structures" / file.name, file)
    model = make()
    assert opened(run, model) == 6 and state(model) == states[6]


def test_a_job_of_the_same_model_writes_a_damaged_structure_anew(run):
    (file,) = (run / "structures").iterdir()
    content = file.read_bytes()
    files.flip(file, 100)
    train(run, make(), 0, 3, resume="off")
    assert file.read_bytes() == content
    assert steps(run) == [2, 3], "the newer ones were moved to abandoned/, as always with resume=off"


def test_a_checkpoint_without_its_structure_is_not_damaged(run, states, caplog):
    """An older one of another structure is there, as after an upgrade of Keras."""
    (file,) = (run / "structures").iterdir()
    file.rename(tmp := run / "kept.json")
    old = json.loads(tmp.read_text())
    old["framework"]["keras"] = "3.0.0"
    text = json.dumps(old, sort_keys=True, separators=(",", ":")).encode()
    made = files.Sample({}, [], b"", text)
    files.write_structure(run, made)
    manifest = json.loads((folder(run, 2) / MANIFEST).read_text())
    record = bytearray((folder(run, 2) / RECORD).read_bytes())
    record[48:80] = bytes.fromhex(made.hash)
    record[-4:] = files.crc(bytes(record[:-4])).to_bytes(4, "little")
    (folder(run, 2) / RECORD).write_bytes(record)
    manifest["records"][0]["crc32c"] = f"{int.from_bytes(record[-4:], 'little'):08x}"
    known = {key: manifest[key] for key in ("step", "file_size", "records", "attempt", "created", "diverged")}
    known["values"] = json.dumps(manifest["values"])
    (folder(run, 2) / MANIFEST).write_bytes(files.manifest(structure=made.hash, run=manifest["run_id"], **known))
    assert verify(run, 2).ok
    model = make()
    assert opened(run, model) == 2 and state(model) == states[2]
    assert moved(run) == [] and sorted(p.name[:15] for p in (run / "abandoned").iterdir()) == [
        "step-0000000004",
        "step-0000000006",
    ]
    assert f"step 6 is damaged: {file}: expected" in caplog.text


def test_a_newer_versions_checkpoint_is_not_taken_for_a_damaged_one(run):
    file = folder(run, 6) / MANIFEST
    body = file.read_bytes().replace(b'"format": 1', b'"format": 3').replace(b'"format": 2', b'"format": 3')
    file.write_bytes(files.sign(body[: body.rindex(b'  "crc32c"')]))
    with pytest.raises(CorruptError, match="version of DeepFreeze that wrote it"):
        opened(run, make())
    assert file.exists() and moved(run) == []


def test_another_models_job_moves_nothing(run, caplog):
    damage(run, 6, RECORD)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(9)])
    model.compile("adam", "mse", jit_compile=False)
    with pytest.raises(deepfreeze.StructureError):
        opened(run, model)
    assert moved(run) == [] and "step 6 is damaged" in caplog.text and "left in place" in caplog.text


def test_bytes_that_the_disk_has_lost_are_damage(run, states, monkeypatch, caplog):
    real = os.preadv

    def preadv(fd, buffers, offset, *more):
        if "step-0000000006" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, buffers, offset, *more)

    monkeypatch.setattr(os, "preadv", preadv)
    model = make()
    assert opened(run, model) == 4 and state(model) == states[4]
    assert "Input/output error" in caplog.text and len(moved(run)) == 1


# What is another's, or on its way out


def test_a_second_job_is_refused_before_it_touches_the_firsts_slots(run, states, tmp_path):
    """A second job of the same run is refused before it touches the first one's slots."""
    place = tmp_path / f"deepfreeze-{os.geteuid()}" / WritableRun.open(run).run_id
    place.mkdir(parents=True, mode=0o700)
    place.parent.chmod(0o700)
    slot, partial = place / "rank-00000-0.slot", run / f"step-0000000008.partial-{'a' * 32}"
    slot.write_bytes(b"of the job that is alive")
    partial.mkdir()
    second = deepfreeze.Checkpoint(run, local=tmp_path)
    with Lock.acquire(run), pytest.raises(LockedError, match=f"pid {os.getpid()} on"):
        second.open(make())
    assert slot.read_bytes() == b"of the job that is alive" and partial.is_dir()
    # Once the first one is dead, that is what a start clears.
    assert second.open(model := make()) == 6 and state(model) == states[6]
    second.close()
    assert not slot.exists() and not partial.exists()


def test_what_prune_could_not_delete_the_next_start_does(run, states, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(durable, "delete", lambda path: None)
        assert len(prune(run, 1).left) == 2
    trash = [path for path in run.iterdir() if path.name.startswith(".trash-")]
    assert len(trash) == 2 and all((path / MODEL).exists() for path in trash)
    model = make()
    assert opened(run, model) == 6 and state(model) == states[6]
    assert not any(path.exists() for path in trash) and steps(run) == [6]


# Flipped bits, through both ways to restore


def test_twenty_flipped_bits_are_passed_by_through_real_models(run, states, caplog):
    print(f"seed {SEED} (DEEPFREEZE_TEST_SEED)")
    rng = random.Random(SEED)
    copy = shutil.copytree(folder(run, 6), run.parent / "copy")
    model, ways = make(), (deepfreeze.restore, lambda model, run: opened(run, model))
    aside = 0
    for number in range(20):
        file = folder(run, 6) / OF_A_STEP[number % 3]
        files.flip_in_place(file, rng.randrange(file.stat().st_size), 1 << rng.randrange(8))
        caplog.clear()
        way = number // 3 % 2
        ways[way](model, run)
        aside += way
        assert state(model) == states[4], (number, file)
        assert f"step 6 is damaged: {file}: expected" in caplog.text and ("Moved to" in caplog.text) == bool(way)
        assert len(moved(run)) == aside and file.exists() != bool(way)
        shutil.rmtree(folder(run, 6), ignore_errors=True)
        shutil.copytree(copy, folder(run, 6))
    assert deepfreeze.restore(model, run).step == 6 and state(model) == states[6]


# deepfreeze.restore


def content(run):
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
def test_restore_leaves_a_damaged_checkpoint_in_place_and_takes_no_lock(run, states, caplog, monkeypatch, held):
    """A job that starts meanwhile finds the run as it was, and free."""
    damage(run, 6, RECORD)
    lock = Lock.acquire(run) if held else None
    before = content(run)
    monkeypatch.setattr(Lock, "acquire", lambda *args: pytest.fail("reading takes no lock"))
    monkeypatch.setattr(os, "rename", lambda *args: pytest.fail("reading moves nothing"))
    model = make()
    for rank in (None, 0, 1):
        assert deepfreeze.restore(model, run, rank=rank, world_size=rank if rank is None else 2).step == 4
    assert state(model)[:2] == states[4][:2]
    assert content(run) == before
    assert "step 6 is damaged" in caplog.text and "left in place" in caplog.text and "--quarantine" in caplog.text
    if lock is not None:
        lock.release()


def test_restore_with_nothing_whole_left_is_an_error_and_changes_nothing(run):
    for step, name in zip((2, 4, 6), OF_A_STEP):
        damage(run, step, name)
    model = make()
    before = state(model)
    with pytest.raises(CorruptError) as caught:
        deepfreeze.restore(model, run)
    for step, name in zip((2, 4, 6), OF_A_STEP):
        assert f"step {step} is damaged: {folder(run, step) / name}" in caught.value.found
    assert state(model) == before and moved(run) == []


def test_restore_of_a_given_step_takes_no_other(run):
    damage(run, 6, RECORD)
    with pytest.raises(CorruptError):
        deepfreeze.restore(make(), run, step=6)
    assert moved(run) == []


def test_a_checkpoint_that_another_rank_moves_away_meanwhile_is_no_error(run, monkeypatch):
    damage(run, 6, RECORD)
    real = Fallback.next

    def next_and_move(self):
        step = real(self)
        if step == 6:
            WritableRun.open(run).quarantine(6)
        return step

    monkeypatch.setattr(Fallback, "next", next_and_move)
    assert deepfreeze.restore(make(), run).step == 4


# Several ranks


def start(run, broken, resume="auto"):
    """What two ranks resume from, by rank, and what each one was given; rank 1 alone finds the ``broken`` steps damaged."""
    given = {0: [], 1: []}

    class Some(restart.Newest):
        def __init__(self, rank):
            self.rank = rank

        def read(self, step, table):
            if self.rank == 1 and step in broken:
                raise CorruptError(where=folder(run, step) / "rank-00001.record", expected="a", found="b", todo="c")

        def assign(self, step):
            given[self.rank].append(step)

    def rank(world):
        begun = Start.begin(str(run), Some(world.rank), world, to_logger, resume, local=None)
        begun.close()
        return begun.resumed

    return threads.run(2, rank), given


def test_damage_that_one_rank_finds_makes_all_ranks_fall_back(run, caplog):
    """Damage that one rank alone finds makes all ranks fall back together."""
    outcome, given = start(run, broken=(6, 4))
    assert outcome == [2, 2]
    assert given == {0: [2], 1: [2]}, "no rank was given a checkpoint that another could not read"
    assert len(moved(run)) == 2 and "step 6 is damaged (found by rank 1)" in caplog.text


def test_with_nothing_that_all_ranks_can_read_no_model_is_changed(run):
    """With no checkpoint left that all ranks can read, no rank's model is changed."""
    outcome, given = start(run, broken=(6, 4, 2))
    assert outcome == [None, None] and given == {0: [], 1: []}
    assert len(moved(run)) == 3


def test_with_resume_required_every_rank_hears_that_nothing_is_left(run):
    outcome, _ = start(run, broken=(6, 4, 2), resume="required")
    assert isinstance(outcome[0], NotFoundError) and isinstance(outcome[1], WorldError)
    assert "step 4 is damaged (found by rank 1)" in str(outcome[1])


@pytest.mark.full
@pytest.mark.ranks
@pytest.mark.tensorflow
def test_two_horovod_ranks_fall_back_together(two, tmp_path):
    """All ranks of a real job take the older checkpoint when one rank's record of the newest is damaged."""
    training = {"name": "ranks", "api": "keras", "folder": tmp_path, "every": 2, "kind": "dense"}
    two.run(**training, steps=4)
    damage(tmp_path / "run", 4, RECORD)
    stats = two.run(**training, steps=2, resume="required")
    file = h5.datasets(folder(tmp_path / "run", 2) / MODEL)
    for rank in (0, 1):
        assert stats[rank]["resumed"] == 2
        with np.load(tmp_path / f"rank-{rank}.npz") as held:
            assert all(held[path].tobytes() == file[path].tobytes() for path in file if path.startswith("layers"))
    logged = "".join(stats[0]["logged"])
    assert "step 4 is damaged" in logged and "records: expected" in logged
    assert steps(tmp_path / "run") == [2] and len(moved(tmp_path / "run")) == 1
