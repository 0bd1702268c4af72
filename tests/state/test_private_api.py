"""Each private name of a framework is used in one function, is there in the versions installed here, and may be missing."""

import ast
import importlib
import random
import re
import types
from pathlib import Path

import numpy as np
import pytest

import deepfreeze
from deepfreeze.errors import UnsupportedError
from deepfreeze.matching import weights
from deepfreeze.state import private_api
from deepfreeze.state.private_names import TABLE
from tests.support import kerases, overriding

ROOT = Path(__file__).resolve().parents[2] / "deepfreeze"
HERE = "state/private_api"
# Private names that the library has itself, and one of the standard library, where they are used on other objects than ``self``; and
# those that are strings.
OURS = {
    "self._word._propose",
    "one._serves",
    "one._terms",
    "lock._key",
    "lock._pid",
    "sys._current_frames",
    "sys._getframe",
    "checkpoint._training",
    "last._counter",
    "last._is_over",
    "last._since",
    "last._step",
    "made._crcs",
    "made._make",
    "made._ready",
    "made._standing",
    "made._training",
    "other._copied",
}
OUR_STRINGS = {"_deepfreeze_applied", "_deepfreeze_installations", "_file"}
# Of the objects that functions of the table return.
RETURNED = {"context._seed", "context._rng"}
PRIVATE = re.compile(r"_[A-Za-z]\w*")
# Members of ``Hooks`` that are its own.
OUR_MEMBERS = {"_ignore"}


def in_rows(module):
    """The private names in the rows of a module."""
    return {name for row in TABLE if row.module == module for name in re.findall(r"\b_[a-z]\w*", row.name)}


def test_the_table_and_the_functions_are_the_same():
    functions = {name for name, value in vars(private_api).items() if isinstance(value, types.FunctionType)}
    named = [row.function for row in TABLE if row.module == HERE]
    assert sorted(named) == sorted(functions)
    for row in TABLE:
        assert row.missing and row.since[0].isdigit() and row.package.split()[0] in ("Keras", "Horovod", "TensorFlow")
        assert hasattr(importlib.import_module("deepfreeze." + row.module.replace("/", ".")), row.function)


@pytest.mark.tensorflow
@pytest.mark.parametrize("package", kerases.NAMES)
def test_every_class_of_keras_that_overrides_loading_is_known(package):
    """Either its method assigns and does no more, or a model with it is restored as stock Keras loads it (``tests/thaw``)."""
    found = overriding.classes(package)
    known = {name.removesuffix(f".{overriding.METHOD}") for name in private_api.ASSIGNING}
    assert found - overriding.NOT_TENSORFLOW <= known | overriding.DERIVING
    assert overriding.DERIVING - {"Discretization"} <= found
    tried = {name.partition(",")[0].partition(" ")[0] for name in overriding.recipes(package)}
    assert found - overriding.NOT_TENSORFLOW - overriding.IN_ALL <= tried


def private_names(path):
    """(line, name) of each private name in a module that may be another package's: an attribute of anything but ``self``, ``cls`` and a
    class of the module, a string, and a member of ``Hooks``, which Keras takes for a ``Callback``."""
    tree = ast.parse(path.read_text())
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr):
            base = ast.unparse(node.value)
            if base not in {"self", "cls", *classes} and f"{base}.{node.attr}" not in OURS | RETURNED:
                yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and PRIVATE.fullmatch(node.value):
            if node.value not in OUR_STRINGS:
                yield node.lineno, node.value
        elif isinstance(node, ast.ClassDef) and path.name == "keras_hooks.py":
            for member in node.body:
                targets = [target for target in getattr(member, "targets", []) if isinstance(target, ast.Name)]
                for name in [getattr(member, "name", ""), *(target.id for target in targets)]:
                    if PRIVATE.fullmatch(name) and name not in OUR_MEMBERS:
                        yield member.lineno, name


