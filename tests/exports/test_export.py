"""A checkpoint as a file for other programs: right bytes, opened by those programs, or no file at all."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from deepfreeze.errors import CorruptError, NotFoundError, OptionError, RunError, UnsupportedError
from deepfreeze.exports import draft, safetensors
from deepfreeze.exports import export as export_module
from deepfreeze.exports.export import export
from deepfreeze.format.structure import Placed
from deepfreeze.format.tensors import DTYPES, REPLICATED, TensorSpec
from tests.support import files, processes
from tests.support.configs import write_config

SUFFIXES = (".weights.h5", ".safetensors", ".keras")


@pytest.fixture
def run(tmp_path):
    return files.write_run(tmp_path / "run")


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture(params=["unnamed", "named"])
def naming(request, monkeypatch):
    """File systems that have files without a name, and those that don't."""
    if request.param == "named":
        monkeypatch.setattr(draft, "_OWN_FILES", "/proc/none")


def progress_that(action):
    """Acts once half is done."""

    def progress(done, total):
        if 2 * done >= total > 0:
            action()

    return progress


# .weights.h5


@pytest.mark.parametrize(("world", "extent"), [(1, 20000), (1, 64), (3, 4096), (5, 997)])
def test_weights_h5_is_the_checkpoints_file_byte_for_byte(run, out, world, extent, naming):
    files.write_checkpoint(run, 5, files.sample(world, extent, seed=1))
    _, made = files.write_checkpoint(run, 40, files.sample(world, extent))
    told = []
    info = export(run, out / "a.weights.h5", progress=lambda done, total: told.append((done, total)))
    assert (out / "a.weights.h5").read_bytes() == made.content
    assert (info.step, info.run, told[0], told[-1]) == (40, run, (0, 20000), (20000, 20000))
    assert export(run, str(out / "b.weights.h5"), 5).step == 5
    assert (out / "b.weights.h5").read_bytes() == files.sample(world, extent, seed=1).content
    assert sorted(os.listdir(out)) == ["a.weights.h5", "b.weights.h5"]


def test_a_checkpoint_removed_meanwhile_gives_way_to_the_newer_one(run, out, monkeypatch):
    """A checkpoint that retention takes away meanwhile gives way to the newer one."""
    old, _ = files.write_checkpoint(run, 40, files.sample(seed=1))
    describe = export_module.describe

    def deleting(opened, step):
        info = describe(opened, step)
        if old.exists():
            files.write_checkpoint(run, 50, files.sample(seed=2))
            shutil.rmtree(old)
        return info

    monkeypatch.setattr(export_module, "describe", deleting)
    assert export(run, out / "a.weights.h5").step == 50
    assert (out / "a.weights.h5").read_bytes() == files.sample(seed=2).content


# .safetensors


def test_safetensors_opens_in_its_library_and_says_its_origin(run, out):
    """Safetensors opens in its library with the weights and where they are from."""
    _, made = files.write_checkpoint(run, 40)
    export(run, out / "a.safetensors")
    found = load_file(out / "a.safetensors")
    assert set(found) == set(made.values) - {"seed"}
    for name, value in found.items():
        assert (value.dtype, value.shape) == (made.values[name].dtype, made.values[name].shape)
        assert value.tobytes() == made.values[name].tobytes()
    with safe_open(out / "a.safetensors", "np") as opened:
        about = opened.metadata()
    assert about == {
        "run_id": files.RUN_ID, "step": "40", "attempt": files.ATTEMPT, "created": files.CREATED, "state": "full",
        "structure": made.hash, "api": "keras", "keras": "3.15.1", "tensorflow": "2.21.0",
    }  # fmt: skip


def test_a_seeded_runs_parent_is_in_the_metadata(run, out):
    parent = {"path": "/runs/base", "run_id": "ab" * 16, "step": 7, "attempt": "cd" * 16}
    (run / "run.json").write_text(
        json.dumps({"format": 1, "run_id": files.RUN_ID, "created": files.CREATED, "parent": parent})
    )
    files.write_checkpoint(run, 40)
    export(run, out / "a.safetensors")
    with safe_open(out / "a.safetensors", "np") as opened:
        about = opened.metadata()
    assert (about["parent"], about["parent_run_id"]) == ("/runs/base@7", "ab" * 16)


