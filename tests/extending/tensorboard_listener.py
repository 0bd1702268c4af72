"""A listener: figures of checkpoints as TensorBoard scalars, beside those that Keras's ``TensorBoard`` callback writes."""

import os

import tensorflow as tf

from deepfreeze.events import Blocked, Captured, End, Event, External

# What makes a value a scalar for TensorBoard. ``tf.summary.scalar`` does the same, and needs the package tensorboard on the node.
_SCALAR = tf.compat.v1.SummaryMetadata(
    data_class="DATA_CLASS_SCALAR", plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
)


class TensorBoardListener:
    """Writes three scalars at each checkpoint's step:

    - ``deepfreeze/blocking_seconds``: seconds for which the checkpoint held training up on this rank.
    - ``deepfreeze/commit_seconds``: seconds from the hand-over to the engine until the commit. A checkpoint that fails has none.
    - ``deepfreeze/committed_step``: the newest committed step when the checkpoint was captured, 0 if there was none: the step that a kill
      at that moment would have left."""

    def __init__(self, folder: str | os.PathLike) -> None:
        """``folder``: where TensorBoard looks; the file in it is made at once."""
        self._writer = tf.summary.create_file_writer(os.fspath(folder))
        self._committed = 0

    def on(self, event: Event) -> None:
        """Called by one thread, with one event after the other: so it may be slow, and needs no lock."""
        if isinstance(event, Blocked):
            self._write("blocking_seconds", event.seconds, event.step)
        elif isinstance(event, External):
            self._committed = max(self._committed, event.step)
            self._write("commit_seconds", event.seconds, event.step)
        elif isinstance(event, Captured):
            self._write("committed_step", self._committed, event.step)
        elif isinstance(event, End):
            self._writer.flush()

    def _write(self, name: str, value: float, step: int) -> None:
        with self._writer.as_default(step):
            tf.summary.write(f"deepfreeze/{name}", tf.constant(value, tf.float32), metadata=_SCALAR)