def test_no_other_module_asks_for_a_private_name_of_a_framework():
    """By attribute, by a string, or as a member of the class that Keras takes for a callback; but for the names in the module's rows."""
    found = []
    for path in ROOT.rglob("*.py"):
        module = path.relative_to(ROOT).with_suffix("").as_posix()
        if module not in (HERE, "state/private_names"):
            found += [f"{module}:{line} {name}" for line, name in private_names(path) if name not in in_rows(module)]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "optimizer._built",
        "model.optimizer._built",
        "getattr(optimizer, '_built', False)",
        "setattr(model, '_built', True)",
        "optimizers()[0]._built",
    ],
)
def test_a_private_name_is_noticed(line, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(f"class Own:\n    def method(self):\n        self._own = Own._own\n        {line}\n")
    assert list(private_names(path)) == [(4, "_built")]


def test_a_name_that_keras_asks_a_callback_for_is_noticed(tmp_path):
    path = tmp_path / "keras_hooks.py"
    path.write_text("class Hooks:\n    _built = True\n    def _build(self): ...\n    def _ignore(self): ...\n")
    assert [name for _, name in private_names(path)] == ["_built", "_build"]


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", kerases.NAMES)
def test_the_callback_answers_what_keras_2_asks_a_callback(name):
    """No other private member of the callback has a name that a ``Callback`` of Keras has too."""
    keras = importlib.import_module(name)
    theirs = {one for one in dir(keras.callbacks.Callback()) if PRIVATE.fullmatch(one)}
    ours = {one for one in dir(deepfreeze.Checkpoint) if PRIVATE.fullmatch(one)}
    assert theirs & ours == (in_rows("frameworks/keras_hooks") if kerases.is_2(keras) else set())


@pytest.mark.tensorflow
def test_keras_2_s_containers_of_layers_are_known():
    keras = importlib.import_module(kerases.NAMES[-1])
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs))
    (container,) = in_rows("matching/weights")
    assert container in weights._CONTAINERS and hasattr(model, container)


@pytest.mark.parametrize("row", [row for row in TABLE if row.module == HERE], ids=lambda row: row.function)
def test_what_is_missing_is_none_or_a_default(row, monkeypatch):
    defaults = {
        "says_built": False,
        "in_fit": False,
        "is_generator_state": False,
        "trained_variables": [],
        "trained_keys": {},
        "fits_own": [],
        "scheduled_rate": [],
        "loss_scale": [],
        "steps_per_execution": 1,
        "thread_states": [],
        "saving_counts": {},
        "plotting_counts": {},
        "variables_of_fit": [],
        "assigns_alone": True,
        "lookup_weights": [],
    }
    if row.function == "traced_apart":
        monkeypatch.setattr(private_api.sys, "modules", {})
        with private_api.traced_apart() as nothing:
            assert nothing is None
    elif row.function in ("seeded_context", "tensorflow_generator", "keras_generator", "thread_states"):
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
        trained = keras.Variable(np.zeros(2, "float32"))
        optimizer.build([trained])
        assert private_api.batch_counter(optimizer).dtype.startswith("int")
        assert [one is trained for one in private_api.trained_variables(optimizer)] == [True]


@pytest.mark.tensorflow
def test_what_a_call_only_reads_is_noted():
    import tensorflow as tf

    weight, count = tf.Variable(1.0), tf.Variable(1.0)

    @tf.function
    def inner():
        count.assign_add(weight)

    @tf.function
    def outer():
        inner()

    graph = outer.get_concrete_function().graph
    (call,) = [op for op in graph.get_operations() if "PartitionedCall" in op.type]
    assert [one is graph.capture(weight.handle) for one in private_api.read_only_inputs(call)] == [True]


@pytest.mark.tensorflow
def test_what_a_function_touches_is_noted_with_the_variables_of_its_handles():
    import tensorflow as tf

    weight, count = tf.Variable(1.0, name="weight"), tf.Variable(1.0, name="count")
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
    noted = []

    @tf.function(autograph=False)
    def function():
        count.assign_add(weight)
        noted.extend(private_api.watched_variables(tf.compat.v1.get_default_graph()))

    function()
    assert {id(one) for one in noted} == {id(weight), id(count)}
    handles = (weight.handle, count.handle, table.resource_handle)
    assert [private_api.variable_of_handle(one) for one in handles] == ["weight", "count", None]
    generator = tf.random.Generator.from_seed(1)
    assert [private_api.is_generator_state(one) for one in (generator.state, weight)] == [True, False]


@pytest.mark.tensorflow
def test_keras_2_s_names_are_there():
    keras = importlib.import_module(kerases.NAMES[-1])
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("adam", "mse", steps_per_execution=3)
    assert private_api.steps_per_execution(model) == 3
    assert len(private_api.fits_own(model)) == 4
    model.optimizer.build(model.trainable_variables)
    kernel, bias = model.trainable_variables
    names = {private_api.key_of(kernel): "dense/kernel", private_api.key_of(bias): "dense/bias"}
    keys = private_api.trained_keys(model.optimizer)
    assert keys.keys() == names.keys() and all(name.endswith(names[key].split("/")[1]) for key, name in keys.items())
    scaled = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8.0)
    scale, updates = private_api.loss_scale(scaled)
    assert (float(scale), int(updates)) == (8.0, 0)
    fixed = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(), dynamic=False, initial_scale=8.0)
    assert private_api.loss_scale(fixed) == private_api.loss_scale(keras.optimizers.SGD()) == []
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
