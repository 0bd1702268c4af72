"""Each private name of a framework is used in one function, is there in the versions installed here, and may be missing."""

import ast
import importlib
import random
import types
from pathlib import Path

import numpy as np
import pytest

from deepfreeze.errors import UnsupportedError
from deepfreeze.state import private_api
from tests.support import kerases

ROOT = Path(__file__).resolve().parents[2] / "deepfreeze"
# Attributes that are this library's own, or the standard library's, on other objects than ``self``.
OWN = {"_getframe", "_fields", "_replace", "_asdict", "_seed", "_rng"}


def test_the_table_and_the_functions_are_the_same():
    functions = {name for name, value in vars(private_api).items() if isinstance(value, types.FunctionType)}
    named = [row.function for row in private_api.TABLE]
    assert sorted(named) == sorted(functions - {"dataclass"})
    for row in private_api.TABLE:
        assert row.missing and row.since[0].isdigit() and row.package.split()[0] in ("Keras", "Horovod", "TensorFlow")


def test_no_other_module_asks_for_a_private_name_of_a_framework():
    """By ``getattr`` or by attribute, on anything but ``self``, ``cls`` and this library's modules."""
    found = []
    for path in ROOT.rglob("*.py"):
        if path.name == "private_api.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = ""
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
                name = getattr(node.args[1], "value", "")
            elif isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Name):
                name = node.attr if not isinstance(node.value, ast.Attribute) else ""
            if isinstance(name, str) and name.startswith("_") and not name.startswith("__") and name not in OWN:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {name}")
    assert found == []


@pytest.mark.parametrize("row", private_api.TABLE, ids=lambda row: row.function)
def test_what_is_missing_is_none_or_a_default(row, monkeypatch):
    defaults = {"says_built": False, "steps_per_execution": 1, "thread_states": []}
    if row.function in ("seeded_context", "tensorflow_generator", "keras_generator", "thread_states"):
        monkeypatch.setattr(private_api.sys, "modules", {})
        assert getattr(private_api, row.function)() == defaults.get(row.function)
    else:
        assert getattr(private_api, row.function)(object()) == defaults.get(row.function)


@pytest.mark.tensorflow
def test_each_name_is_there_and_is_what_it_is_taken_for(monkeypatch):
    """On the Kerases, the TensorFlow and the Horovod that are installed; what another version alone has is left out."""
    import keras
    import tensorflow as tf

    tf.random.set_seed(7)
    context = private_api.seeded_context()
    assert context._seed == 7 and isinstance(context._rng, random.Random)
    tf.random.set_global_generator(tf.random.Generator.from_seed(3))
    assert private_api.tensorflow_generator() is tf.random.get_global_generator().state
    module = tf.Module()
    module.weight = tf.Variable(1.0)
    flattened = private_api.flattened(module)(predicate=lambda thing: thing is module.weight, with_path=True)
    assert [path for path, _ in flattened] == [("weight",)]
    if hasattr(keras, "ops"):
        keras.random.uniform(())
        assert private_api.keras_generator().shape == (2,)
        keras.mixed_precision.set_global_policy("bfloat16")
        policies = [state.get("dtype_policy") for state in private_api.thread_states()]
        keras.mixed_precision.set_global_policy("float32")
        assert [policy.name for policy in policies if policy is not None] == ["bfloat16"]
        optimizer = keras.optimizers.SGD(gradient_accumulation_steps=2)
        optimizer.build([keras.Variable(np.zeros(2, "float32"))])
        assert private_api.batch_counter(optimizer).dtype.startswith("int")


@pytest.mark.tensorflow
def test_keras_2_s_names_are_there():
    keras = importlib.import_module(kerases.NAMES[-1])
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("adam", "mse", steps_per_execution=3)
    assert private_api.steps_per_execution(model) == 3
    assert not private_api.says_built(keras.optimizers.Adam())
    model.optimizer.build(model.trainable_variables)
    assert private_api.says_built(model.optimizer)
    keras.backend.experimental.enable_tf_random_generator()
    try:
        layer = keras.layers.Dropout(0.5)
        layer.build((4,))
        assert private_api.layer_generator(layer).state.shape == (3,)
    finally:
        keras.backend.experimental.disable_tf_random_generator()


@pytest.mark.tensorflow
@kerases.needs_keras_3
def test_an_accumulating_optimizer_whose_count_is_unknown_is_refused(monkeypatch):
    import keras

    from deepfreeze.frameworks.tensorflow.steps import Steps

    monkeypatch.setattr(private_api, "batch_counter", lambda optimizer: None)
    with pytest.raises(UnsupportedError, match="gradient_accumulation_steps"):
        Steps(keras.optimizers.SGD(gradient_accumulation_steps=2))
