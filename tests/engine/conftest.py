"""What the tests of backends share."""

import pytest

from tests.support import veloc


@pytest.fixture(scope="session")
def stub(tmp_path_factory):
    """The path of the stand-in for VELOC's client library."""
    return veloc.compile_stub(tmp_path_factory.mktemp("veloc"))
