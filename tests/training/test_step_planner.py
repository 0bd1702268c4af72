"""The user hears of the plan of a step that ``Capture(profile=True)`` has asked for."""

from __future__ import annotations

import pytest

from deepfreeze.events.event import Notice
from deepfreeze.events.events import Events, as_listener
from deepfreeze.training.step_planner import tell


@pytest.mark.parametrize(
    ("level", "verbose", "said"), [("info", True, True), ("info", False, False), ("warning", True, False)]
)
def test_the_plan_of_a_step_is_a_line_where_lines_are_asked_for(level, verbose, said):
    heard: list[Notice] = []
    listener = as_listener(heard.append)
    assert listener is not None
    tell(Events([listener]), level, "a planned step would hold 3 MB", speaks=verbose)
    (notice,) = heard
    assert (notice.message, notice.said) == ("a planned step would hold 3 MB", said)
    assert said or notice.level == level
