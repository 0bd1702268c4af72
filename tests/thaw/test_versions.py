"""A checkpoint of one version of the framework, restored by another: Keras 2 into Keras 2 whatever the TensorFlow, and no guessing
between Keras 2 and 3 (which tests/thaw/test_restore_keras.py has too, on today's TensorFlow). Needs both environments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import deepfreeze
from tests.support import jobs, processes

pytestmark = [pytest.mark.tensorflow, pytest.mark.full]

# Environment and package: tf_keras on the TensorFlow of today, Keras 2.15 on TensorFlow 2.15, Keras 3.
TF_KERAS, KERAS_2_15, KERAS_3 = (".venv", "tf_keras"), (".venv-tf215", "keras"), (".venv", "keras")


def run_on(which: tuple[str, str], *arguments: object) -> str:
    """Runs the job there; skips where there is no such environment."""
    environment, package = which
    python = jobs.ROOT / environment / "bin" / "python"
    if not (python.parent.parent / ".packages").exists():
        pytest.skip(f"needs {environment}, which {'make setup' if environment == '.venv' else 'make test-tf215'} makes")
    env = jobs.environment(PYTHONPATH=str(jobs.ROOT))
    command = [python, jobs.JOBS / "versions.py", package, *arguments]
    done = processes.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=jobs.LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def values(file: Path) -> dict[str, bytes]:
    """By place in the weights file."""
    with np.load(file) as found:
        return {path: found[path].tobytes() for path in found.files}


@pytest.mark.parametrize(
    ("writer", "reader"), [(KERAS_2_15, TF_KERAS), (TF_KERAS, KERAS_2_15)], ids=["to-newer", "to-older"]
)
def test_keras_2_restores_what_another_keras_2_wrote_and_the_run_goes_on(writer, reader, tmp_path):
    run = tmp_path / "run"
    said = [
        run_on(writer, "write", run, tmp_path / "written.npz"),
        run_on(reader, "restore", run, tmp_path / "restored.npz"),
    ]
    assert [text.split()[1:] for text in said] == [["None", "3"], ["3", "6"]]
    assert said[0].split()[0] != said[1].split()[0]
    written = values(tmp_path / "written.npz")
    assert values(tmp_path / "restored.npz") == written and len(written) > 15
    frameworks = [info.framework for info in deepfreeze.checkpoints(run)]
    assert [(f["api"], f["keras"]) for f in frameworks] == [
        (which[1], text.split()[0]) for which, text in zip((writer, reader), said, strict=True)
    ]


def test_keras_3_refuses_what_keras_2_wrote_and_says_what_to_do(tmp_path):
    """Keras 3 refuses what Keras 2 wrote, and says which version each is and what to do."""
    run = tmp_path / "run"
    version = run_on(KERAS_2_15, "write", run, tmp_path / "written.npz").split()[0]
    said = run_on(KERAS_3, "fail", run, tmp_path / "none.npz")
    assert f"one of keras {version} and a model of keras 3." in said
    assert "deepfreeze.transfer" in said and "Nothing was changed" in said
