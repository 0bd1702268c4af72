"""Every Keras that is here: each test that asks for ``keras`` is run with each."""

import pytest

from tests.support import kerases


@pytest.fixture(params=kerases.NAMES, scope="module")
def keras(request):
    """The package, imported."""
    return pytest.importorskip(request.param)
