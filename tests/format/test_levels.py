"""The one table of levels, held against the C enum and against all that is named after a level."""

import inspect

import deepfreeze
import veloc_bindings
from deepfreeze.events import event
from deepfreeze.format.levels import LEVELS, Level
from deepfreeze.training.options import Options
from tests.bindings.test_table import enum


def test_the_table_has_the_names_and_numbers_of_the_c_enum():
    assert {f"DF_{level.name}": int(level) for level in Level} == enum("df_level")
    assert list(Level) == sorted(Level), "a higher level implies the lower ones"


def test_the_bindings_have_the_same_numbers():
    assert [getattr(veloc_bindings, level.name) for level in Level] == list(Level)


def test_every_level_has_an_event_of_its_name():
    kinds = {name.lower() for name, one in vars(event).items() if inspect.isclass(one)}
    assert list(LEVELS) == ["captured", "local", "external"] and set(LEVELS) <= kinds


def test_training_can_wait_for_every_level_and_says_which_there_are():
    for label in LEVELS:
        assert Options.of(wait_for=label).wait_for == label
    try:
        Options.of(wait_for="disk")
    except deepfreeze.OptionError as error:
        assert error.expected == "one of 'captured', 'local', 'external'"
