"""Objects that derive state when their variables are loaded: after each way of restoring they compute what they compute after stock
Keras's ``load_weights``."""

import importlib

import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.state import private_api
from deepfreeze.state.derived_state import objects_of
from tests.support import kerases, overriding
from tests.support.hand_made import lora

pytestmark = pytest.mark.tensorflow

FIRST = kerases.NAMES[0]
OFTEN = {(FIRST, "Normalization in front of a user's own")}
CASES = [
    pytest.param(package, name, marks=[] if (package, name) in OFTEN else pytest.mark.full)
    for package in kerases.NAMES
    for name in overriding.recipes(package)
]
# Classes of which a restore does not ask that they load.
PLAIN = {"Dense", "EinsumDense", "Embedding", "BaseConv"}
# Noted by a layer's loading, and told from false by quantised layers alone.
CALIBRATED = {"is_gptq_calibrated", "is_awq_calibrated"}
X = overriding.NUMBERS


def same(a, b):
    return np.allclose(a, b, rtol=1e-5, atol=0)


def train(model, recipe, *callbacks):
    """Two more steps, which are as large as their losses say."""
    model.fit(recipe.data(), verbose=0, shuffle=False, callbacks=list(callbacks))


def used(model, recipe):
    """A model whose functions are traced with what it has derived until now."""
    model.evaluate(recipe.data(1), verbose=0)
    return model, recipe.predict(model)


def restored(model, run):
    deepfreeze.restore(model, run)


def opened(model, run):
    deepfreeze.Checkpoint(run, every=2).open(model)


def transferred(model, run):
    deepfreeze.transfer(model, run, verbose=0)


WAYS = [restored, opened, transferred]


def attributes(model):
    """What the model's layers hold beside variables, by layer and name."""
    found = {}
    for number, layer in enumerate(model.layers):
        plain = {
            name: value for name, value in vars(layer).items() if isinstance(value, (bool, int, float, str, tuple))
        }
        found |= {(number, name): value for name, value in plain.items()}
        found |= {(number, name): id(value) for name, value in vars(layer).items() if name not in plain}
    return {key: value for key, value in found.items() if key[1] not in CALIBRATED}