def test_safetensors_with_optimizer_has_all_tensors_and_rank_0s_seeds(run, out):
    _, made = files.write_checkpoint(run, 40)
    export(run, out / "a.safetensors", optimizer=True)
    found = load_file(out / "a.safetensors")
    assert set(found) == set(made.values) and np.array_equal(found["seed"], made.seeds[0])


def test_safetensors_lie_one_after_the_other_and_are_aligned(run, out):
    """Safetensors lie one after the other each where its elements are aligned."""
    files.write_checkpoint(run, 40)
    export(run, out / "a.safetensors", optimizer=True)
    data = (out / "a.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    end = 0
    for entry in header.values():
        begin, stop = entry["data_offsets"]
        assert begin == end and (8 + size + begin) % {"F32": 4, "F64": 8, "I64": 8}[entry["dtype"]] == 0
        end = stop
    assert len(data) == 8 + size + end


def test_every_dtype_but_complex128_has_its_name_in_safetensors():
    assert set(safetensors.DTYPES) == set(DTYPES) - {"complex128"}
    placed = Placed(TensorSpec("z", "complex128", (2,), REPLICATED), "layers/z", 64)
    with pytest.raises(UnsupportedError, match="complex128"):
        safetensors.make_header([placed], {})


# Nothing but whole files


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("overwrite", [False, True])
def test_damaged_bytes_are_found_and_named_and_leave_what_was_there(run, out, suffix, overwrite, naming):
    folder, _ = files.write_checkpoint(run, 40, files.sample(extent=1000))
    write_config(run)
    files.flip(folder / files.MODEL_FILE, 4200)
    target = out / f"a{suffix}"
    if overwrite:
        target.write_bytes(b"before")
    with pytest.raises(CorruptError) as caught:
        export(run, target, overwrite=overwrite)
    assert caught.value.where == str(folder / files.MODEL_FILE)
    assert "bytes 4000 to 5000" in caught.value.expected and "dense/kernel" in caught.value.expected
    assert [path.read_bytes() for path in out.iterdir()] == ([b"before"] if overwrite else [])


def test_any_damaged_byte_of_the_model_file_stops_weights_h5(run, out):
    folder, made = files.write_checkpoint(run, 40)
    for at in [*range(0, 20000, 1013), 19999]:  # tensors, and HDF5's own bytes between them
        files.flip(folder / files.MODEL_FILE, at)
        with pytest.raises(CorruptError):
            export(run, out / "a.weights.h5")
        files.flip(folder / files.MODEL_FILE, at)
    assert os.listdir(out) == []
    for damage in (lambda p: os.truncate(p, 19999), lambda p: p.write_bytes(made.content + b"x"), os.unlink):
        damage(folder / files.MODEL_FILE)
        with pytest.raises(CorruptError):
            export(run, out / "a.weights.h5")
    assert os.listdir(out) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_export_that_is_interrupted_leaves_nothing(run, out, suffix, naming):
    files.write_checkpoint(run, 40)
    write_config(run)

    def interrupt():
        raise KeyboardInterrupt

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyboardInterrupt):
        export(run, out / f"a{suffix}", progress=progress_that(interrupt))
    assert os.listdir(out) == [] and len(os.listdir("/proc/self/fd")) == before


@pytest.mark.crash
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_export_that_is_killed_leaves_nothing(run, out, suffix):
    try:
        os.close(os.open(out, os.O_RDWR | os.O_TMPFILE))
    except OSError:
        pytest.skip("this file system has no files without a name: a kill leaves .NAME.XXXXXXXX.tmp here")
    files.write_checkpoint(run, 40)
    write_config(run)
    code = (
        "import os, sys; from deepfreeze.exports.export import export\n"
        "export(sys.argv[1], sys.argv[2], progress=lambda done, total: 2 * done >= total > 0 and os.kill(os.getpid(), 9))"
    )
    killed = processes.run([sys.executable, "-c", code, str(run), str(out / f"a{suffix}")])
    assert killed.returncode == -signal.SIGKILL and os.listdir(out) == []


