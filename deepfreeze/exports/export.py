"""One checkpoint as one file for other programs, in the format that the file's suffix names."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO

from deepfreeze.errors import OptionError, UnsupportedError
from deepfreeze.exports import keras_archive, safetensors, weights_file
from deepfreeze.exports.draft import Draft
from deepfreeze.format.structure import PLAIN_H5
from deepfreeze.inspect.verify import OnProgress
from deepfreeze.store.catalog import CheckpointInfo, describe, use
from deepfreeze.store.run import Run

Write = Callable[[Run, int, BinaryIO, OnProgress], None]

SUFFIXES = (".weights.h5", ".safetensors", ".keras")


def export(
    run: str | os.PathLike[str],
    path: str | os.PathLike[str],
    step: int | None = None,
    *,
    overwrite: bool = False,
    optimizer: bool = False,
    progress: OnProgress | None = None,
) -> CheckpointInfo:
    """Writes a checkpoint (the newest for ``step=None``) to ``path`` and returns which one it was.

    The suffix of ``path`` says how:

    - ``.weights.h5``: the checkpoint's model file as it is, which Keras's ``load_weights`` opens.
    - ``.safetensors``: the weights, trainable or not, by name; with ``optimizer=True`` also the optimizer's variables, the
      metrics' states and rank 0's random seeds. Where the checkpoint is from is in the file's metadata.
    - ``.keras``: a whole model, which ``keras.saving.load_model`` opens; for checkpoints of a job that ran with
      ``Checkpoint(save_config=True)``. As with Keras's own, code of yours must be registered when it is opened, and a tf_keras model
      that Horovod's own optimizer trained is opened with ``compile=False``.

    A checkpoint whose ``layout`` is "plain-h5" (``CheckpointInfo``) has no file that Keras could load: it goes to ``.safetensors``.

    Every byte is checked against its checksum on the way; at most one tensor is in memory. ``path`` is there only when all of
    it is right and on the disk: whatever interrupts the export leaves what was there before. ``progress`` is called with the
    bytes written so far and in all.

    Raises OptionError for another suffix, and for a ``path`` where something is already unless ``overwrite``; NotFoundError if
    there is no such run, checkpoint or stored configuration; CorruptError if the checkpoint is damaged; UnsupportedError for
    a tensor, or a layout, that the format can't hold; RunError if ``path`` can't be written.
    """
    target = Path(path)
    write = _format(target, optimizer)
    opened = Run.open(run)
    _refuse_inside(opened, target)
    with Draft(target, overwrite) as draft:

        def fill(step: int) -> CheckpointInfo:
            draft.clear()
            info = describe(opened, step)
            _refuse_plain(info, target)
            write(opened, step, draft.file, progress or (lambda done, total: None))
            return info

        info = use(opened, step, fill)
        draft.publish()
    return info


def _format(target: Path, optimizer: bool) -> Write:
    suffix = next((suffix for suffix in SUFFIXES if target.name.endswith(suffix)), None)
    if suffix is None or target.name == suffix:
        todo = f"end the path with one of {', '.join(SUFFIXES)}"
        raise OptionError(where=target, expected="a file name that says the format", found=repr(target.name), todo=todo)
    if optimizer and suffix != ".safetensors":
        todo = f"leave optimizer out: {suffix} files always hold all that the checkpoint's model file does"
        raise OptionError(where="optimizer=", expected="a .safetensors file", found=suffix, todo=todo)
    if suffix == ".weights.h5":
        return weights_file.write
    return keras_archive.write if suffix == ".keras" else partial(safetensors.write, everything=optimizer)


def _refuse_plain(info: CheckpointInfo, target: Path) -> None:
    """A file that only looks as if Keras could load it is worse than none."""
    if info.layout == PLAIN_H5 and not target.name.endswith(".safetensors"):
        raise UnsupportedError(
            where=target,
            expected="a checkpoint that Keras can load, for a file with this suffix",
            found=f"{info.run}@{info.step} of layout {PLAIN_H5}: every variable as it is, where Keras has no such file",
            todo="export to .safetensors, or let deepfreeze.restore put the values into the model",
        )


def _refuse_inside(run: Run, target: Path) -> None:
    """With ``overwrite``, a slip of the keyboard must not replace a checkpoint's own file."""
    root, folder = run.path.resolve(), target.absolute().parent.resolve()
    if folder != root and folder.is_relative_to(root):
        todo = "choose a path outside of the run's own directories"
        raise OptionError(where=target, expected="a path that is no part of the run", found=f"one in {root}", todo=todo)