@pytest.mark.parametrize(("package", "name"), CASES)
def test_outputs_after_each_way_are_those_after_stock_keras_s_load(package, name, tmp_path):
    keras = importlib.import_module(package)
    recipe = overriding.recipes(package)[name]
    model = recipe.compiled(keras, first=True)
    train(model, recipe, deepfreeze.Checkpoint(tmp_path / "run", every=2))
    stock = recipe.compiled(keras, first=False)
    stock.optimizer.build(stock.trainable_variables)
    before = attributes(stock)
    stock.load_weights(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5")
    assert name not in PLAIN or attributes(stock) == before, "this class derives something by now"
    expected, loss = recipe.predict(stock), stock.evaluate(recipe.data(1), verbose=0)
    assert same(expected, recipe.predict(model))
    for way in WAYS:
        other, first = used(recipe.compiled(keras, first=False), recipe)
        assert not same(first, expected)
        way(other, tmp_path / "run")
        assert same(recipe.predict(other), expected), way.__name__
        assert same(other.evaluate(recipe.data(1), verbose=0), loss), way.__name__
    other, _ = used(recipe.compiled(keras, first=False), recipe)
    train(other, recipe, deepfreeze.Checkpoint(tmp_path / "run", every=2))
    train(stock, recipe)
    assert same(recipe.predict(other), recipe.predict(stock))


@kerases.one_will_do
def test_a_model_that_its_first_batch_builds_goes_on_as_before(keras, tmp_path):
    recipe = overriding.Recipe(None, X)

    def make(first):
        keras.utils.set_random_seed(1 if first else 2)
        layer = keras.layers.Normalization()
        model = keras.Sequential([layer, keras.layers.Dense(1)])
        if first:
            layer.adapt(X)
        model.compile(keras.optimizers.Adam(1e-2), "mse", jit_compile=False)
        return model

    model, again = make(True), make(False)
    train(model, recipe, deepfreeze.Checkpoint(tmp_path / "run", every=2))
    train(again, recipe, deepfreeze.Checkpoint(tmp_path / "run", every=2))
    train(model, recipe)
    assert same(recipe.predict(again), recipe.predict(model))


def recording(keras, calls):
    """A layer that notes each call of its ``load_own_variables``, and the model's variables at that time."""

    class Noted(keras.layers.Dense):
        """See above."""

        def load_own_variables(self, store):
            values = [np.asarray(v).tobytes() for v in self.of.weights]
            calls.append((tf.executing_eagerly(), {key: np.asarray(store[key]).tobytes() for key in store}, values))
            super().load_own_variables(store)

    layer = Noted(3)
    inputs = keras.Input((3,))
    inner = keras.Model(inputs, layer(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(2)(inner(inputs))))
    vars(layer)["of"] = model
    model.compile(keras.optimizers.Adam(1e-2), "mse", jit_compile=False)
    return model, inner


@pytest.mark.full
@kerases.one_will_do
def test_an_override_is_called_once_when_all_variables_are_assigned(keras, tmp_path):
    """Outside of any graph, with the values under the names that Keras gives them; functions of models inside are made anew too."""
    recipe = overriding.Recipe(None, X)
    train(recording(keras, [])[0], recipe, deepfreeze.Checkpoint(tmp_path / "run", every=2))
    for way in WAYS:
        calls = []
        model, inner = recording(keras, calls)
        inner.predict(X, verbose=0)
        traced = inner.predict_function
        way(model, tmp_path / "run")
        ((eagerly, store, values),) = calls
        assert eagerly and values == [np.asarray(v).tobytes() for v in model.weights]
        assert sorted(store) == ["0", "1"] and set(store.values()) < set(values)
        assert inner.predict_function is not traced and model.predict_function is None
    # a model with plain objects alone keeps what it has traced
    plain = overriding.RECIPES["Dense"]
    train(plain.compiled(keras, True), plain, deepfreeze.Checkpoint(tmp_path / "plain", every=2))
    model, _ = used(plain.compiled(keras, False), plain)
    functions = model.predict_function, model.test_function
    deepfreeze.restore(model, tmp_path / "plain")
    assert (model.predict_function, model.test_function) == functions


@pytest.mark.full
@kerases.one_will_do
def test_a_transfer_asks_objects_all_of_whose_variables_it_loads(keras, tmp_path):
    recipe, calls = overriding.Recipe(None, X), []
    train(recording(keras, [])[0], recipe, deepfreeze.Checkpoint(tmp_path / "run", every=2))
    model, _ = recording(keras, calls)
    name = next(name for name in deepfreeze.read(tmp_path / "run") if "noted" in name and "kernel" in name)
    deepfreeze.transfer(model, tmp_path / "run", include=name, verbose=0)
    assert not calls
    deepfreeze.transfer(model, tmp_path / "run", include=name.rpartition("/")[0], verbose=0)
    assert len(calls) == 1


@pytest.mark.parametrize("way", ["restored", pytest.param("fitted", marks=pytest.mark.full)])
@kerases.one_will_do
def test_an_override_that_raises_ends_the_restore_with_its_name(keras, way, tmp_path):
    class Picky(keras.layers.Dense):
        """It does not like what it loads."""

        def load_own_variables(self, store):
            raise KeyError("no moon")

    def make():
        model = keras.Sequential([keras.Input((3,)), Picky(2, name="moody"), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        return model

    recipe, run = overriding.Recipe(None, X), tmp_path / "run"
    train(make(), recipe, deepfreeze.Checkpoint(run, every=2))
    with pytest.raises(deepfreeze.StructureError, match=r"step-0*2.*Picky 'moody'.*KeyError: 'no moon'") as caught:
        if way == "restored":
            deepfreeze.restore(make(), run)
        else:
            train(make(), recipe, deepfreeze.Checkpoint(run, every=2))
    assert way == "fitted" or isinstance(caught.value.__cause__, KeyError)  # Keras raises it anew in a fit


@pytest.mark.full
@kerases.one_will_do
def test_what_an_object_computes_from_its_variables_is_loaded_too(keras, tmp_path):
    """An object that stores other values than its variables' gets them back; then its variables are the checkpoint's again."""

    class Rounding(keras.layers.Dense):
        """Its file has rounded values; it computes with the largest of them."""

        largest = 0.0

        def save_own_variables(self, store):
            store["0"], store["1"] = np.round(np.asarray(self.kernel), 1), np.asarray(self.bias)

        def load_own_variables(self, store):
            self.kernel.assign(store["0"])
            self.bias.assign(store["1"])
            self.largest = float(np.max(store["0"]))

    def make(seed):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.Input((3,)), Rounding(4), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        return model

    model, other = make(1), make(2)
    train(model, overriding.Recipe(None, X), deepfreeze.Checkpoint(tmp_path / "run", every=2))
    for way in WAYS:
        other = make(2)
        way(other, tmp_path / "run")
        layer, kernel = other.layers[0], np.asarray(model.layers[0].kernel)
        assert [v.tobytes() for v in other.get_weights()] == [v.tobytes() for v in model.get_weights()]
        assert layer.largest == pytest.approx(float(np.max(np.round(kernel, 1))))


@pytest.mark.full
@kerases.needs_keras_3
def test_low_ranks_are_restored_beside_an_object_that_derives(tmp_path):
    import keras

    def make(first):
        keras.utils.set_random_seed(1 if first else 2)
        layer = keras.layers.Normalization()
        dense = keras.layers.Dense(4)
        model = keras.Sequential([keras.Input((3,)), layer, dense, keras.layers.Dense(1)])
        dense.enable_lora(2)
        if first:
            layer.adapt(X)
        model.compile(keras.optimizers.Adam(1e-2), "mse", jit_compile=False)
        return model

    recipe, model = overriding.Recipe(None, X), make(True)
    train(model, recipe, deepfreeze.Checkpoint(tmp_path / "run", every=2))
    assert deepfreeze.latest(tmp_path / "run").layout == "plain-h5"
    for way in WAYS:
        other = make(False)
        way(other, tmp_path / "run")
        assert same(recipe.predict(other), recipe.predict(model))
        assert [v.tobytes() for v in other.get_weights()] == [v.tobytes() for v in model.get_weights()]


@pytest.mark.full
@kerases.needs_keras_3
def test_a_layer_of_keras_s_own_is_plain_but_for_quantisation():
    import keras

    model = lora(keras)
    assert all(private_api.assigns_alone(one) for one in objects_of(model))
    model.layers[1].quantize("int8")
    assert [private_api.assigns_alone(one) for one in model.layers] == [True, False]
    assert not private_api.assigns_alone(keras.layers.Normalization())
    model.layers[0].load_own_variables = lambda store: None
    assert not private_api.assigns_alone(model.layers[0])


@pytest.mark.full
def test_the_layers_of_a_module_derive_too(tmp_path):
    """Keras 2's layers in a tf.Module, whose training is the user's own loop."""
    keras = importlib.import_module(kerases.NAMES[-1])

    class Net(tf.Module):
        """A layer in front of a weight."""

        def __init__(self, first):
            super().__init__()
            self.front = keras.layers.Normalization()
            self.front.adapt(X if first else 3 * X)
            self.weight = tf.Variable(2.0 if first else 1.0)
            self.optimizer = keras.optimizers.SGD()
            self.optimizer.build([self.weight])

        def __call__(self, x):
            return self.weight * self.front(x)

    net = Net(True)
    with deepfreeze.capture(net.optimizer, net, tmp_path / "run", every=1) as checkpoint:
        net.optimizer.apply_gradients([(tf.constant(1.0), net.weight)])
        checkpoint.step()
    other = Net(False)
    deepfreeze.restore(other, tmp_path / "run")
    assert same(other(X), net(X))
