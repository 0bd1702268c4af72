"""Wrong options are refused before anything is touched, with the four parts of a message."""

import pytest

from deepfreeze.errors import OptionError
from deepfreeze.store import Latest
from deepfreeze.training.options import Options


@pytest.mark.parametrize(
    "option",
    [
        {"keep": 0},
        {"keep": -1},
        {"keep": True},
        {"keep": 2.0},
        {"timeout": 0},
        {"resume": "yes"},
        {"wait_for": "disk"},
        {"on_error": "ignore"},
        {"state": "all"},
        {"local": 3},
        {"final": "no"},
    ],
)
def test_a_wrong_value_says_where_expected_found_and_what_to_do(option):
    ((name, value),) = option.items()
    with pytest.raises(OptionError) as caught:
        Options.of(**option)
    assert caught.value.where == f"{name}="
    assert caught.value.found == repr(value)
    assert caught.value.expected and caught.value.todo


def test_an_unknown_option_suggests_a_near_name():
    with pytest.raises(OptionError, match="Did you mean keep="):
        Options.of(kepp=2)


def test_the_defaults_are_valid():
    assert Options.of() == Options(keep=Latest(2))
