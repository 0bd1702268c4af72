"""The Horovod job that the tests here share."""

from collections.abc import Iterator

import pytest

from tests.support.horovod import Horovod, horovod


@pytest.fixture(scope="session")
def two(testing_library) -> Iterator[Horovod]:
    """Two ranks that take cases; their engines' system calls can be made to fail."""
    with horovod(2, DEEPFREEZE_LIBRARY=testing_library) as job:
        yield job
