"""Directories that are not as they should be: names, lengths, a changed working directory, a full disk, file systems that lack a
call, an engine that meets them later."""

import errno
import json
import os
import re
import sys

import keras
import numpy as np
import pytest

import deepfreeze
from tests.jobs import models
from tests.support import jobs, processes, trainings
from tests.support.refusals import contents, refused

pytestmark = pytest.mark.tensorflow


NAMES = {
    "unicode": "Läufe 早い \U0001f9ca",
    "bytes": b"no utf-8 \xff\xfe",
    "space": "with space",
    "quotes": "quote'\"",
    "long": "a" * 200,
    "percent": "percent%s%d",
    "newline": "new\nline",
    "at": "@40",
    "dash": "-dash",
    "tilde": "~tilde",
    "dot": "dot.",
}
FEW = {"unicode", "bytes", "long", "newline"}  # in `make test`


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, id=key, marks=[] if key in FEW else pytest.mark.full) for key, name in NAMES.items()],
)
def test_a_run_may_have_any_name_that_a_directory_may_have(name, tmp_path, save):
    run = os.path.join(os.fsencode(tmp_path), name) if isinstance(name, bytes) else tmp_path / name
    save(run)
    assert [info.step for info in deepfreeze.checkpoints(run)] == [2, 4]
    assert save(run, 2).stats.resumed == 4
    with deepfreeze.read(run) as tensors:
        assert all(np.isfinite(array).all() for array in tensors.values())
    deepfreeze.restore(trainings.dense(keras), run)
    error = refused(lambda: deepfreeze.read(run, 3), deepfreeze.NotFoundError, where=os.fsdecode(run))
    print(error)  # whatever the terminal takes
    str(error).encode()


def test_a_name_that_is_no_utf_8_goes_through_the_command_line(tmp_path, save):
    run = os.path.join(os.fsencode(tmp_path), b"\xff")
    save(run)
    for words, code in (["ls", run], 0), (["verify", run], 0), (["show", run + b"@3"], 1):
        command = [sys.executable, "-m", "deepfreeze", *words]
        done = processes.run(command, capture_output=True, env=jobs.environment(PYTHONIOENCODING="utf-8:strict"))
        assert done.returncode == code, done
        assert b"Traceback" not in done.stderr


def test_a_name_that_is_too_long_is_refused(tmp_path, model):
    run = tmp_path / ("a" * 300)
    refused(
        lambda: deepfreeze.Checkpoint(run).open(model),
        deepfreeze.RunError, where=run, found="too long", folder=tmp_path, model=model,
    )  # fmt: skip


def deep(folder, nbytes):
    """A directory whose path has so many bytes."""
    while len(str(folder)) + 102 < nbytes:
        folder /= "d" * 100
    folder /= "e" * (nbytes - len(str(folder)) - 1)
    folder.mkdir(parents=True)
    return folder


def test_a_path_works_as_long_as_its_files_have_room_and_is_refused_beyond(tmp_path, model, save):
    run = deep(tmp_path, 4200 - 200) / "run"
    error = refused(
        lambda: deepfreeze.Checkpoint(run).open(model),
        deepfreeze.RunError, where=run, found=f"{len(str(run))} bytes", todo="choose a shorter path",
        folder=tmp_path, model=model,
    )  # fmt: skip
    most = int(re.search(r"a path of at most (\d+) bytes", error.expected)[1])
    assert 3900 < most < len(str(run))
    longest = deep(tmp_path, most - 4) / "run"
    assert len(str(longest)) == most
    save(longest)
    assert deepfreeze.latest(longest).step == 4 and save(longest, 2).stats.resumed == 4


