"""The section ``auto`` of plan.json: what is written is read, and nothing else is."""

import json
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from deepfreeze.errors import CorruptError
from deepfreeze.plan.auto_section import REASONS, AutoSection, Conditions, Decided, Window
from deepfreeze.plan.checkfreq import Bounds, Profile, algorithm_1
from tests.support.plans import SECTION
from tests.support.properties import holds

SECONDS = st.floats(0.0, 1e9)
STEPS = st.integers(1, 2**62)
RANKS = st.integers(0, 2**32 - 1)
AT = st.integers(0, 2**63 - 1)
OVERHEADS = st.tuples(*3 * [st.floats(-1e18, 1e18)]).map(sorted)
SECTIONS = st.builds(
    AutoSection,
    conditions=st.builds(
        Conditions,
        structure=st.integers(0, 2**256 - 1).map("{:064x}".format),
        world_size=st.integers(1, 2**32),
        cores=st.floats(0.01, 1e6),
        tier=st.text("abc-", min_size=1),
    ),
    overhead=st.floats(1e-9, 1.0),
    mtbf=st.none() | st.floats(1e-9, 1e9),
    uncommitted=st.integers(1, 100),
    interval=STEPS,
    step=AT,
    reason=st.sampled_from(REASONS),
    rank=RANKS,
    profile=st.builds(
        Profile,
        iteration=st.floats(1e-9, 1e9),
        update=SECONDS,
        copy=SECONDS,
        persist=SECONDS,
        nbytes=AT,
        device_copy=st.none() | SECONDS,
        device_used=AT,
        device_size=AT,
        cost=st.none() | SECONDS,
    ),
    terms=st.builds(
        Bounds,
        by_commit=STEPS,
        by_budget=STEPS,
        by_failures=st.none() | STEPS,
        mode=st.sampled_from(["device", "host"]),
        cost=SECONDS,
    ),
    decisions=st.lists(
        st.builds(Decided, step=AT, before=st.none() | STEPS, after=STEPS, reason=st.sampled_from(REASONS), rank=RANKS),
        max_size=3,
    ).map(tuple),
    windows=st.lists(
        st.builds(lambda step, interval, at: Window(step, interval, at[1], at[0], at[2]), AT, STEPS, OVERHEADS),
        max_size=3,
    ).map(tuple),
)
NONSENSE = [None, True, "", "two", -1, 0, 2**63, 1e999, -1e999, 10**400, float("nan"), 1.5, [], {}, [1], [{}], {"a": 1}]


def places(value):
    """The path of each member, in objects and in lists."""
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        yield (key,)
        if isinstance(child, (dict, list)):
            yield from ((key, *rest) for rest in places(child))


def changed(value, path, other):
    """A copy of ``value`` with ``other`` at ``path``; without the member if ``other`` is ``places``."""
    made = json.loads(json.dumps(value))
    node = made
    for key in path[:-1]:
        node = node[key]
    if other is places:
        del node[path[-1]]
    else:
        node[path[-1]] = other
    return made


@holds(examples=25, section=SECTIONS)
def test_a_section_is_read_as_it_was_written(section):
    assert AutoSection.from_json(json.loads(json.dumps(section.to_json(), allow_nan=False))) == section


@holds(
    examples=25,
    section=SECTIONS,
    overhead=st.floats(0.001, 1.0),
    uncommitted=st.integers(1, 8),
    mtbf=st.floats(1.0, 1e9),
)
def test_whatever_profile_is_read_gives_an_interval(section, overhead, uncommitted, mtbf):
    assert 1 <= algorithm_1(section.profile, overhead, uncommitted, mtbf).interval <= 2**62


@pytest.mark.parametrize("path", list(places(SECTION.to_json())), ids=lambda path: ".".join(map(str, path)))
def test_nothing_but_a_section_is_read(path):
    """A value of another type or beyond its bounds is refused, and so is a member too many or too few. A value that is valid in a member's
    place is read as what it is."""
    whole = SECTION.to_json()
    for other in NONSENSE:
        made = changed(whole, path, other)
        try:
            found = AutoSection.from_json(made)
        except CorruptError as error:
            assert len(str(error)) < 400 and str(error).startswith("plan.json: expected auto.")
        else:
            assert found.to_json() == made
    if isinstance(path[-1], str):
        with pytest.raises(CorruptError):
            AutoSection.from_json(changed(whole, path, places))
        with pytest.raises(CorruptError):
            AutoSection.from_json(changed(whole, (*path[:-1], "more"), 1))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("overhead", 0.0), ("overhead", 1.01), ("overhead", True), ("mtbf", 0.0), ("mtbf", 2e9), ("interval", 0), ("interval", True),
        ("uncommitted", 0), ("key.cores", 0.0), ("key.world_size", 0), ("profile.iteration", 0.0), ("profile.cost", -1.0),
        ("profile.cost", False), ("terms.by_budget", 0), ("terms.mode", "gpu"), ("windows.0.low", 0.042), ("windows.0.high", 0.040),
        ("decisions.0.reason", "why"), ("decisions.0.after", 2**62 + 1),
    ],
)  # fmt: skip
def test_a_value_that_no_training_has_is_refused(path, value):
    keys = [int(key) if key.isdigit() else key for key in path.split(".")]
    with pytest.raises(CorruptError, match=rf"auto\.\S*{keys[-1]} to be "):
        AutoSection.from_json(changed(SECTION.to_json(), keys, value))


def test_a_section_has_the_newest_of_a_long_history():
    decisions = tuple(Decided(step, 2, 3, "copy", 0) for step in range(300))
    windows = tuple(Window(step, 2, 0.1, 0.0, 0.2) for step in range(600))
    found = AutoSection.from_json(replace(SECTION, decisions=decisions, windows=windows).to_json())
    assert found.decisions == decisions[-200:] and found.windows == windows[-500:]


@pytest.mark.parametrize("name", ["decisions", "windows"])
def test_a_history_that_is_too_long_is_refused(name):
    whole = SECTION.to_json()
    with pytest.raises(CorruptError, match=f"auto.{name} to have at most"):
        AutoSection.from_json(whole | {name: whole[name][:1] * 501})


def test_the_last_step_is_the_newest_overheads_or_the_decisions():
    assert SECTION.last_step == 74 and replace(SECTION, windows=()).last_step == 62
    assert replace(SECTION, windows=SECTION.windows[:1]).last_step == 62


def test_the_first_difference_of_conditions_is_told():
    before = Conditions("a" * 64, 4, 2.0, "memory")
    assert before.difference(replace(before)) is None
    said = {
        "the model or its optimizer has other tensors than before": {"structure": "b" * 64, "world_size": 2},
        "the number of ranks was 4 and is 2": {"world_size": 2, "cores": 1.0},
        "the number of cores of a rank was 2 and is 1.5": {"cores": 1.5, "tier": "none"},
        "the local tier was memory and is none": {"tier": "none"},
    }
    for text, other in said.items():
        assert before.difference(replace(before, **other)) == text
