"""``.keras``: the archive that Keras 3 and tf_keras make of a whole model, and open again.

Three members, stored and not compressed, as Keras does it: what made it (``metadata.json``), how to build the model
(``config.json``, see ``state/model_config``), and the checkpoint's model file.
"""

from __future__ import annotations

import json
import zipfile
from datetime import datetime
from typing import BinaryIO

from deepfreeze.exports.weights_file import pieces
from deepfreeze.format.manifest import Manifest
from deepfreeze.format.names import MODEL_FILE
from deepfreeze.inspect.verify import OnProgress
from deepfreeze.store.run import Run

_ZIP64_FROM = 1 << 31  # from here on sizes need the larger fields, which have to be announced


def write(run: Run, step: int, file: BinaryIO, progress: OnProgress) -> None:
    """Writes the archive. NotFoundError if the model's configuration was not stored, CorruptError naming the first damage."""
    manifest = run.manifest(step)
    config = run.config(manifest.attempt)
    created = datetime.fromisoformat(manifest.created.removesuffix("Z"))
    metadata = {
        "keras_version": run.structure(manifest.structure).framework["keras"],
        "date_saved": created.strftime("%Y-%m-%d@%H:%M:%S"),
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_member("metadata.json", manifest), json.dumps(metadata))
        archive.writestr(_member("config.json", manifest), config.text)
        large = manifest.file_size >= _ZIP64_FROM
        with archive.open(_member(MODEL_FILE, manifest), "w", force_zip64=large) as part:
            for piece in pieces(run, step, progress):
                part.write(piece)


def _member(name: str, manifest: Manifest) -> zipfile.ZipInfo:
    """Dated like the checkpoint, so that the same one gives the same bytes."""
    created = datetime.fromisoformat(manifest.created.removesuffix("Z"))
    made = zipfile.ZipInfo(name, max((1980, 1, 1, 0, 0, 0), created.timetuple()[:6]))
    made.external_attr = 0o644 << 16
    return made