class Move(keras.callbacks.Callback):
    """Changes the process's directory while training goes on."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    def on_train_batch_end(self, batch, logs=None):
        os.chdir(self.where)


@pytest.mark.parametrize("when", ["opened", "training"])
def test_relative_paths_stay_where_they_were_when_the_directory_changes(when, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "node").mkdir()
    monkeypatch.chdir(tmp_path)
    checkpoint = deepfreeze.Checkpoint("run", every=2, local="node", wait_for="local")
    if when == "opened":
        os.chdir(tmp_path / "elsewhere")
    model = trainings.dense(keras)
    slots = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            slots.extend((tmp_path / "node").rglob("*.slot"))

    callbacks = [Move(tmp_path / "elsewhere"), checkpoint, Look()]
    model.fit(trainings.data(4), verbose=0, shuffle=False, callbacks=callbacks)
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4]
    assert slots and not list((tmp_path / "node").rglob("*.slot")), "there they were, and are cleared"
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_local_directory_that_is_not_there_is_refused(tmp_path, model):
    refused(
        lambda: deepfreeze.Checkpoint(tmp_path / "run", local=tmp_path / "none").open(model),
        deepfreeze.OptionError, where=f"local='{tmp_path / 'none'}'", found="no such directory",
        todo="create it on every node", model=model,
    )  # fmt: skip


def test_a_run_may_be_reached_through_a_link(tmp_path, save):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save(tmp_path / "link" / "run")
    assert deepfreeze.latest(tmp_path / "real" / "run").step == 4


# A store that refuses at the start

CALLS = ["mkdir", "open", "write", "fsync", "rename", "fsync of a directory"]
FULL = "free space there, or ask for a larger quota"
LACKING = "choose a directory on another file system: checkpoints are committed by rename and fsync"


def refuse(monkeypatch, call, number, below):
    """A file system on which one call fails for ``below`` and all in it."""
    real = {name: getattr(os, name) for name in ("mkdir", "open", "fsync", "rename", "replace", "link")}

    def path_of(what):
        return os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.fsdecode(what)

    def is_there(path):
        return path == str(below) or path.startswith(f"{below}/")

    def fail(name, applies=lambda path: True):
        def instead(what, *args, **kwargs):
            if is_there(path_of(what)) and applies(path_of(what)):
                raise OSError(number, os.strerror(number), what)
            return real[name](what, *args, **kwargs)

        monkeypatch.setattr(os, name, instead)

    def write_to_a_full_device(path, flags, *args, **kwargs):
        fd = real["open"](path, flags, *args, **kwargs)
        if flags & os.O_CREAT and is_there(path_of(path)) and not path_of(path).endswith("lock"):
            device = real["open"]("/dev/full", os.O_WRONLY)
            os.dup2(device, fd)
            os.close(device)
        return fd

    if call == "write":
        monkeypatch.setattr(os, "open", write_to_a_full_device)
    elif call == "rename":
        for name in ("rename", "replace", "link"):
            fail(name)
    elif call.startswith("fsync"):
        fail("fsync", os.path.isdir if "directory" in call else os.path.isfile)
    else:
        fail(call, lambda path: not os.path.exists(path))


REFUSALS = [
    *[(call, number, FULL) for call in CALLS if call != "write" for number in (errno.ENOSPC, errno.EDQUOT)],
    ("write", errno.ENOSPC, FULL),
    *[(call, errno.ENOSYS, LACKING) for call in CALLS[3:]],
    ("rename", errno.EPERM, "check permissions"),
    ("rename", errno.EOPNOTSUPP, LACKING),
    *[(call, errno.EROFS, "mounted read-only") for call in ("mkdir", "open")],
    ("fsync", errno.EIO, "check permissions"),
]


@pytest.mark.parametrize(
    ("call", "number", "todo"),
    [
        pytest.param(*refusal, id=f"{refusal[0].replace(' ', '_')}-{errno.errorcode[refusal[1]]}")
        for refusal in REFUSALS
    ],
)
def test_a_store_that_refuses_at_the_start_is_named_and_nothing_is_left(
    call, number, todo, tmp_path, model, monkeypatch, save
):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        refuse(patch, call, number, run)
        error = refused(
            lambda: deepfreeze.Checkpoint(run).open(model),
            deepfreeze.RunError, where=run, expected="a directory that can be read and written",
            found=os.strerror(number), todo=todo, folder=tmp_path, model=model,
        )  # fmt: skip
    if call in CALLS[3:]:
        assert error.found.startswith(f"{call}: ")
    save(run)
    assert deepfreeze.latest(run).step == 4, "what failed is in nobody's way"


@pytest.mark.parametrize(("call", "number"), [("write", errno.ENOSPC), ("rename", errno.ENOSYS), ("fsync", errno.EIO)])
def test_a_store_that_refuses_leaves_the_checkpoints_of_the_run_alone(
    call, number, run, tmp_path, model, monkeypatch, save
):
    """A run keeps its checkpoints as they are when the store refuses the job's start."""
    with monkeypatch.context() as patch:
        refuse(patch, call, number, run)
        refused(
            lambda: deepfreeze.Checkpoint(run).open(model),
            deepfreeze.RunError, where=run, found=os.strerror(number), folder=tmp_path, model=model,
        )  # fmt: skip
    assert save(run, 2).stats.resumed == 4


# A store that refuses later: a run that has checkpoints keeps them

FAULTS = [
    pytest.param("ENOSPC", "pwrite:step-", id="pwrite"),
    pytest.param("ENOSYS", "rename:step-", id="rename", marks=pytest.mark.full),
    pytest.param("ENOSYS", "fsync_dir:step-", id="fsync_dir", marks=pytest.mark.full),
]


@pytest.mark.parametrize(("number", "call"), FAULTS)
def test_a_store_that_refuses_in_training_is_named_and_old_ones_stay(number, call, tmp_path, testing_library, save):
    """A store that refuses during training is named, and older checkpoints stay."""
    run = tmp_path / "run"
    save(run, model=models.build(keras, "dense"))
    before = {path: data for path, data in contents(run).items() if "step-" in path}
    faults = {"DEEPFREEZE_LIBRARY": testing_library, "DEEPFREEZE_FAULT": f"fail={number}:{call}:1+"}
    told = json.loads(jobs.run("small.py", run, 4, "every=2", "local=null", **faults).strip().splitlines()[-1])
    where, _, rest = told["error"].partition(": expected the checkpoint to be committed; found ")
    found, _, todo = rest.partition(". Mend what the message names")
    assert re.fullmatch(rf"{re.escape(str(run))}/step \d+", where), told["error"]
    assert os.strerror(getattr(errno, number)) in found and call.partition(":")[0].partition("_")[0] in found
    assert "older checkpoints are untouched" in todo
    after = contents(run)
    assert {path: after.get(path) for path in before} == before
    assert [info.step for info in deepfreeze.checkpoints(run)] == [2, 4]
