"""Wrong options are refused before anything is touched, with the four parts of a message."""

import pytest

from deepfreeze.engine.options import Engine
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


class Own:
    """An object of the user's."""

    def state_dict(self):
        """Its state."""

    def load_state_dict(self, state):
        """Takes a state."""


class OwnCallback(Own):
    """Its state changes at the ends of epochs."""

    def on_epoch_end(self, epoch, logs=None):
        """As Keras's callbacks have it."""


EarlyStopping = type("EarlyStopping", (), {"__module__": "keras.callbacks", "on_epoch_end": print})
CSVLogger = type("CSVLogger", (), {"__module__": "keras.callbacks", "on_epoch_end": print})


def test_ranks_must_have_the_same_kinds_of_objects_in_extra():
    """They act together by the kinds: a rank without an EarlyStopping would not read the best weights with the others."""
    shared = [
        Options.of(extra={"it": kind()}).shared()["extra"] for kind in (Own, OwnCallback, EarlyStopping, CSVLogger)
    ]
    assert len(set(shared)) == 4 and "'it': 'EarlyStopping'" in shared[2]
    one, other = ({name: Own() for name in names} for names in ("ab", "ba"))
    assert Options.of(extra=one).shared() == Options.of(extra=other).shared()
    assert Options.of(engine=Engine(slots=2)).shared() == Options.of().shared(), "the number that is the default"


def test_names_of_deepfreezes_own_states_are_refused_in_extra():
    with pytest.raises(OptionError, match='do not begin with "deepfreeze/"') as caught:
        Options.of(extra={"mine": Own(), "deepfreeze/data": Own()})
    assert caught.value.where == "extra=" and caught.value.found == "['deepfreeze/data']"
