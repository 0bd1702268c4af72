"""The memory of captures is touched beforehand (native/testing/touch_test.cc)."""

from pathlib import Path

from tests.support import processes


def test_memory_is_touched_in_pieces_for_which_nobody_waits_long(testing_library):
    """Memory is touched in small pieces: no other thread waits for the whole, and closing ends it between two pieces."""
    processes.run([Path(testing_library).with_name("touch_test")], check=True, timeout=300)
