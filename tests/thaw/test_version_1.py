"""What the first version of the format wrote is read, verified, finished and restored by this one (tests/data/v1/README.md)."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import deepfreeze
import veloc_bindings
from deepfreeze.inspect.verify import verify
from deepfreeze.state.attachments import Attachments, SavedAttachments
from tests.support import kerases, restart
from tests.support.private import read_private

DATA = Path(__file__).resolve().parents[1] / "data" / "v1"
RUNS = ("keras", "tf_keras", "padded")
WORLD = 2
EXTRA = "deepfreeze/extra"  # the name under which the states of what is no tensor are kept


@pytest.fixture
def there(tmp_path, request) -> Path:
    """A copy of a run and its local tiers, as the dead job's user left them: nobody else may write there."""
    name = request.param
    shutil.copytree(DATA / name / "run", tmp_path / "run")
    for rank in range(WORLD):
        user = tmp_path / f"local-{rank}" / f"deepfreeze-{os.geteuid()}"
        user.mkdir(parents=True, mode=0o700)
        if (DATA / name / f"local-{rank}").exists():
            shutil.copytree(DATA / name / f"local-{rank}", user, dirs_exist_ok=True)
        for folder in (user, *user.iterdir()):
            folder.chmod(0o700)
    return tmp_path


def expected(name: str, rank: int, step: int) -> dict[str, str]:
    return json.loads((DATA / name / f"expected-{rank}.json").read_text())[str(step)]


def digest(value) -> str:
    return hashlib.sha256(np.asarray(value).tobytes()).hexdigest()


def check(run: Path, name: str, step: int) -> None:
    """Every byte of a checkpoint is what the ranks held."""
    result = verify(run, step)
    assert result.ok, result
    wanted = expected(name, 0, step)
    with deepfreeze.read(run, step) as tensors:
        found = {tensor: digest(tensors[tensor]) for tensor in tensors if tensor != EXTRA}
    assert found == wanted
    for rank in range(WORLD):
        own = read_private(run, step, rank)
        if EXTRA in own:
            state = _State()
            saved = SavedAttachments({rank: own.pop(EXTRA).tobytes()}, WORLD, run)
            Attachments({"position": state}, None).load(saved, rank, WORLD)
            assert state.value["rank"] == rank and state.value["names"] == ["a", "b"]
            assert state.value["weights"].tolist() == [0.0, 1.0, 2.0]
        else:
            assert name == "tf_keras"
        assert {key: digest(value) for key, value in own.items()}.items() <= expected(name, rank, step).items()


class _State:
    """An ``extra=`` object that keeps what it is given."""

    def load_state_dict(self, value):
        self.value = value

    def state_dict(self):
        return self.value


@pytest.mark.parametrize(("there", "name"), [(name, name) for name in RUNS], indirect=["there"])
def test_what_version_1_committed_is_read_and_verified(there, name):
    assert [info.step for info in deepfreeze.checkpoints(there / "run")] == [2]
    check(there / "run", name, 2)


@pytest.mark.parametrize(
    ("there", "name", "steps"),
    [("keras", "keras", [2, 4]), ("tf_keras", "tf_keras", [2, 4, 6]), ("padded", "padded", [2, 4, 6])],
    indirect=["there"],
)
def test_what_version_1_left_unfinished_is_committed_at_the_next_start(there, name, steps):
    restart.reopen(there, WORLD)
    assert [info.step for info in deepfreeze.checkpoints(there / "run")] == steps
    for step in steps:
        check(there / "run", name, step)
    assert not restart.leftovers(there / "run") and not list(there.glob("local-*/**/*.slot"))


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.skipif(kerases.KERAS_IS_2, reason="the runs are Keras 3.15's and tf_keras's")
@pytest.mark.parametrize(
    ("there", "name"),
    [pytest.param(name, name, marks=[pytest.mark.full] if name == "padded" else []) for name in RUNS],
    indirect=["there"],
)
def test_what_version_1_committed_is_restored_into_a_model(there, name):
    keras = importlib.import_module("keras" if name == "padded" else name)
    keras.utils.set_random_seed(1)
    layers = [
        keras.layers.Dense(12, "relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile(keras.optimizers.Adam(1e-2), "mse", jit_compile=False)
    assert deepfreeze.restore(model, there / "run").step == 2
    wanted = set(expected(name, 0, 2).values())
    assert all(digest(weight) in wanted for weight in model.get_weights())
    assert int(model.optimizer.iterations) == 2


@pytest.mark.parametrize("there", RUNS, indirect=True)
def test_a_commit_that_is_repeated_leaves_a_committed_checkpoint_alone(there, request):
    """Its records are its own files; those of version 2 are copies that the commit has gathered."""
    run = there / "run"
    step = deepfreeze.latest(run).step
    before = sorted(os.listdir(deepfreeze.latest(run).path))
    veloc_bindings.commit(run, step, bytes.fromhex(deepfreeze.latest(run).attempt))
    assert sorted(os.listdir(deepfreeze.latest(run).path)) == before and "rank-00000.record" in before
    assert verify(run, step).ok
