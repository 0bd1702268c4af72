"""Reading needs numpy, h5py and the standard library, and nothing else: no TensorFlow, no engine, no other package."""

import hashlib
import json
import sys

import numpy as np
import pytest

import deepfreeze
from tests.support import files, jobs, processes

# Ahead of every other import: nothing else is to be found. Not even the engine's bindings, which are of this project.
ALONE = """
import json, sys

class Alone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in {*sys.stdlib_module_names, "numpy", "h5py", "deepfreeze"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Alone())
"""
READ = """
import hashlib, h5py, numpy as np, deepfreeze
from deepfreeze.inspect.diff import diff
from deepfreeze.inspect.verify import verify

run, out = sys.argv[1:]
newest = deepfreeze.latest(run)
with deepfreeze.read(run) as tensors, h5py.File(newest.path / "model.weights.h5") as file:
    values = {name: tensors[name] for name in tensors}
    same = [np.array_equal(file[placed.path][()], values[placed.spec.name])
            for placed in tensors.structure.tensors if placed.path in file]
print(json.dumps({
    "steps": [info.step for info in deepfreeze.checkpoints(run)],
    "values": {name: hashlib.sha256(value.tobytes()).hexdigest() for name, value in values.items()},
    "same in the file": [len(same), all(same)],
    "verified": [verify(run, info.step).ok for info in deepfreeze.checkpoints(run)],
    "changed": len(diff((run, 2), (run, 4), everything=True).changed),
    "exported": [deepfreeze.export(run, f"{out}/a{suffix}").step for suffix in (".weights.h5", ".safetensors", ".keras")],
}))
"""


def alone(code, *arguments):
    command = [sys.executable, "-c", ALONE + code, *map(str, arguments)]
    return processes.run(command, capture_output=True, text=True, env=jobs.environment())


@pytest.mark.tensorflow
def test_a_checkpoint_is_listed_read_verified_compared_and_exported(tmp_path):
    import keras

    layers = [keras.Input((40,)), keras.layers.Dense(700), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse", jit_compile=False)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, save_config=True)
    model.fit(np.ones((4, 40)), np.ones((4, 1)), batch_size=1, verbose=0, callbacks=[checkpoint])
    done = alone(READ, tmp_path / "run", tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    with deepfreeze.read(tmp_path / "run") as tensors:
        values = {name: hashlib.sha256(tensors[name].tobytes()).hexdigest() for name in tensors}
    assert found.pop("values") == values and len(values) > 20
    assert found.pop("changed") > 10
    assert found == {
        "steps": [2, 4], "same in the file": [len(values), True], "verified": [True, True], "exported": [4, 4, 4],
    }  # fmt: skip
    for suffix in (".weights.h5", ".safetensors", ".keras"):
        deepfreeze.export(tmp_path / "run", tmp_path / f"b{suffix}")
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


@pytest.mark.parametrize("at", [4200, 12210, 19999])
def test_damage_is_found(tmp_path, at):
    run = files.write_run(tmp_path / "run")
    folder, _ = files.write_checkpoint(run, 40)
    files.flip(folder / files.MODEL_FILE, at)
    code = "from deepfreeze.inspect.verify import verify; print(verify(sys.argv[1]).problems)"
    done = alone(code, run)
    assert "CRC32C" in done.stdout and files.MODEL_FILE in done.stdout, done.stderr


def test_the_command_line_says_which_package_it_lacks():
    done = alone("from deepfreeze.cli.main import main; main(['ls', 'runs/nt3'])")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("deepfreeze: ") and done.stderr.count("\n") == 1
    assert "expected the Python package rich" in done.stderr and "pip install rich" in done.stderr


def test_what_trains_says_in_a_sentence_that_tensorflow_is_to_be_installed():
    """For programs that do without, the error is an ImportError too. Options that need no TensorFlow are there."""
    code = """
import deepfreeze
deepfreeze.Capture(), deepfreeze.Engine()
found = []
for name in ("Checkpoint", "capture", "DistributedOptimizer"):
    try:
        getattr(deepfreeze, name)
    except ImportError as error:
        found.append(f"{type(error).__name__}, {isinstance(error, deepfreeze.Error)}, {error}")
print(*found, sep="\\n")
from deepfreeze import Checkpoint
"""
    done = alone(code)
    assert done.returncode == 1 and len(done.stdout.splitlines()) == 3
    for name, line in zip(("Checkpoint", "capture", "DistributedOptimizer"), done.stdout.splitlines(), strict=True):
        assert (
            line.startswith(f"MissingError, True, deepfreeze.{name}: expected TensorFlow")
            and "found no package" in line
        )
        assert 'pip install "tensorflow>=2.15"' in line
    assert "During handling" not in done.stderr and "MissingError: deepfreeze.Checkpoint: expected" in done.stderr


def test_a_bfloat16_tensor_comes_as_its_bits(tmp_path):
    """As numpy itself has no such type."""
    run = files.write_run(tmp_path / "run")
    made = files.sample(world=1)
    value = json.loads(made.structure)
    placed = next(tensor for tensor in value["tensors"] if tensor["name"] == "dense/bias")
    placed.update(dtype="bfloat16", nbytes=80)
    made.structure = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    files.write_checkpoint(run, 40, made)
    code = (
        "import deepfreeze, numpy as np; bits = deepfreeze.read(sys.argv[1])['dense/bias']\n"
        "print(bits.dtype, (bits.astype('<u4') << 16).view('<f4').tolist())"
    )
    done = alone(code, run)
    bits = np.frombuffer(made.content, "<u2", 40, 12200)
    wanted = (bits.astype("<u4") << 16).view("<f4").tolist()
    assert done.stdout.strip() == f"uint16 {wanted}", done.stderr
