"""Tensors by name: right values, few bytes read, damage named."""

import os
import shutil
import sys

import numpy as np
import pytest

from deepfreeze.errors import CorruptError, Error, NotFoundError, OptionError
from deepfreeze.format.structure import Structure
from deepfreeze.thaw.read import read
from tests.support import files, processes
from tests.support.private import read_private


@pytest.fixture
def run(tmp_path):
    return files.write_run(tmp_path)


@pytest.mark.parametrize(("world", "extent"), [(1, 20000), (1, 64), (2, 3000), (3, 4096), (5, 997)])
def test_every_tensor_reads_bit_exact_from_any_world_and_cut(run, world, extent):
    _, made = files.write_checkpoint(run, 40, files.sample(world, extent))
    with read(run) as tensors:
        assert list(tensors) == list(made.values)
        assert len(tensors) == len(made.values)
        for name, value in made.values.items():
            assert tensors[name].dtype == value.dtype
            assert tensors[name].shape == value.shape
            assert tensors[name].tobytes() == value.tobytes()
            assert not tensors[name].flags.writeable


def test_the_newest_is_the_default_and_any_step_can_be_named(run):
    old, new = files.sample(seed=1), files.sample(seed=2)
    files.write_checkpoint(run, 40, new)
    files.write_checkpoint(run, 5, old)
    with read(run) as newest, read(run, 5) as named:
        assert np.array_equal(newest["dense/bias"], new.values["dense/bias"])
        assert np.array_equal(named["dense/bias"], old.values["dense/bias"])


def test_little_more_than_the_tensor_is_read(run, monkeypatch):
    files.write_checkpoint(run, 40, files.sample(extent=256))
    counted = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, to, at: counted.append(n := preadv(fd, to, at)) or n)
    with read(run) as tensors:
        assert counted == []
        assert "dense/bias" in tensors and "nothing" not in tensors and counted == []
        value = tensors["dense/bias"]
        assert value.nbytes <= sum(counted) <= value.nbytes + 2 * 256


def test_opening_a_checkpoint_parses_its_structure_once(run, monkeypatch):
    """Of a model of many tensors, parsing it takes a tenth of a restore."""
    files.write_checkpoint(run, 40, files.sample())
    parsed, parse = [], Structure.from_bytes
    monkeypatch.setattr(Structure, "from_bytes", lambda data, where: parsed.append(where) or parse(data, where))
    with read(run) as tensors:
        assert tensors.info.framework == tensors.structure.framework
    assert len(parsed) == 1


def test_small_tensors_that_share_an_extent_read_it_once(run, monkeypatch):
    files.write_checkpoint(run, 40, files.sample(extent=20000))
    counted = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, to, at: counted.append(n := preadv(fd, to, at)) or n)
    with read(run) as tensors:
        assert dict(tensors).keys() == set(tensors)
    assert sum(counted) == 20000


def test_a_damaged_tensor_is_named_and_the_others_still_read(run):
    folder, made = files.write_checkpoint(run, 40, files.sample(extent=1000))
    files.flip(folder / files.MODEL_FILE, 4200)
    with read(run) as tensors:
        with pytest.raises(CorruptError) as caught:
            tensors["dense/kernel"]
        assert np.array_equal(tensors["bn/mean"], made.values["bn/mean"])
    error = caught.value
    assert error.where == str(folder / files.MODEL_FILE)
    assert "dense/kernel (bytes 4000 to 5000)" in error.expected
    assert "CRC32C" in error.expected and len(error.found) == 8


@pytest.mark.parametrize("size", [0, 4096, 19999, 20001])
def test_a_model_file_of_the_wrong_size_is_corrupt(run, size):
    folder, _ = files.write_checkpoint(run, 40)
    os.truncate(folder / files.MODEL_FILE, size)
    with pytest.raises(CorruptError, match="20000"):
        read(run)


def test_a_missing_or_damaged_part_is_named(run):
    for step, (name, damage) in enumerate([
        (files.MODEL_FILE, os.unlink), ("rank-00001.record", os.unlink),
        ("rank-00001.record", lambda path: files.flip(path, 150)),
        ("rank-00000.record", lambda path: os.truncate(path, 200)),
        ("rank-00000.record", lambda path: shutil.copy(path.with_name("rank-00001.record"), path)),
    ]):  # fmt: skip
        folder, _ = files.write_checkpoint(run, step)
        damage(folder / name)
        with pytest.raises(CorruptError) as caught:
            read(run, step)
        assert caught.value.where == str(folder / name)


def test_records_that_leave_a_gap_are_corrupt(run):
    made = files.sample(extent=1000)
    made.extents[1][0] = (2000, 1000)  # as rank 0 has already; nobody has 1000 to 2000
    files.write_checkpoint(run, 40, made)
    with pytest.raises(CorruptError, match="bytes 1000 to 2000 missing"):
        read(run)


def test_an_open_reader_survives_the_deletion_of_its_checkpoint(run):
    folder, made = files.write_checkpoint(run, 40)
    with read(run) as tensors:
        shutil.rmtree(folder)
        assert np.array_equal(tensors["dense/kernel"], made.values["dense/kernel"])
        assert np.array_equal(tensors["seed"], made.seeds[0])


def test_every_ranks_own_values_are_kept_apart(run):
    _, made = files.write_checkpoint(run, 40, files.sample(world=3))
    for rank in range(3):
        assert np.array_equal(read_private(run, 40, rank)["seed"], made.seeds[rank])
    with pytest.raises(NotFoundError, match="rank 3"):
        read_private(run, 40, 3)


def test_what_is_not_there_is_said_in_four_parts(run):
    with pytest.raises(NotFoundError):
        read(run)
    files.write_checkpoint(run, 40)
    with pytest.raises(NotFoundError, match="steps 40"):
        read(run, 41)
    with read(run) as tensors:
        with pytest.raises(KeyError):
            tensors["../../etc/passwd"]
        tensors.close()
        with pytest.raises(OptionError):
            tensors["dense/kernel"]


def test_no_descriptor_is_left_open(run):
    folder, _ = files.write_checkpoint(run, 40)
    before = len(os.listdir("/proc/self/fd"))
    with read(run) as tensors:
        tensors["dense/kernel"]
    os.truncate(folder / files.MODEL_FILE, 5)
    with pytest.raises(Error):
        read(run)
    assert len(os.listdir("/proc/self/fd")) == before


def test_reading_needs_neither_tensorflow_nor_the_engine(run):
    _, made = files.write_checkpoint(run, 40)
    code = (
        "import sys; from deepfreeze.thaw.read import read; import deepfreeze.inspect.verify, deepfreeze.cli.main\n"
        "print(read(sys.argv[1])['dense/bias'].tobytes().hex())\n"
        "assert not {'tensorflow', 'keras', 'tf_keras', 'veloc_bindings'} & set(sys.modules), sys.modules"
    )
    done = processes.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True)
    assert done.stdout.strip() == made.values["dense/bias"].tobytes().hex(), done.stderr
