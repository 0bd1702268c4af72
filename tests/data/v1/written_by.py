"""The training that wrote the two runs beside this file, on two Horovod ranks, with the version that README.md names.

    mpirun -np 2 python written_by.py keras|tf_keras FOLDER

It commits step 2, and dies while it commits step 4: of the job on Keras 3 both ranks' records are then in the partial directory, of
the one on tf_keras rank 1's part lies in a slot of the local tier alone. ``expected-R.json`` is what rank R's variables held
after each step: SHA-256 of their bytes, by the names that the structure has.
"""

import hashlib
import importlib
import json
import os
import sys
import time

name, folder = sys.argv[1:]
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
# Read when the engine's testing library is loaded.
DEATHS = {
    "keras": ["kill-before:rename:manifest.json:2", ""],
    "tf_keras": ["", "delay=3000:rename:rank-00001.record:2,kill-before:rename:rank-00001.record:2"],
}
os.environ["DEEPFREEZE_FAULT"] = DEATHS[name][rank]
if name == "tf_keras":
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

import horovod.tensorflow.keras as hvd  # noqa: E402
import numpy as np  # noqa: E402

import deepfreeze  # noqa: E402
from deepfreeze.core.layout_probe import probe  # noqa: E402

hvd.init()
keras = importlib.import_module(name)
keras.utils.set_random_seed(7 + rank)
layers = [
    keras.layers.Dense(12, "relu"),
    keras.layers.BatchNormalization(),
    keras.layers.Dropout(0.1),
    keras.layers.Dense(1),
]
model = keras.Sequential([keras.Input((6,)), *layers])
distributed = deepfreeze.DistributedOptimizer if name == "keras" else hvd.DistributedOptimizer
model.compile(distributed(keras.optimizers.Adam(1e-2)), "mse", jit_compile=False)


class Position:
    """What is no tensor."""

    def __init__(self):
        self.value = {"rank": rank, "names": ["a", "b"], "weights": np.arange(3.0)}

    def state_dict(self):
        return self.value

    def load_state_dict(self, value):
        self.value = value


class Note(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        slots = probe(self.model)
        held = {slot.spec.name: hashlib.sha256(np.asarray(slot.variable).tobytes()).hexdigest() for slot in slots}
        with open(f"{folder}/expected-{rank}.json", "a") as file:
            file.write(json.dumps({"step": batch + 1, "tensors": held}) + "\n")
        time.sleep(0.5)  # one checkpoint at a time: which call dies is then known


os.makedirs(f"{folder}/local-{rank}", exist_ok=True)
rng = np.random.default_rng(rank)
x, y = rng.random((16, 6), np.float32), rng.random((16, 1), np.float32)
extra = {"position": Position()} if name == "keras" else None
checkpoint = deepfreeze.Checkpoint(
    f"{folder}/run", every=2, local=f"{folder}/local-{rank}", extra=extra, save_config=True
)
callbacks = [deepfreeze.BroadcastState(), Note(), checkpoint]
model.fit(x, y, batch_size=2, verbose=0, shuffle=False, callbacks=callbacks)
