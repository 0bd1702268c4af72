"""Models as they are found: of keras.applications, and the usual hand-made kinds."""

import keras as keras3
import pytest

import deepfreeze
from tests.support import h5

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


@pytest.mark.parametrize("name", APPLICATIONS)
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
    with deepfreeze.capture(optimizer, model, tmp_path / "run", every=1, check_replicas=0) as checkpoint:
        optimizer.iterations.assign(1)
        checkpoint.step()
    model.save_weights(tmp_path / "stock.weights.h5")
    h5.assert_same(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5", tmp_path / "stock.weights.h5")
    again, again_optimizer = make()
    again.optimizer = again_optimizer
    deepfreeze.restore(again, tmp_path / "run")
    again.save_weights(tmp_path / "again.weights.h5")
    h5.assert_same(tmp_path / "again.weights.h5", tmp_path / "stock.weights.h5")
