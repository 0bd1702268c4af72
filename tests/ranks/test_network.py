"""Ranks on a network file system, each a client of its own with a cache of bytes and names (native/testing/nfs_env.h)."""

from pathlib import Path

import pytest

from tests.support import processes

pytestmark = pytest.mark.timing


def test_the_client_of_a_network_file_system_is_what_its_header_says(testing_library):
    processes.run([Path(testing_library).with_name("nfs_env_test")], check=True, timeout=300)


def test_a_network_file_system_loses_no_bytes_and_delays_no_verdict(testing_library):
    """On a network file system no bytes are lost, and all ranks learn of a commit at once."""
    processes.run([Path(testing_library).with_name("network_test")], check=True, timeout=300)
