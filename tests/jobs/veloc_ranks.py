"""Case: the training of ranks.py, whose checkpoints VELOC has. ``library``: the path of VELOC's client; ``configuration``: of its file."""

from pathlib import Path

import ranks

from deepfreeze.engine.backends import table as backends
from tests.support import veloc


def run(library, configuration, **training):
    before, backends.DEFAULT = backends.DEFAULT, "veloc"
    backends.TABLE["veloc"] = veloc.kind(Path(library), Path(configuration))
    try:
        return ranks.run(**training)
    finally:
        backends.DEFAULT = before
        del backends.TABLE["veloc"]
