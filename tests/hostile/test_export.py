"""``deepfreeze.export`` to ``.keras`` of a run whose stored configuration names code: the text is copied, and nothing of it is made or run.
Keras asks whoever opens the archive whether to trust it."""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import marshal
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import deepfreeze
from deepfreeze.state.model_config import model_config
from tests.support import configs, files, processes

ROOT = Path(__file__).resolve().parents[2]


def source(canary):
    """Of a function that leaves a file when it is called."""
    return f"lambda x: (open({str(canary)!r}, 'w').close(), x)[1]"


def code_of(canary):
    """The function marshalled, in base64."""
    made = compile(source(canary), "<lambda>", "eval").co_consts[0]
    return base64.b64encode(marshal.dumps(made)).decode()


def hostile(canary):
    """By name: configurations that name code, in the forms of both Kerases."""
    code = code_of(canary)
    keras_3 = {"class_name": "__lambda__", "config": {"code": code, "defaults": None, "closure": None}}
    return {
        "lambda": {"class_name": "Lambda", "module": "keras.layers", "config": {"function": keras_3}},
        "lambda of Keras 2": {"class_name": "Lambda", "config": {"function": [code, None, None], "function_type": "lambda"}},
        "function": {"class_name": "function", "module": "os", "config": "system", "registered_name": "system"},
        "eval": {"class_name": "eval", "module": "builtins", "config": {"source": f"open({str(canary)!r}, 'w')"}},
        "loss": {**configs.SEQUENTIAL, "compile_config": {"optimizer": "adam", "loss": keras_3}},
        "module": {"class_name": "Popen", "module": "subprocess", "config": {"args": ["touch", str(canary)]}},
    }  # fmt: skip


# In a process in which no Keras is imported. Python itself tells (sys.addaudithook) what makes or runs code.
AUDITED = """
import marshal, sys
import deepfreeze

harmless, out, *runs = sys.argv[1:]
deepfreeze.export(harmless, f"{out}/harmless.keras")  # imports all that it takes
told = set()
sys.addaudithook(lambda name, arguments: told.add(name))
for number, run in enumerate(runs):
    deepfreeze.export(run, f"{out}/{number}.keras")
RUN = {"import", "exec", "compile", "marshal.loads", "code.__new__", "function.__new__", "pickle.find_class", "ctypes.dlopen",
       "os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen"}
print(sorted(told & RUN), sorted({"keras", "tf_keras", "tensorflow"} & sys.modules.keys()), "open" in told)
marshal.loads(marshal.dumps(1))
assert "marshal.loads" in told
"""


def test_no_code_that_a_configuration_names_is_made_or_run(tmp_path):
    canary, out, runs = tmp_path / "canary", tmp_path / "out", []
    out.mkdir()
    for name, config in {"harmless": configs.SEQUENTIAL, **hostile(canary)}.items():
        runs.append(files.write_run(tmp_path / name))
        files.write_checkpoint(runs[-1], 40)
        configs.write_config(runs[-1], configs.config_bytes(config))
    command = [sys.executable, "-c", AUDITED, str(runs[0]), str(out), *map(str, runs[1:])]
    done = processes.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("[] [] True\n", 0), done.stderr
    for number, config in enumerate(hostile(canary).values()):
        with zipfile.ZipFile(out / f"{number}.keras") as archive:
            assert json.loads(archive.read("config.json")) == config
    assert not canary.exists()


@pytest.mark.tensorflow
def test_keras_refuses_the_lambda_unless_it_is_told_to_trust_it(api, tmp_path, monkeypatch):
    """A real layer's configuration, as a job stores it. During the export Keras makes nothing, in safe mode or without."""
    canary, run = tmp_path / "canary", files.write_run(tmp_path / "run")
    model = api.Sequential([api.Input((4,)), api.layers.Lambda(eval(source(canary)))])
    model(np.ones((1, 4), np.float32))
    files.write_checkpoint(run, 40)
    configs.write_config(run, model_config(model, files.RUN_ID, files.ATTEMPT).to_bytes())
    canary.unlink()

    saving = importlib.import_module(f"{api.__name__}.src.saving.serialization_lib")
    asked = []
    with monkeypatch.context() as patched:
        for name in ("deserialize_keras_object", "SafeModeScope", "enable_unsafe_deserialization"):
            patched.setattr(saving, name, lambda *arguments, name=name, **named: asked.append(name))
        deepfreeze.export(run, tmp_path / "a.keras")
    assert asked == [] and not canary.exists() and saving.in_safe_mode() is not False
    with pytest.raises(ValueError, match=r"[Ll]ambda"):
        api.models.load_model(tmp_path / "a.keras")
    assert not canary.exists()
    with contextlib.suppress(Exception):  # the sample's weights are no file of Keras's
        api.models.load_model(tmp_path / "a.keras", safe_mode=False)
    assert canary.exists(), "the layer would not have told"
