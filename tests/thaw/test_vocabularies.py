"""The vocabularies of a model's lookups: a checkpoint notes them, and whoever restores into a model with others is warned."""

import importlib

import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.format.vocabularies import Vocabulary, of_values
from deepfreeze.state import private_api
from deepfreeze.state.derived_state import objects_of
from deepfreeze.state.vocabularies import vocabularies_of, warning_of_ranks
from deepfreeze.store.run import Run
from tests.support import kerases, overriding

pytestmark = pytest.mark.tensorflow

TEXTS = overriding.TEXTS
WORDS = ["ape", "bee", "cat", "dog"]
OTHERS = ["bee", "ape", "cat", "dog"]
ANOTHER = "saved with another vocabulary in layer"
ADAPTED = "adapted"


def make(keras, words=WORDS, numbers=(1, 2, 3)):
    """Embeds words and numbers. ``words``: given to the layer, or adapted."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    given = {} if words == ADAPTED else {"vocabulary": words}
    text = layers.TextVectorization(output_sequence_length=3, name="text", **given)
    if not given:
        text.adapt(TEXTS.ravel())
    inputs = keras.Input((1,), dtype="string")
    x = layers.Flatten()(layers.Embedding(10, 2)(text(inputs)))
    model = keras.Model(inputs, layers.Dense(1)(x))
    model.codes = layers.IntegerLookup(vocabulary=list(numbers), name="codes")
    model.compile(keras.optimizers.Adam(1e-2), "mse", jit_compile=False)
    return model


def data():
    return tf.data.Dataset.from_tensors((TEXTS, np.arange(6, dtype="float32")[:, None])).repeat(2)


def train(model, run, **options):
    model.fit(data(), verbose=0, shuffle=False, callbacks=[deepfreeze.Checkpoint(run, every=2, **options)])


def saved_in(run):
    opened = Run.open(run)
    return of_values(opened.structure(opened.manifest(opened.newest()).structure).values)


WAYS = {
    "restore": lambda model, run: deepfreeze.restore(model, run),
    "open": lambda model, run: deepfreeze.Checkpoint(run, every=2).open(model),
    "transfer": lambda model, run: deepfreeze.transfer(model, run, verbose=0),
    "fit": train,
}


@kerases.one_will_do
def test_each_way_warns_once_of_a_layer_with_another_vocabulary(keras, tmp_path, caplog):
    train(make(keras), tmp_path / "run")
    assert [(one.layer, one.words) for one in sorted(saved_in(tmp_path / "run"), key=lambda one: one.layer)] == [
        ("codes", 4),
        ("text", 6),
    ]
    assert "vocabulary" not in caplog.text
    for way in WAYS.values():
        caplog.clear()
        way(make(keras, OTHERS), tmp_path / "run")
        assert caplog.text.count(ANOTHER) == 1 and "layer 'text' (6 words, and 6 in the checkpoint)" in caplog.text
        assert "codes" not in caplog.text
    # The checkpoint of the last way has the other vocabulary: a run may have structures of both.
    assert saved_in(tmp_path / "run")[-1] != Vocabulary.of("text", ["", "[UNK]", *WORDS])
    caplog.clear()
    deepfreeze.restore(make(keras, OTHERS), tmp_path / "run")
    assert "vocabulary" not in caplog.text


@pytest.mark.full
@kerases.one_will_do
def test_a_checkpoint_that_has_no_vocabularies_is_no_reason_to_warn(keras, tmp_path, caplog, monkeypatch):
    """Older versions noted none."""
    with monkeypatch.context() as older:
        older.setattr("deepfreeze.freeze.agreed_structure.vocabularies_of", lambda objects: [])
        train(make(keras), tmp_path / "run")
    assert saved_in(tmp_path / "run") == []
    for way in WAYS.values():
        way(make(keras, OTHERS), tmp_path / "run")
    assert "vocabulary" not in caplog.text


@pytest.mark.full
@pytest.mark.parametrize("package", kerases.NAMES)
def test_an_adapted_lookup_is_trained_noted_and_resumed(package, tmp_path, caplog):
    """On Keras 2 it lists its table among the model's variables."""
    keras = importlib.import_module(package)
    train(make(keras, ADAPTED), tmp_path / "run")
    model = make(keras, ADAPTED)
    deepfreeze.restore(model, tmp_path / "run")
    assert "vocabulary" not in caplog.text
    deepfreeze.restore(make(keras, OTHERS), tmp_path / "run")
    assert "layer 'text' (6 words, and 7 in the checkpoint)" in caplog.text


