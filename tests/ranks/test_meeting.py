"""Where the ranks meet: how they learn what rank 0 has decided, and what that costs with many ranks."""

from pathlib import Path

import pytest

from tests.support import processes


@pytest.mark.slow
def test_looks_of_a_rank_do_not_grow_with_the_ranks(testing_library):
    """Ranks other than 0 list nothing, and in all as many names are read as there are ranks (native/testing/meeting_test.cc)."""
    done = processes.run(
        [Path(testing_library).with_name("meeting_test")], check=True, timeout=300, stdout=-1, text=True
    )
    print(done.stdout)
    assert "1024 ranks:" in done.stdout


def test_pauses_between_looks_follow_the_usual_time(testing_library):
    processes.run([Path(testing_library).with_name("pauses_test")], check=True, timeout=300)
