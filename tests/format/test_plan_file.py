"""plan.json: its bytes, and sections that this version does not know."""

import json

import pytest
from hypothesis import strategies as st

from deepfreeze.errors import CorruptError, NewerError
from deepfreeze.format.plan_file import MAX_PLAN, PlanFile
from tests.support import configs, files, plans
from tests.support.properties import holds

NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,63}", fullmatch=True)
TEXT = st.text(max_size=5)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=5)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=3)
SECTIONS = st.builds(lambda value, key: {**value, "key": key}, OBJECTS, OBJECTS)


@holds(examples=25, sections=st.dictionaries(NAMES, SECTIONS, max_size=3), name=NAMES, section=SECTIONS)
def test_a_plan_is_read_as_it_was_written_and_other_sections_are_kept(sections, name, section):
    plan = PlanFile.from_bytes(PlanFile(files.RUN_ID, sections).to_bytes(), "x")
    assert (plan.run_id, plan.sections) == (files.RUN_ID, sections)
    found = PlanFile.from_bytes(plan.with_section(name, section).to_bytes(), "x")
    assert found.sections == {**sections, name: section}


def test_the_bytes_are_those_of_the_documented_format():
    assert PlanFile(files.RUN_ID, {"auto": plans.section_json()}).to_bytes() == plans.plan_bytes()


@holds(examples=25, at=st.integers(0, len(plans.plan_bytes()) - 1), other=st.integers(1, 255))
def test_a_change_of_any_byte_is_noticed(at, other):
    data = bytearray(plans.plan_bytes())
    data[at] ^= other
    with pytest.raises(CorruptError):
        PlanFile.from_bytes(bytes(data), "x")


def test_a_newer_version_is_told_from_damage():
    with pytest.raises(NewerError, match="format 2"):
        PlanFile.from_bytes(configs.sign(json.dumps({"format": 2, "what": "else"}).encode()), "x")


@pytest.mark.parametrize(
    "sections",
    [
        {"Auto": {"key": {}}},
        {"": {"key": {}}},
        {"a" * 65: {"key": {}}},
        {"auto\n": {"key": {}}},
        {"auto": {}},
        {"auto": {"key": 1}},
        {"auto": []},
        {"auto": {"key": {}, "a": float("inf")}},
        {"auto": {"key": {}, "a": "x" * MAX_PLAN}},
        {"auto": {"key": {}, "a": object()}},
    ],
    ids=["upper", "empty", "long", "newline", "no-key", "key", "list", "infinite", "large", "object"],
)
def test_what_could_not_be_read_back_is_not_written(sections):
    with pytest.raises(ValueError, match="plan"):
        PlanFile(files.RUN_ID, sections).to_bytes()