@pytest.mark.full
@pytest.mark.parametrize("package", kerases.NAMES)
def test_the_layers_of_a_feature_space_are_noted(package):
    keras = importlib.import_module(package)
    model = overriding.RECIPES["FeatureSpace"].compiled(keras, True)
    (found,) = vocabularies_of(objects_of(model))
    assert (found.layer, found.words) == ("word_preprocessor", 7)


def test_whatever_answers_get_vocabulary_is_asked_and_may_refuse():
    """A tokenizer raises before it has a vocabulary."""

    class Tokenizer:
        """Saved by Keras, as its layers are."""

        def __init__(self, words, name="tokens"):
            self.words, self.name = words, name

        def save_own_variables(self, store):
            """Stores nothing."""

        def get_vocabulary(self):
            if self.words is None:
                raise ValueError("no vocabulary")
            return self.words

    assert vocabularies_of([Tokenizer(None), object()]) == []
    assert vocabularies_of([Tokenizer("ab"), Tokenizer(["c"])]) == [
        Vocabulary.of("tokens", ["a", "b"]),
        Vocabulary.of("tokens#2", ["c"]),
    ]
    assert vocabularies_of([Tokenizer(["a"], "\n")])[0].layer == "Tokenizer"


def test_ranks_with_different_vocabularies_are_named():
    one, other = Vocabulary.of("text", WORDS), Vocabulary.of("text", OTHERS)
    assert warning_of_ranks([[one], [one]]) is None and warning_of_ranks([[]]) is None
    warning = warning_of_ranks([[one], [one], [other]])
    assert warning.startswith("rank 2 has another vocabulary than rank 0 in layer 'text'")


@pytest.mark.parametrize(
    ("package", "name"),
    [
        pytest.param(package, name, marks=[] if name == "TextVectorization" else pytest.mark.full)
        for package in kerases.NAMES
        for name in ("TextVectorization", "IndexLookup of words")
    ],
)
def test_a_lookup_with_weights_is_in_a_file_that_stock_keras_loads(package, name, tmp_path, caplog):
    keras = importlib.import_module(package)
    recipe = overriding.RECIPES[name]
    model = recipe.compiled(keras, True)
    model.fit(recipe.data(), verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=2)])
    assert deepfreeze.latest(tmp_path / "run").layout == "keras-h5" and "stock Keras" not in caplog.text
    model.save_weights(tmp_path / "stock.weights.h5")
    with deepfreeze.read(tmp_path / "run") as tensors:
        found = [name for name in tensors if tensors[name].tolist() == [2, 0.5, 1.5, 2.5, 3.5]]
        assert found and (kerases.is_2(keras) or all("lookup" in name and "idf_weights" in name for name in found))
    stock = recipe.compiled(keras, False)
    stock.load_weights(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5")
    assert np.allclose(recipe.predict(stock), recipe.predict(model), rtol=1e-5)


@pytest.mark.full
@kerases.needs_keras_3
def test_an_older_checkpoint_without_the_weights_of_a_lookup_is_restored(tmp_path, monkeypatch):
    """Older versions saved such a model by its listed variables alone, in the layout plain-h5."""
    import keras

    recipe = overriding.RECIPES["TextVectorization"]
    model = recipe.compiled(keras, True)
    with monkeypatch.context() as older:
        older.setattr(private_api, "lookup_weights", lambda layer: [])
        model.fit(recipe.data(), verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=2)])
    assert deepfreeze.latest(tmp_path / "run").layout == "plain-h5"
    for way in WAYS.values():
        other = recipe.compiled(keras, True)
        way(other, tmp_path / "run")
        if way is not train:
            assert np.allclose(recipe.predict(other), recipe.predict(model), rtol=1e-5)
    assert deepfreeze.latest(tmp_path / "run").layout == "keras-h5"
