"""The training that wrote ``padded``, on two Horovod ranks, with the last revision that wrote version 1 (README.md names it).

    mpirun -np 2 python written_by_padded.py FOLDER

It commits step 2, and dies while rank 1 publishes its record of step 4: rank 1's parts of steps 4 and 6 lie in slots of the local tier
alone. ``expected-R.json`` is what rank R's variables held after each step: SHA-256 of their bytes, by the names that the structure has.
"""

import hashlib
import json
import os
import sys
import time

folder = sys.argv[1]
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
# Read when the engine's testing library is loaded.
DEATHS = ["", "delay=3000:rename:rank-00001.record:2,kill-before:rename:rank-00001.record:2"]
os.environ["DEEPFREEZE_FAULT"] = DEATHS[rank]

import horovod.tensorflow.keras as hvd  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

import deepfreeze  # noqa: E402
from deepfreeze.state.dataset_paths import locate  # noqa: E402
from deepfreeze.state.training_state import TrainingState  # noqa: E402

hvd.init()
keras.utils.set_random_seed(7 + rank)
layers = [
    keras.layers.Dense(12, "relu"),
    keras.layers.BatchNormalization(),
    keras.layers.Dropout(0.1),
    keras.layers.Dense(1),
]
model = keras.Sequential([keras.Input((6,)), *layers])
model.compile(deepfreeze.DistributedOptimizer(keras.optimizers.Adam(1e-2)), "mse", jit_compile=False)


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
        located = locate(TrainingState.of(self.model)).tensors
        held = {t.spec.name: hashlib.sha256(np.asarray(t.variable).tobytes()).hexdigest() for t in located}
        with open(f"{folder}/expected-{rank}.json", "a") as file:
            file.write(json.dumps({"step": batch + 1, "tensors": held}) + "\n")
        time.sleep(0.5)  # one checkpoint at a time: which call dies is then known


os.makedirs(f"{folder}/local-{rank}", exist_ok=True)
rng = np.random.default_rng(rank)
x, y = rng.random((16, 6), np.float32), rng.random((16, 1), np.float32)
checkpoint = deepfreeze.Checkpoint(
    f"{folder}/run",
    every=2,
    local=f"{folder}/local-{rank}",
    extra={"position": Position()},
    rng="all",
    save_config=True,
)
callbacks = [deepfreeze.BroadcastState(), Note(), checkpoint]
model.fit(x, y, batch_size=2, verbose=0, shuffle=False, callbacks=callbacks)
