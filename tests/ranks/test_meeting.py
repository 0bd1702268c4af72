"""Where the ranks meet: how they learn what rank 0 has decided, and what that costs with many ranks."""

from pathlib import Path

import pytest

from tests.support import processes


@pytest.mark.slow
def test_ranks_other_than_rank_0_list_nothing(testing_library):
    """They learn what rank 0 has decided from two names, also late, and when the step is gone already (meeting_test.cc)."""
    processes.run([Path(testing_library).with_name("meeting_test")], check=True, timeout=300)


def test_pauses_between_looks_follow_the_usual_time(testing_library):
    processes.run([Path(testing_library).with_name("pauses_test")], check=True, timeout=300)
