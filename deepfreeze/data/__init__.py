"""The input of a training: which items, in which order, and where a training is in them.

    data = deepfreeze.data.Resumable((x, y), global_batch=256, seed=7)
    model.fit(data, epochs=10)

``Resumable`` is the input itself. Importing this package imports neither TensorFlow nor Keras.
"""

from deepfreeze.data.resumable import Resumable

__all__ = ["Resumable"]
