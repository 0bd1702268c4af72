"""Writes one checkpoint as one file for other programs, in the format that the file's suffix names."""

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

# (run, step, file, progress): writes the checkpoint of a step to a file in one of the formats.
Write = Callable[[Run, int, BinaryIO, OnProgress], None]

SUFFIXES = (".weights.h5", ".safetensors", ".keras")


def export(
    run: str | os.PathLike[str],
    path: str | os.PathLike[str],
    step: int | str | None = None,
    *,
    overwrite: bool = False,
    optimizer: bool = False,
    progress: OnProgress | None = None,
) -> CheckpointInfo:
    """Writes a checkpoint to the file ``path``, and returns the checkpoint's description. ``step``: its step or its
    tag, None for the newest.

    The suffix of ``path`` chooses the format:

    - ``.weights.h5``: the checkpoint's model file as it is, which Keras's ``load_weights`` loads.
    - ``.safetensors``: the weights, trainable or not, by name; with ``optimizer=True`` also the optimizer's variables, the
      metrics' states and rank 0's random seeds. The file's metadata names run, step and framework.
    - ``.keras``: a whole model, which ``keras.saving.load_model`` loads; for a model that Keras can
      describe as JSON, and not of a job that ran with ``save_config=False``. As with files that Keras wrote, classes of your own must be
      registered before the file is loaded, and a tf_keras model that Horovod's own optimizer trained is loaded with ``compile=False``.

    A checkpoint whose ``layout`` is "plain-h5" (``CheckpointInfo``) has no file that Keras can load: export it to ``.safetensors``.

    Every byte is checked against its checksum while it is copied. At most one tensor is in memory. The file gets its name ``path`` only
    when all of it is right and durable: an export that is interrupted leaves what was at ``path`` before. ``progress`` is called
    with (bytes written so far, bytes to write in all).

    Raises OptionError for another suffix, for a ``path`` inside of the run's own directories, and if there is a file at ``path`` and not
    ``overwrite``; NotFoundError if there is no such run, checkpoint or stored configuration; CorruptError if the checkpoint is damaged;
    UnsupportedError for a tensor, or a layout, that the format can't hold; RunError if ``path`` can't be written.
    """
    target = Path(path)
    write = _format(target, optimizer)
    opened_run = Run.open(run)
    _refuse_inside(opened_run, target)
    with Draft(target, overwrite) as draft:

        def fill(step: int) -> CheckpointInfo:
            draft.clear()
            info = describe(opened_run, step)
            _refuse_plain(info, target)
            write(opened_run, step, draft.file, progress or (lambda done, total: None))
            return info

        info = use(opened_run, step, fill)
        draft.publish()
    return info


def _format(target: Path, optimizer: bool) -> Write:
    """The function that writes the format which the target's suffix names. OptionError for another suffix."""
    suffix = next((suffix for suffix in SUFFIXES if target.name.endswith(suffix)), None)
    if suffix is None or target.name == suffix:
        todo = f"end the path with one of {', '.join(SUFFIXES)}"
        raise OptionError(where=target, expected="a file name that says the format", found=repr(target.name), todo=todo)
    if optimizer and suffix != ".safetensors":
        todo = f"leave optimizer out: {suffix} files always have all tensors of the checkpoint's model file"
        raise OptionError(where="optimizer=", expected="a .safetensors file", found=suffix, todo=todo)
    if suffix == ".weights.h5":
        return weights_file.write
    return keras_archive.write if suffix == ".keras" else partial(safetensors.write, everything=optimizer)


def _refuse_plain(info: CheckpointInfo, target: Path) -> None:
    """UnsupportedError for a checkpoint of layout plain-h5 in a format of Keras's: the file would look as if Keras could load it."""
    if info.layout == PLAIN_H5 and not target.name.endswith(".safetensors"):
        raise UnsupportedError(
            where=target,
            expected="a checkpoint that Keras can load, for a file with this suffix",
            found=f"{info.run}@{info.step} of layout {PLAIN_H5}: every variable as it is, where Keras has no such file",
            todo="export to .safetensors, or let deepfreeze.restore put the values into the model",
        )


def _refuse_inside(run: Run, target: Path) -> None:
    """OptionError for a target in a directory of the run: with ``overwrite`` a mistyped path could replace a checkpoint's file."""
    root, folder = run.path.resolve(), target.absolute().parent.resolve()
    if folder != root and folder.is_relative_to(root):
        todo = "choose a path outside of the run's own directories"
        raise OptionError(where=target, expected="a path that is no part of the run", found=f"one in {root}", todo=todo)
