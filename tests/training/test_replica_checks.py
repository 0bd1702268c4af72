"""How often the ranks' replicas are compared. What comes of it is tested in tests/horovod/test_agreement.py."""

import keras
import pytest

import deepfreeze
from deepfreeze.freeze.saver import Saver
from tests.support import trainings

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("options", "captures", "compared"),
    [
        ({}, 5, [1, 2]),
        ({"every": 3}, 8, [1, 2, 4, 7]),
        pytest.param({"every": 1}, 3, [1, 2, 3], marks=pytest.mark.full),
        ({"every": None}, 3, []),
    ],
)
def test_replicas_are_compared_at_two_captures_and_every_kth_or_never(
    tmp_path, monkeypatch, options, captures, compared
):
    """Replicas are compared at the first two captures; if the user asks for it, also at every k-th one, or never."""
    asked, save = [], Saver.save

    def noted(self, step, captured, compare=False):
        asked.append(compare)
        save(self, step, captured, compare)

    monkeypatch.setattr(Saver, "save", noted)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=1, replicas=deepfreeze.Replicas(**options))
    trainings.dense(keras).fit(trainings.data(captures), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert len(asked) == captures
    assert [number for number, compare in enumerate(asked, 1) if compare] == compared
