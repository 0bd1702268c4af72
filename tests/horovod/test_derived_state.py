"""Objects that derive state from their variables, on two ranks: restored, and broadcast from rank 0."""

import pytest

from tests.support import kerases

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow, pytest.mark.full]


@pytest.mark.parametrize("api", kerases.NAMES)
def test_two_ranks_derive_what_one_has_and_rank_0_tells_of_vocabularies(two, api, tmp_path):
    (wrong, warnings), (wrong_1, warnings_1) = two.run("derived", api=api, folder=tmp_path)
    assert wrong == wrong_1 == warnings_1 == []
    assert len(warnings) == 1 and "rank 1 has another vocabulary than rank 0 in layer 'words'" in warnings[0]
