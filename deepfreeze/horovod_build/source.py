"""Horovod's sources and its installed Python files, and the corrections that make them work.

The newest Horovod is older than today's TensorFlow and than Open MPI 5. Two corrections belong to the sources: a header that TensorFlow
has moved, and the spelling of two options of ``mpirun``. A third one makes Horovod's Keras follow ``TF_USE_LEGACY_KERAS``; it changes
Python files where they are installed, and needs no build."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

from deepfreeze.errors import InstallError

VERSION = "0.28.1"
# TensorFlow has moved this header; Horovod includes it by the old name. TensorFlow 2.15 still has it.
_FORWARD = "tensorflow/compiler/xla/client/xla_builder.h"
_FORWARD_TEXT = '#pragma once\n#include "tensorflow/compiler/xla/hlo/builder/xla_builder.h"\n'
# Open MPI 5 insists on two dashes; Open MPI 4 takes them too.
_LAUNCHER = "horovod/runner/mpi_run.py"
_OLD_SPELLING, _NEW_SPELLING = "['-bind-to none', '-map-by slot']", "['--bind-to none', '--map-by slot']"
# Horovod imports ``keras``, which is Keras 3 also where a program trains with tf_keras; ``tensorflow.keras`` is what it trains with.
_MENDS = (
    (r"^    from keras import backend as K$", "    K = keras.backend"),
    (r"^import keras$", "from tensorflow import keras"),
    (r"^import keras\.backend as K$", "K = keras.backend"),
)
_MENDED = (
    "tensorflow/keras/__init__.py",
    "tensorflow/keras/callbacks.py",
    "keras/__init__.py",
    "keras/callbacks.py",
    "keras/elastic.py",
)


def unpack(archive: Path, folder: Path) -> Path:
    """Unpacks Horovod's source distribution into ``folder``, corrects the sources, and returns their folder. InstallError if the archive is
    not Horovod's, or of another version."""
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(folder)
        launcher = folder / f"horovod-{VERSION}" / _LAUNCHER
        text = launcher.read_text()
    except (OSError, tarfile.TarError) as error:
        raise _other(archive, f"an archive that can't be unpacked ({error})") from error
    if text.count(_OLD_SPELLING) != 1:
        raise _other(archive, f"{_LAUNCHER} without {_OLD_SPELLING}")
    launcher.write_text(text.replace(_OLD_SPELLING, _NEW_SPELLING))
    return folder / f"horovod-{VERSION}"


def include_folders(tensorflow: Path, folder: Path) -> list[Path]:
    """The folders in which Horovod's build looks for headers besides ``tensorflow``, the folder of TensorFlow's headers. A header that
    TensorFlow has moved gets a forwarding header in ``folder``."""
    external = tensorflow / "external"
    found = [path for path in (external / "highwayhash", external / "farmhash_archive" / "src") if path.is_dir()]
    if not (tensorflow / _FORWARD).exists():
        forward = folder / _FORWARD
        forward.parent.mkdir(parents=True, exist_ok=True)
        forward.write_text(_FORWARD_TEXT)
        found.insert(0, folder)
    return found


def mend(package: Path) -> None:
    """Makes the Keras of an installed Horovod follow ``TF_USE_LEGACY_KERAS``. ``package``: Horovod's folder. A Horovod that is mended
    already stays as it is. InstallError if the files are not Horovod's, or can't be written."""
    for name in _MENDED:
        file = package / name
        try:
            text = before = file.read_text()
            for old, new in _MENDS:
                text = re.sub(old, new, text, flags=re.MULTILINE)
            if "tensorflow import keras" not in text:
                raise _other(file, "a file that does not import keras")
            if text != before:
                file.write_text(text)
        except OSError as error:
            raise _other(file, error.strerror or str(error)) from error


def _other(where: Path, found: str) -> InstallError:
    expected = f"a file of Horovod {VERSION} that can be corrected"
    return InstallError(where=where, expected=expected, found=found, todo=f"take Horovod {VERSION} as PyPI has it")
