"""Loads a checkpoint's file into a new NT3 with stock Keras, without importing DeepFreeze, and tests the model."""

import argparse
import json
import sys

import numpy as np

import data
from model import nt3

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("file", help="for instance runs/nt3/step-0000000060/model.weights.h5")
parser.add_argument("--genes", type=int, default=data.GENES)
parser.add_argument("--json", action="store_true", help="print JSON")
args = parser.parse_args()

_, _, x, y = data.load(args.genes)
model = nt3(args.genes, data.CLASSES)
model.load_weights(args.file)
probabilities = model.predict(x, batch_size=len(x), verbose=0)
accuracy = float(np.mean(probabilities.argmax(axis=1) == y))
loss = float(-np.mean(np.log(probabilities[np.arange(len(y)), y])))
assert not any(name.partition(".")[0] in ("deepfreeze", "veloc_bindings") for name in sys.modules)
if args.json:
    print(json.dumps({"test_accuracy": accuracy, "test_loss": loss}))
else:
    print(f"test accuracy {accuracy}, loss {loss:.4f}")
