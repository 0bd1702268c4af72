"""Bit rot: whatever bit flips, wherever a file ends early, whichever old file comes back, it is found and named."""

import os
import random
import re
import shutil
import types

import numpy as np
import pytest

from deepfreeze.errors import CorruptError
from deepfreeze.exports.export import export
from deepfreeze.format.structure import Structure
from deepfreeze.inspect.verify import verify
from deepfreeze.state import dataset_paths
from deepfreeze.thaw.restore import restore
from tests.support import configs, files
from tests.support.seed import SEED
from tests.support.stand_in import Model

FLIPS, RESTORED_FLIPS, TRUNCATIONS = 10_000, 2_000, 300
OTHER = "f" * 32  # another attempt


class Variable:
    """Takes values as a framework's variable does."""

    value = None

    def assign(self, value):
        self.value = np.array(value)


@pytest.fixture
def rng():
    print(f"seed {SEED} (DEEPFREEZE_TEST_SEED)")
    return random.Random(SEED)


@pytest.fixture
def run(tmp_path):
    """Two checkpoints of two ranks, of one structure and different values, and the configuration of their model."""
    path = files.write_run(tmp_path / "run", signed=True)
    configs.write_config(path)
    for step in (20, 40):
        _, made = files.write_checkpoint(path, step, files.sample(seed=step))
        assert verify(path, step).ok
    assert made.hash == files.sample(seed=20).hash
    return path


@pytest.fixture
def model(monkeypatch):
    """A stand-in for a model of the sample's structure."""
    slots = [types.SimpleNamespace(path=t.path, spec=t.spec, variable=Variable())
             for t in Structure.from_bytes(files.sample().structure, "x").tensors]  # fmt: skip
    monkeypatch.setattr(dataset_paths, "locate", lambda state, layout: types.SimpleNamespace(tensors=slots))
    optimizer = types.SimpleNamespace(built=True, build=lambda variables: None)
    return Model(built=True, name="m", optimizer=optimizer, variables=[], trainable_variables=[], slots=slots)


def all_files(run):
    """Every file but the lock, whose content is for people."""
    return sorted(path for path in run.rglob("*") if path.is_file() and path.name != "lock")


def restored_from(run):
    """Every file that a restore reads: the model's configuration is for export alone."""
    return [file for file in all_files(run) if file.parent.name != "configs"]


def step_of(file):
    """The checkpoint that a file belongs to; the newest for those of the run."""
    return int(file.parent.name[5:]) if file.parent.name.startswith("step-") else 40


def problems(run, step):
    """(file, part) of everything that verify, or opening the run, finds wrong."""
    try:
        found = verify(run, step).problems
    except CorruptError as error:
        assert error.expected and error.found
        return [(os.path.basename(error.where), "")]
    assert all(problem.expected and problem.found for problem in found)
    return [(problem.file, problem.part) for problem in found]


def assert_found(run, file, at=None, what=""):
    """The file is named first, and nothing else is; in the model file also the range with the byte ``at``."""
    found = problems(run, step_of(file))
    assert found, (what, file, at)
    # What no record tells the checksum of can't be checked, and that is said too.
    known = {file.name, files.MODEL_FILE} if file.suffix == ".record" else {file.name}
    assert found[0][0] == file.name and {name for name, _ in found} <= known, (what, file, at, found)
    if at is not None and file.name == files.MODEL_FILE:
        assert len(found) == 1
        assert_in_range(at, found[0][1])


def assert_in_range(at, text):
    """The text names a range of the model file, no longer than an extent, with the byte ``at``."""
    begin, end = map(int, re.search(r"bytes (\d+) to (\d+)", text).groups())
    assert begin <= at < end <= begin + 3000, (at, text)


def pick(rng, everything):
    """A byte of all files: as often a random one of them all as one of a random file, so that small files get their share."""
    sizes = [file.stat().st_size for file in everything]
    file = rng.choices(everything, sizes if rng.random() < 0.5 else None)[0]
    return file, rng.randrange(file.stat().st_size)


@pytest.mark.slow
def test_each_of_many_flipped_bits_is_found_and_its_range_named(run, points, record_property):
    """Each of ten thousand flipped bits is found, and its file and range are named."""
    everything = all_files(run)
    assert len(everything) == 3 + 2 * 4
    for number in (due := points(range(FLIPS))):
        rng = random.Random(f"{SEED} {number}")
        file, at = pick(rng, everything)
        mask = 1 << rng.randrange(8)
        files.flip_in_place(file, at, mask)
        assert_found(run, file, at, f"bit {mask:#x}")
        files.flip_in_place(file, at, mask)
    assert problems(run, 20) == problems(run, 40) == []
    record_property("points", f"flipped bits: {len(due)} of {FLIPS} points, all found")


def test_every_bit_of_the_runs_own_file_counts(run):
    file = run / "run.json"
    for at in range(file.stat().st_size):
        for bit in range(8):
            files.flip_in_place(file, at, 1 << bit)
            with pytest.raises(CorruptError) as caught:
                verify(run, 40)
            assert caught.value.where == str(file)
            files.flip_in_place(file, at, 1 << bit)
    assert problems(run, 40) == []


def test_no_flipped_bit_of_a_models_configuration_is_exported(run, tmp_path):
    (file,) = (run / "configs").iterdir()
    for at in range(file.stat().st_size):
        files.flip_in_place(file, at, 1 << at % 8)
        with pytest.raises(CorruptError) as caught:
            export(run, tmp_path / "a.keras")
        assert caught.value.where == str(file)
        files.flip_in_place(file, at, 1 << at % 8)
    assert not (tmp_path / "a.keras").exists() and export(run, tmp_path / "a.keras").step == 40


