"""The state of an iterator over a ``tf.data.Dataset``, for hand-written loops: TensorFlow's own checkpoint of it, as bytes."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deepfreeze import arguments
from deepfreeze.errors import OptionError

_PREFIX = "iterator"
# Names in a state: it has the elements of all buffers, and not where each part is; and it was taken before the first element was read.
_BUFFERED, _UNTOUCHED = "buffered", "untouched"


class IteratorState(Iterator[Any]):
    """An iterator over a ``tf.data.Dataset`` that a checkpoint can hold: the loop goes on with the batch that comes next, whatever the
    pipeline has read ahead.

        batches = deepfreeze.data.IteratorState(dataset)
        with deepfreeze.capture(optimizer, model, "runs/mine", extra={"input": batches}) as checkpoint:
            for x, y in batches:
                train_step(x, y)
                checkpoint.step()

    Args:
        source: a dataset, or an iterator over one (``iter(dataset)``). Of a dataset TensorFlow saves where in its input each part of the
            pipeline is, where all parts know that (its option ``experimental_symbolic_checkpoint``). Otherwise, and of an iterator over a
            dataset without this option, it saves the elements in all buffers: that of a ``shuffle`` may be large.

    The pipeline must be built in the same way after a restart. Raises ``OptionError``.
    """

    def __init__(self, source: Any) -> None:
        is_iterator = hasattr(source, "__next__") and hasattr(source, "element_spec")
        is_dataset = hasattr(source, "with_options") and hasattr(source, "element_spec")
        arguments.require("source", source, is_iterator or is_dataset, "a tf.data.Dataset, or an iterator over one")
        self._dataset: Any = None if is_iterator else source
        self._iterator = source if is_iterator else _symbolic(source)
        # Before the first element was read TensorFlow can't tell whether all parts know where in their input they are.
        self._untouched, self._buffered = not is_iterator, False

    def __next__(self) -> Any:
        """The next element: a structure of tensors."""
        element = next(self._iterator)
        if self._untouched:
            self._untouched = False
            if not _can_be_saved(self._iterator):
                other = iter(self._dataset)
                first = next(other)
                if _can_be_saved(other):
                    self._iterator, self._buffered = other, True
                    return first
        return element

    def state_dict(self) -> dict[str, Any]:
        """TensorFlow's checkpoint of the iterator: {file name: bytes}. ``OptionError`` if a part of the pipeline can't be saved."""
        with tempfile.TemporaryDirectory(prefix="deepfreeze-iterator-") as folder:
            try:
                _checkpoint(self._iterator).write(str(Path(folder) / _PREFIX))
            except Exception as error:
                raise OptionError(
                    where="IteratorState",
                    expected="a pipeline whose parts TensorFlow can save",
                    found=str(error).strip().split("\n")[0][:300],
                    todo="leave from_generator, py_function and datasets that other processes serve out, or use deepfreeze.data.Skipping",
                ) from error
            files = {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}
        return files | {
            name: b"" for name, holds in ((_BUFFERED, self._buffered), (_UNTOUCHED, self._untouched)) if holds
        }

    def load_state_dict(self, state: Mapping[str, bytes]) -> None:
        """Goes on behind the element that was given out last before ``state_dict``. ``OptionError`` if the state is of another pipeline."""
        if self._dataset is not None:
            # TensorFlow would read a state of the other kind without an error, and go on elsewhere.
            self._buffered, self._untouched = _BUFFERED in state, _UNTOUCHED in state
            self._iterator = iter(self._dataset) if self._buffered else _symbolic(self._dataset)
        with tempfile.TemporaryDirectory(prefix="deepfreeze-iterator-") as folder:
            for name, data in state.items():
                (Path(folder) / Path(name).name).write_bytes(data)
            try:
                _checkpoint(self._iterator).read(str(Path(folder) / _PREFIX)).assert_consumed()
            except Exception as error:
                raise OptionError(
                    where="IteratorState",
                    expected="the pipeline whose state the checkpoint has",
                    found=str(error).strip().split("\n")[0][:300],
                    todo="build the dataset as the job did that wrote the checkpoint",
                ) from error


def _symbolic(dataset: Any) -> Any:
    """An iterator over ``dataset`` of which TensorFlow saves where each part is, if all of its parts know that."""
    options = sys.modules["tensorflow"].data.Options()
    options.experimental_symbolic_checkpoint = True
    return iter(dataset.with_options(options))


def _can_be_saved(iterator: Any) -> bool:
    """True if TensorFlow can save this ``iterator``, of which an element was read."""
    with tempfile.TemporaryDirectory(prefix="deepfreeze-iterator-") as folder:
        try:
            _checkpoint(iterator).write(str(Path(folder) / _PREFIX))
        except (sys.modules["tensorflow"].errors.OpError, ValueError):
            return False
    return True


def _checkpoint(iterator: Any) -> Any:
    return sys.modules["tensorflow"].train.Checkpoint(iterator=iterator)
