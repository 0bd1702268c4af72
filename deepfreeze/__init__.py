"""DeepFreeze: checkpoints of Keras/TensorFlow training, as often as every step, at almost no cost.

    model.fit(x, y, callbacks=[..., deepfreeze.Checkpoint("runs/nt3", every=15)])

Importing this package imports neither TensorFlow nor the native engine: reading checkpoints needs numpy and h5py only. (Checksums are
faster with google-crc32c, and the command line draws its tables with rich.)
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from deepfreeze.errors import (
    CorruptError,
    EngineError,
    Error,
    LockedError,
    MissingError,
    NotFoundError,
    OptionError,
    RunError,
    StructureError,
    UnsupportedError,
    WaitError,
    WorldError,
)
from deepfreeze.exports.export import export
from deepfreeze.format.run_file import Parent
from deepfreeze.frameworks.table import require_installed
from deepfreeze.reuse.report import TransferReport
from deepfreeze.reuse.transfer import transfer
from deepfreeze.store.catalog import CheckpointInfo, checkpoints, latest
from deepfreeze.thaw.read import read
from deepfreeze.thaw.restore import restore

if TYPE_CHECKING:
    from deepfreeze.engine.options import Engine
    from deepfreeze.events.checkpoint_warning import CheckpointWarning
    from deepfreeze.events.stats import Stats
    from deepfreeze.frameworks.tensorflow.distributed import AverageMetrics, BroadcastState, DistributedOptimizer
    from deepfreeze.freeze.settings import Replicas
    from deepfreeze.training.keras_callback import Checkpoint
    from deepfreeze.training.loop import capture
    from deepfreeze.training.options import Capture

__version__ = "0.1.0"

# Loaded on first use: these import TensorFlow, Horovod or the engine.
_LAZY = {
    "Checkpoint": "deepfreeze.training.keras_callback",
    "capture": "deepfreeze.training.loop",
    "Capture": "deepfreeze.training.options",
    "Engine": "deepfreeze.engine.options",
    "Replicas": "deepfreeze.freeze.settings",
    "CheckpointWarning": "deepfreeze.events.checkpoint_warning",
    "Stats": "deepfreeze.events.stats",
    "AverageMetrics": "deepfreeze.frameworks.tensorflow.distributed",
    "BroadcastState": "deepfreeze.frameworks.tensorflow.distributed",
    "DistributedOptimizer": "deepfreeze.frameworks.tensorflow.distributed",
}

_TRAINING = ("Checkpoint", "capture")  # they need a framework, whose package they load when they know the model

# The packages that may be missing, and what pip is told.
_INSTALLED_BY = {"tensorflow": '"tensorflow>=2.15"', "keras": "keras", "tf_keras": "tf-keras"}

__all__ = [
    "AverageMetrics",
    "BroadcastState",
    "Capture",
    "Checkpoint",
    "CheckpointInfo",
    "CheckpointWarning",
    "CorruptError",
    "DistributedOptimizer",
    "Engine",
    "EngineError",
    "Error",
    "LockedError",
    "MissingError",
    "NotFoundError",
    "OptionError",
    "Parent",
    "Replicas",
    "RunError",
    "Stats",
    "StructureError",
    "TransferReport",
    "UnsupportedError",
    "WaitError",
    "WorldError",
    "capture",
    "checkpoints",
    "export",
    "latest",
    "read",
    "restore",
    "transfer",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        try:
            if name in _TRAINING:
                require_installed()
            return getattr(importlib.import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in _INSTALLED_BY:
                raise
            raise MissingError(
                where=f"deepfreeze.{name}",
                expected="TensorFlow with its Keras, to train with",
                found=f"no package {missing} in {sys.prefix}",
                todo=f"install it: pip install {_INSTALLED_BY[missing]}. Reading checkpoints needs neither",
            ) from None
    if name in ("data", "events"):
        return importlib.import_module(f"deepfreeze.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
