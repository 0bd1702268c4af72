"""Output that goes into a pipe: as wide as it needs, whatever the terminal of whoever runs the tests."""

import pytest


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
