"""Two Horovod ranks whose checkpoints VELOC has."""

import numpy as np
import pytest

from deepfreeze.plan.placement import UNIT
from tests.support import h5, veloc

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


@pytest.mark.full
def test_what_two_ranks_gave_to_veloc_makes_the_file_that_they_held(two, tmp_path):
    stub, configured = veloc.compile_stub(tmp_path), veloc.write_configuration(tmp_path / "veloc")
    training = {"api": "keras", "folder": tmp_path, "steps": 5, "every": 2, "path": "graph"}
    found = two.run("veloc_ranks", library=stub, configuration=configured, **training)
    assert [rank["committed"] for rank in found] == [[2, 4, 5], [2, 4, 5]]
    (attempt,) = veloc.attempts(configured)
    images, torn = veloc.restore(stub, configured, attempt, 2)
    assert [image.header["step"] for image in images] == [5, 5] and not torn
    assert sum(image.header["regions"] for image in images) > 10
    pages = [{offset // UNIT for offset, _ in image.regions} for image in images]
    assert not pages[0] & pages[1], "each rank has its own part of the file"
    file = h5.datasets(veloc.assemble(images, tmp_path / "restored.weights.h5"))
    with np.load(tmp_path / "rank-0.npz") as held:
        assert set(file) <= set(held)
        for path, array in file.items():
            assert array.tobytes() == held[path].tobytes(), path
