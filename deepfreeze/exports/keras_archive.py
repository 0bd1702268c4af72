"""``.keras``: the archive in which Keras 3 and tf_keras save a whole model.

It is a zip file with three members, not compressed: ``metadata.json`` (Keras's version and the date), ``config.json`` (from which Keras
builds the model, see ``state/model_config``), and the checkpoint's model file.
"""

from __future__ import annotations

import json
import zipfile
from datetime import datetime
from typing import BinaryIO

from deepfreeze.exports.weights_file import checked_chunks
from deepfreeze.format.manifest import Manifest
from deepfreeze.format.names import MODEL_FILE
from deepfreeze.inspect.verify import OnProgress
from deepfreeze.store.run import Run

_ZIP64_FROM = (
    1 << 31
)  # bytes: a larger member needs zip64's larger size fields, and must ask for them before it is written


def write(run: Run, step: int, file: BinaryIO, progress: OnProgress) -> None:
    """Writes the archive. NotFoundError if the model's configuration was not stored, CorruptError naming the first damaged bytes: what
    was written up to then is no valid archive."""
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
        with archive.open(_member(MODEL_FILE, manifest), "w", force_zip64=large) as member:
            for chunk in checked_chunks(run, step, progress):
                member.write(chunk)


def _member(name: str, manifest: Manifest) -> zipfile.ZipInfo:
    """The header of a member. Its date is the checkpoint's, so that every export of a checkpoint has the same bytes."""
    created = datetime.fromisoformat(manifest.created.removesuffix("Z"))
    header = zipfile.ZipInfo(name, max((1980, 1, 1, 0, 0, 0), created.timetuple()[:6]))
    header.external_attr = 0o644 << 16
    return header
