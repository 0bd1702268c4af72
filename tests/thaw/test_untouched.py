"""Whoever reads a run leaves it as it was, whatever comes of it: not a byte, a name or a time in it changes, and it may be read-only.

Run as a program (``test_untouched.py RUN OUT``), this file reads in every way and prints what came of each."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

import deepfreeze
from deepfreeze.cli.main import main
from tests.support import configs, files, jobs, processes

NOBODY = 65534
SUFFIXES = (".weights.h5", ".safetensors", ".keras")


def network(width=40):
    """A model for the weights that ``files.sample`` has; of another width, one that they don't fit."""
    import keras

    inputs = keras.Input((50,))
    return keras.Model(inputs, keras.layers.Dense(width, name="dense")(inputs))


def read_all(run):
    """Every tensor of the newest checkpoint."""
    with deepfreeze.read(run) as tensors:
        return len(dict(tensors))


def every_way(run: str, out: str) -> dict:
    """What each way of reading comes to: an exit code, the name of an error, or "ok"."""
    calls = {
        "checkpoints": lambda: deepfreeze.checkpoints(run),
        "latest": lambda: deepfreeze.latest(run),
        "read": lambda: read_all(run),
        "transfer": lambda: deepfreeze.transfer(network(), run, verbose=0),
        "transfer, dry": lambda: deepfreeze.transfer(network(), run, dry_run=True, verbose=0),
        "transfer, unlike": lambda: deepfreeze.transfer(network(30), run, verbose=0),
        "transfer, no such step": lambda: deepfreeze.transfer(network(), run, 41, verbose=0),
        **{f"export {suffix}": lambda s=suffix: deepfreeze.export(run, f"{out}/a{s}") for suffix in SUFFIXES},
        "diff": ["diff", f"{run}@5", run],
        "ls": ["ls", run],
        "show": ["show", run],
        "verify": ["verify", run],
        "export": ["export", run, f"{out}/b.safetensors"],
        "prune, dry": ["prune", run, "--keep", "1"],
    }
    found = {}
    for name, call in calls.items():
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                found[name] = main(call) if isinstance(call, list) else bool(call()) and "ok"
            except deepfreeze.Error as error:
                found[name] = type(error).__name__
    return found


OK = {
    "checkpoints": "ok", "latest": "ok", "read": "ok", "transfer": "ok", "transfer, dry": "ok",
    "transfer, unlike": "StructureError", "transfer, no such step": "NotFoundError",
    "export .weights.h5": "ok", "export .safetensors": "ok", "export .keras": "ok",
    "diff": 0, "ls": 0, "show": 0, "verify": 0, "export": 0, "prune, dry": 0,
}  # fmt: skip
DAMAGED = OK | {
    "read": "CorruptError", "transfer": "CorruptError", "export .weights.h5": "CorruptError", "export .safetensors": "CorruptError",
    "export .keras": "CorruptError", "diff": 1, "verify": 1, "export": 1,
}  # fmt: skip


def write(run: Path) -> Path:
    """A run with two checkpoints, an unfinished one, and a configuration."""
    files.write_run(run, signed=True)
    for step in (5, 40):
        files.write_checkpoint(run, step, files.sample(seed=step))
    files.write_partial(run, 50, files.sample())
    configs.write_config(run)
    return run


def state(run: Path) -> dict:
    """All that there is to know of every file and directory, but when it was last read."""
    found = {}
    for path in [run, *sorted(run.rglob("*"))]:
        about = path.lstat()
        data = path.read_bytes() if path.is_file() else None
        found[str(path)] = (data, about.st_mtime_ns, about.st_ctime_ns, about.st_mode, about.st_ino, about.st_nlink)
    return found


@pytest.mark.tensorflow
@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "damaged"])
def test_nothing_in_the_run_changes_whatever_comes_of_reading_it(tmp_path, damaged):
    run = write(tmp_path / "run")
    (tmp_path / "out").mkdir()
    if damaged:
        files.flip(run / "step-0000000040" / files.MODEL_FILE, 4200)  # dense/kernel
    before = state(run)
    assert every_way(str(run), str(tmp_path / "out")) == (DAMAGED if damaged else OK)
    assert state(run) == before and len(before) > 10


@pytest.mark.full
@pytest.mark.tensorflow
def test_a_run_that_may_only_be_read_is_read_in_every_way():
    """By another user, as one reads a colleague's run."""
    with tempfile.TemporaryDirectory(prefix="deepfreeze-test-") as folder:
        there = Path(folder)
        there.chmod(0o755)
        run = write(there / "run")
        (there / "out").mkdir()
        for path in [run, *run.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        if os.geteuid() == 0:
            os.chown(there / "out", NOBODY, NOBODY)
        before = state(run)
        env = jobs.environment(PYTHONDONTWRITEBYTECODE="1")
        command = [sys.executable, __file__, str(run), str(there / "out")]
        done = processes.run(command, env=env, capture_output=True, text=True, cwd=there)
        for path in [run, *run.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)  # so that it can be deleted
        assert done.returncode == 0, done.stderr[-3000:]
        said = json.loads(done.stdout.splitlines()[-1])
        assert said == {"writable": False, "found": OK}
        for path, (data, mtime, *_) in state(run).items():
            assert (data, mtime) == before[path][:2]


def as_nobody() -> None:
    """Gives up root's rights, which no mode stops. What is imported late is imported now: the interpreter itself may be root's."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "out").mkdir()
        assert every_way(str(write(Path(folder) / "run")), f"{folder}/out") == OK
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


if __name__ == "__main__":
    if os.geteuid() == 0:
        as_nobody()
    writable = os.access(sys.argv[1], os.W_OK)
    print(json.dumps({"writable": writable, "found": every_way(sys.argv[1], sys.argv[2])}))
