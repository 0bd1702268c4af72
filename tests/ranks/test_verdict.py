"""Whether a step is committed: rank 0 decides, every rank finds out by looking (native/testing/verdict_test.cc)."""

from pathlib import Path

import pytest

from tests.support import processes

pytestmark = pytest.mark.timing


def test_no_two_ranks_contradict_each_other_whatever_call_fails(testing_library):
    """No two ranks say the opposite of each other, whatever call answers with an error."""
    processes.run([Path(testing_library).with_name("verdict_test")], check=True, timeout=300)
