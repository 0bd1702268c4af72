from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

_here = Path(__file__).resolve().parent
for _folder in (_here.parents[1], _here.parent / "ranks"):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))


@pytest.fixture(scope="session", autouse=True)
def library():
    """The testing library, in this process too: recovery is called from here."""
    from native_build import testing_library

    before = os.environ.get("DEEPFREEZE_LIBRARY")
    os.environ["DEEPFREEZE_LIBRARY"] = str(testing_library())
    yield os.environ["DEEPFREEZE_LIBRARY"]
    if before is None:
        del os.environ["DEEPFREEZE_LIBRARY"]
    else:
        os.environ["DEEPFREEZE_LIBRARY"] = before
