"""Fixtures that several folders of tests share."""

import pytest

from tests.support import native


@pytest.fixture(scope="session")
def testing_library() -> str:
    """Path of the engine whose system calls can be made to fail, delay or kill (built on first use)."""
    return str(native.testing_library())


@pytest.fixture
def library(testing_library, monkeypatch):
    """This process, and those it starts, use that engine."""
    monkeypatch.setenv("DEEPFREEZE_LIBRARY", testing_library)
    monkeypatch.setattr("veloc_bindings._library._loaded", None)
    return testing_library
