"""Models as they are found: of keras.applications, and the usual hand-made kinds."""

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from tests.support import h5, hand_made, kerases, trainings

pytestmark = pytest.mark.tensorflow

# name: side of the image, options. The smallest each one takes; what is saved does not depend on it.
APPLICATIONS = {
    "MobileNet": (32, {"alpha": 0.25}),
    "MobileNetV2": (32, {"alpha": 0.35}),
    "MobileNetV3Small": (32, {"minimalistic": True}),
    "MobileNetV3Large": (32, {"alpha": 0.75}),
    "EfficientNetB0": (32, {}),
    "EfficientNetV2B0": (32, {}),
    "DenseNet121": (32, {}),
    "NASNetMobile": (32, {}),
    "ResNet50": (32, {}),
    "ResNet50V2": (32, {}),
    "InceptionV3": (75, {}),
    "Xception": (71, {}),
    "ConvNeXtTiny": (32, {}),
    "VGG16": (32, {"include_top": False}),
}


OFTEN = "MobileNet"  # with depthwise and other convolutions, and BatchNorm


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == OFTEN else pytest.param(name, marks=pytest.mark.full) for name in APPLICATIONS]
)
def test_every_application_is_saved_as_keras_saves_it_and_restored(name, tmp_path):
    side, options = APPLICATIONS[name]

    def make():
        build = getattr(keras3.applications, name)
        model = build(weights=None, input_shape=(side, side, 3), **{"classes": 3, **options})
        optimizer = keras3.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)
        return model, optimizer

    keras3.utils.set_random_seed(1)
    model, optimizer = make()
    with deepfreeze.capture(optimizer, model, tmp_path / "run", every=1) as checkpoint:
        optimizer.iterations.assign(1)
        checkpoint.step()
    model.save_weights(tmp_path / "stock.weights.h5")
    h5.assert_same(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5", tmp_path / "stock.weights.h5")
    again, again_optimizer = make()
    again.optimizer = again_optimizer
    deepfreeze.restore(again, tmp_path / "run")
    again.save_weights(tmp_path / "again.weights.h5")
    h5.assert_same(tmp_path / "again.weights.h5", tmp_path / "stock.weights.h5")


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("layers", [20, None], ids=["part", "whole"])
def test_an_application_is_captured_in_the_graph_as_it_trains(layers, tmp_path):
    """The whole of MobileNet, or its first layers with the same loss behind them."""
    side, options = APPLICATIONS["MobileNet"]

    def make():
        model = keras3.applications.MobileNet(weights=None, input_shape=(side, side, 3), classes=3, **options)
        if layers:
            pooled = keras3.layers.GlobalAveragePooling2D()(model.layers[layers].output)
            model = keras3.Model(model.inputs, keras3.layers.Dense(3, "softmax")(pooled))
        optimizer = keras3.optimizers.SGD(0.01, momentum=0.9)
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
        return model

    images = np.random.default_rng(0).random((4, side, side, 3), np.float32)
    batches = tf.data.Dataset.from_tensor_slices((images, np.arange(4) % 3)).batch(2)
    assert trainings.assert_as_keras_saves_it(keras3, make, tmp_path, batches) == [1, 2]


# On both Kerases in `make test-all`.
@kerases.cases(hand_made.KINDS, often=("u_net", "recurrent"), name="kind")
def test_the_usual_hand_made_kinds_are_captured_in_the_graph_as_they_train(keras, kind, tmp_path):
    def make():
        return hand_made.of_kind(keras, kind)

    batches = hand_made.batches_of(keras, kind)
    assert trainings.assert_as_keras_saves_it(keras, make, tmp_path, batches) == [1, 2, 3]