def test_what_is_there_is_replaced_only_if_asked(run, out, naming):
    _, made = files.write_checkpoint(run, 40)
    target = out / "a.weights.h5"
    target.write_bytes(b"before")
    with pytest.raises(OptionError, match="overwrite=True"):
        export(run, target)
    assert target.read_bytes() == b"before"
    export(run, target, overwrite=True)
    assert target.read_bytes() == made.content and os.listdir(out) == ["a.weights.h5"]


def test_what_comes_to_be_there_meanwhile_is_not_replaced(run, out, naming):
    files.write_checkpoint(run, 40)
    target = out / "a.weights.h5"
    with pytest.raises(OptionError, match="nothing there"):
        export(run, target, progress=progress_that(lambda: target.write_bytes(b"another's")))
    assert target.read_bytes() == b"another's" and os.listdir(out) == ["a.weights.h5"]


def test_a_link_is_replaced_and_what_it_leads_to_is_not(run, out, naming):
    _, made = files.write_checkpoint(run, 40)
    (out / "theirs").write_bytes(b"before")
    (out / "a.weights.h5").symlink_to(out / "theirs")
    export(run, out / "a.weights.h5", overwrite=True)
    assert (out / "theirs").read_bytes() == b"before" and (out / "a.weights.h5").read_bytes() == made.content


def test_an_exported_file_is_never_writable_for_everybody(run, out, naming):
    files.write_checkpoint(run, 40)
    before = os.umask(0)
    try:
        export(run, out / "a.weights.h5")
    finally:
        os.umask(before)
    assert (out / "a.weights.h5").stat().st_mode & 0o777 == 0o664


@pytest.mark.parametrize("name", ["a.h5", "a", ".keras", "a.npz", "a.weights.h5.tmp"])
def test_another_suffix_is_refused_naming_the_three(run, out, name):
    files.write_checkpoint(run, 40)
    with pytest.raises(OptionError, match=r"\.weights\.h5, \.safetensors, \.keras"):
        export(run, out / name)
    assert os.listdir(out) == []


def test_what_can_not_be_is_refused_and_said(run, out):
    folder, _ = files.write_checkpoint(run, 40)
    for target, options, error, word in [
        (out / "none" / "a.keras", {}, RunError, "No such file"),
        (out / "a.keras", {"optimizer": True}, OptionError, "safetensors"),
        (folder / "a.weights.h5", {}, OptionError, "outside of the run"),
        (folder / files.MODEL_FILE, {"overwrite": True}, OptionError, "outside of the run"),
        (out / "a.weights.h5", {"step": 41}, NotFoundError, "steps 40"),
    ]:
        with pytest.raises(error, match=word):
            export(run, target, **options)
    (out / "b.keras").mkdir()
    with pytest.raises(OptionError, match="a directory"):
        export(run, out / "b.keras", overwrite=True)
    with pytest.raises(NotFoundError):
        export(out, out / "a.weights.h5")
    assert os.listdir(out) == ["b.keras"]
    export(run, run / "final.weights.h5")  # beside the run's own files it is in nobody's way


def test_a_full_disk_leaves_nothing(run, out):
    files.write_checkpoint(run, 40)
    code = (
        "import resource, signal, sys, deepfreeze; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))\n"
        "try: deepfreeze.export(sys.argv[1], sys.argv[2])\n"
        "except deepfreeze.RunError as error: print(error)"
    )
    done = processes.run(
        [sys.executable, "-c", code, str(run), str(out / "a.weights.h5")], capture_output=True, text=True
    )
    assert "File too large" in done.stdout and os.listdir(out) == [], done.stderr


def test_exporting_needs_neither_tensorflow_nor_the_engine(run, out):
    files.write_checkpoint(run, 40)
    write_config(run)
    code = (
        "import sys, deepfreeze\n"
        "for suffix in ('.weights.h5', '.safetensors', '.keras'): deepfreeze.export(sys.argv[1], sys.argv[2] + suffix)\n"
        "assert not {'tensorflow', 'keras', 'tf_keras', 'safetensors', 'veloc_bindings'} & set(sys.modules), sys.modules"
    )
    done = processes.run([sys.executable, "-c", code, str(run), str(out / "a")], capture_output=True, text=True)
    assert done.returncode == 0 and len(os.listdir(out)) == 3, done.stderr
