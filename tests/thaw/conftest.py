"""Every Keras that is here, as tests/trainings has it."""

import pytest

from tests.support import kerases


@pytest.fixture(params=kerases.NAMES, scope="module")
def api(request):
    """The package, imported."""
    return pytest.importorskip(request.param)
