"""What the engine refuses becomes an error of ours with something to do."""

import pytest

import veloc_bindings
from deepfreeze.core.errors import EngineError, WaitError
from deepfreeze.freeze.handoff import Handoff
from tests.support.refusals import assert_four_parts
from veloc_bindings import EngineFault

CODES = ("INVALID", "IO", "NO_SPACE", "TIMEOUT", "CORRUPT", "INCOMPLETE", "CLOSED", "DIVERGED")


@pytest.mark.parametrize("code", [*(getattr(veloc_bindings, name) for name in CODES), 99], ids=[*CODES, "unknown"])
def test_every_code_of_the_engine_has_its_advice(code):
    handoff = Handoff.__new__(Handoff)
    handoff._where, handoff._timeout = "runs/nt3", 600.0
    error = handoff.error(EngineFault(code, "rename runs/nt3/x: no"), "to take step 15")
    assert type(error) is (WaitError if code == veloc_bindings.TIMEOUT else EngineError)
    assert_four_parts(error, where="runs/nt3", expected="to take step 15", found="rename runs/nt3/x: no")
    assert "above" not in error.todo and len(error.todo) > 20