@pytest.mark.slow
def test_no_flipped_bit_is_restored_from(run, model, points):
    everything = [file for file in restored_from(run) if "0000000020" not in file.parent.name]
    assert len(everything) == 2 + 4
    for number in points(range(RESTORED_FLIPS)):
        rng = random.Random(f"{SEED} {number}")
        file, at = pick(rng, everything)
        mask = 1 << rng.randrange(8)
        files.flip_in_place(file, at, mask)
        with pytest.raises(CorruptError) as caught:
            restore(model, run, 40)
        assert caught.value.where == str(file), (file, at, mask)
        assert caught.value.expected and caught.value.found
        if file.name == files.MODEL_FILE:
            assert_in_range(at, caught.value.expected)
        files.flip_in_place(file, at, mask)
    assert all(slot.variable.value is None for slot in model.slots), "the model was left alone"
    assert restore(model, run).step == 40


def test_a_file_that_ends_anywhere_is_found(run, model, points):
    everything = all_files(run)
    for number in points(range(TRUNCATIONS)):
        rng = random.Random(f"{SEED} {number}")
        file = everything[number % len(everything)]
        data = file.read_bytes()
        os.truncate(file, rng.randrange(len(data)))
        step = step_of(file)
        assert file.name in {name for name, _ in problems(run, step)}, (file, file.stat().st_size)
        if file in restored_from(run):
            with pytest.raises(CorruptError) as caught:
                restore(model, run, step)
            assert caught.value.where == str(file)
        file.write_bytes(data)
    assert problems(run, 20) == problems(run, 40) == []


def test_a_file_that_goes_on_behind_its_end_is_found(run):
    for file in all_files(run):
        size = file.stat().st_size
        for more in (b"\0", b"\n", b"}", file.read_bytes()):
            with open(file, "ab") as opened:
                opened.write(more)
            assert file.name in {name for name, _ in problems(run, step_of(file))}, (file, more[:9])
            os.truncate(file, size)


def test_two_ranks_records_that_are_swapped_are_found(run, model):
    folder = run / "step-0000000040"
    first, second = folder / "rank-00000.record", folder / "rank-00001.record"
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    assert {name for name, _ in problems(run, 40)} >= {first.name, second.name}
    with pytest.raises(CorruptError, match=r"rank-00000\.record"):
        restore(model, run, 40)


@pytest.mark.parametrize("name", ["rank-00001.record", "manifest.json", files.MODEL_FILE])
def test_an_older_steps_file_in_a_newer_ones_place_is_found(run, model, name):
    shutil.copy(run / "step-0000000020" / name, run / "step-0000000040" / name)
    assert problems(run, 40)[0][0] == name
    with pytest.raises(CorruptError, match=re.escape(name)):
        restore(model, run, 40)


@pytest.mark.parametrize("name", ["rank-00000.record", "rank-00001.record", "manifest.json"])
def test_the_same_steps_file_of_another_attempt_is_found(run, model, tmp_path, name):
    """Of the same values: nothing but the attempt's id tells them apart."""
    elsewhere = files.write_run(tmp_path / "elsewhere")
    folder, _ = files.write_checkpoint(elsewhere, 40, files.sample(seed=40), attempt=OTHER)
    shutil.copy(folder / name, run / "step-0000000040" / name)
    found = {file for file, _ in problems(run, 40)}
    # A manifest that is whole is believed: then it is the records that are another attempt's.
    assert found >= ({"rank-00000.record", "rank-00001.record"} if name == "manifest.json" else {name})
    with pytest.raises(CorruptError, match="attempt"):
        restore(model, run, 40)


def test_two_steps_directories_that_are_swapped_are_found(run, model):
    old, new = run / "step-0000000020", run / "step-0000000040"
    old.rename(run / "x")
    new.rename(old)
    (run / "x").rename(new)
    for step, other in ((20, 40), (40, 20)):
        assert problems(run, step) == [("manifest.json", "the whole checkpoint")]
        with pytest.raises(CorruptError) as caught:
            restore(model, run, step)
        assert f"step {step} of run" in caught.value.expected and f"step {other} of run" in caught.value.found


def test_another_models_structure_in_place_of_this_ones_is_found(run, model):
    (file,) = (run / "structures").iterdir()
    file.write_bytes(files.sample(state="weights").structure)
    assert {name for name, _ in problems(run, 40)} == {file.name}
    with pytest.raises(CorruptError, match="SHA-256"):
        restore(model, run, 40)


@pytest.mark.parametrize("name", [files.MODEL_FILE, "rank-00001.record", "manifest.json"])
def test_restore_falls_back_to_the_older_one_and_says_why(run, model, rng, name, caplog):
    """Restore falls back to the older checkpoint and says what was wrong with the newer one."""
    file = run / "step-0000000040" / name
    old = files.sample(seed=20)
    for _ in range(7):
        shutil.copytree(file.parent, run / "copy")
        files.flip_in_place(file, rng.randrange(file.stat().st_size), 1 << rng.randrange(8))
        caplog.clear()
        assert restore(model, run).step == 20
        values = {slot.spec.name: slot.variable.value for slot in model.slots}
        assert all(np.array_equal(value, old.values[name]) for name, value in values.items())
        assert str(file) in caplog.text and "expected" in caplog.text and "found" in caplog.text
        assert "left in place" in caplog.text and not (run / "damaged").exists()
        shutil.rmtree(file.parent)
        (run / "copy").rename(file.parent)
