import sys
from types import SimpleNamespace

import numpy as np
import pytest


class Sequence:
    """A Keras's class of this name: three batches, which are lists."""

    def __len__(self):
        return 3

    def __getitem__(self, number):
        return [np.full(2, number), np.full(2, -number)]


@pytest.fixture
def sequence(monkeypatch):
    """A ``Sequence`` in a process that has loaded its Keras."""
    monkeypatch.setitem(sys.modules, "keras", SimpleNamespace(utils=SimpleNamespace(Sequence=Sequence)))
    return Sequence()
