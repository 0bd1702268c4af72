"""The training state's descriptions of variables, with stand-ins for a model and its variables."""

from types import SimpleNamespace

import pytest

from deepfreeze.errors import UnsupportedError
from deepfreeze.state.training_state import listed_bytes
from tests.support.refusals import assert_four_parts


def variable(name: str, dtype: str, shape: tuple[int, ...]) -> SimpleNamespace:
    return SimpleNamespace(name=f"{name}:0", dtype=SimpleNamespace(name=dtype), shape=shape, assign=None)


def test_the_bytes_of_a_model_are_those_of_the_variables_that_it_lists():
    model = SimpleNamespace(
        variables=[variable("kernel", "float32", (3, 4)), variable("count", "int64", ()), "a table"]
    )
    assert listed_bytes(model) == 48 + 8


def test_a_variable_that_no_checkpoint_can_hold_is_named():
    model = SimpleNamespace(variables=[variable("dense/words", "string", (2,))])
    with pytest.raises(UnsupportedError) as caught:
        listed_bytes(model)
    assert_four_parts(
        caught.value, where="variable dense/words", expected="float32", found="string", todo="keep this variable"
    )
