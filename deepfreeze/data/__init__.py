"""The input of a training: which items, in which order, and where a training is in them.

    data = deepfreeze.data.Resumable((x, y), global_batch=256, seed=7)
    model.fit(data, epochs=10, callbacks=[deepfreeze.Checkpoint("runs/mine", data=data)])

``Resumable`` is an input of its own, ``Skipping`` one around a ``tf.data`` pipeline, and ``IteratorState`` an iterator over such a pipeline
whose place TensorFlow saves. Importing this package imports neither TensorFlow nor Keras.
"""

from deepfreeze.data.iterator_state import IteratorState
from deepfreeze.data.resumable import Resumable
from deepfreeze.data.skipping import Skipping

__all__ = ["IteratorState", "Resumable", "Skipping"]
