"""The retention rules, and the function that asks them. Pure: no run, no engine."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import pytest
from hypothesis import strategies as st

from deepfreeze.errors import OptionError
from deepfreeze.store import Best, Epochs, Latest, Rule, Spaced, Tagged
from deepfreeze.store.retention import Committed, History, is_late, judge, metrics_of, text_of
from deepfreeze.store.rules import as_rule
from tests.support.properties import TIMES, holds


def history(*checkpoints, resumed=None) -> History:
    """Of steps, or of ``Committed``."""
    made = (one if isinstance(one, Committed) else Committed(one) for one in checkpoints)
    return History(tuple(made), resumed)


def measured(step, **metrics) -> Committed:
    return Committed(step, metrics=metrics, measured=step)


def kept(rule, *checkpoints, resumed=None, pending=0) -> list[int]:
    found = judge(history(*checkpoints, resumed=resumed), rule, pending)
    assert sorted([*found.keep, *found.remove]) == [one.step for one in history(*checkpoints).checkpoints]
    return list(found.keep)


def test_a_number_is_that_many_of_the_newest():
    assert as_rule(2) == Latest(2)
    assert judge(history(10, 20, 30), as_rule(2)).keep == {20: "newest 2", 30: "newest 2"}
    assert kept(Latest(1), 10, 20, 30) == [30] and kept(Latest(9), 10, 20) == [10, 20] and kept(Latest(1)) == []


def test_a_checkpoint_stays_if_any_rule_wants_it():
    rule = Latest(1) | Tagged() | Best("loss", "min")
    there = (measured(10, loss=0.5), Committed(20, tags=("paper", "v2")), measured(30, loss=0.031), 40, 50)
    assert judge(history(*there), rule).keep == {20: "tag paper, tag v2", 30: "best loss 0.031", 50: "newest"}
    assert judge(history(measured(10, loss=1.0)), rule).keep == {10: "newest; best loss 1"}


def test_spaced_keeps_the_closest_to_each_multiple():
    assert kept(Spaced(steps=100), 15, 90, 105, 140, 160, 230, 250, 380) == [105, 230, 250, 380]
    assert kept(Spaced(steps=100), 100, 200, 300, 301) == [100, 200, 300, 301]
    there = [Committed(step, time=3600 * 1000 + seconds) for step, seconds in ((1, 0), (2, 1700), (3, 3500), (4, 3700))]
    assert kept(Spaced(seconds=3600), *there) == [1, 3, 4]  # 3 and 4 are as near: the older one; 4 is the newest


@pytest.mark.parametrize("rule", [Spaced(steps=70), Spaced(seconds=60)], ids=["steps", "seconds"])
def test_spaced_keeps_the_same_ones_when_asked_after_each_commit(rule):
    """What was removed meanwhile is not missed at the end."""
    everything = [Committed(step, time=step * 7) for step in range(13, 900, 13)]
    there: list[Committed] = []
    for one in everything:
        verdict = judge(history(*there, one), rule)
        there = [old for old in (*there, one) if old.step in verdict.keep]
    assert [one.step for one in there] == kept(rule, *everything)


def test_epochs_keeps_every_nth_epochs_newest():
    there = [Committed(10 * number, epoch=number if number % 2 else None) for number in range(1, 8)]
    assert kept(Epochs(), *there) == [10, 30, 50, 70] and kept(Epochs(5), *there) == [50, 70]
    assert judge(history(*there), Epochs(5)).keep[50] == "epoch 5"


def test_best_ranks_by_the_metric_and_leaves_out_what_is_no_number():
    there = [
        measured(1, acc=0.5),
        measured(2, acc=math.nan),
        measured(3, acc=0.9),
        measured(4, acc=0.9),
        measured(5),
        6,
    ]
    assert judge(history(*there), Best("acc", "max", 2)).keep == {
        3: "best acc 0.9", 4: "number 2 by acc 0.9", 6: "newest",
    }  # fmt: skip
    assert kept(Best("acc", "min"), *there) == [1, 6]


def test_latest_keeps_the_newest_of_those_that_another_rule_wants():
    there = [Committed(10 * number, epoch=number, metrics={"loss": 1 / number}) for number in range(1, 8)]
    rule = Latest(2, of=Epochs(2)) | Best("loss", "max")
    assert judge(history(*there), rule).keep == {10: "best loss 1", 40: "epoch 4", 60: "epoch 6", 70: "newest"}
    assert kept(Latest(3, of=Spaced(steps=20)), *there) == [40, 60, 70] and kept(Latest(9, of=Epochs(4)), 10, 20) == [
        20
    ]
    assert is_late(Latest(1, of=Epochs(2))) and not is_late(Latest(1, of=Spaced(steps=2))) and not is_late(Latest(1))
    assert metrics_of(Latest(2, of=Best("loss", "min"))) == ("loss",) and metrics_of(Latest(2)) == ()


def test_what_a_late_rule_may_want_waits_but_not_for_ever():
    there = [replace(Committed(step), awaited=step != 30) for step in (10, 20, 30, 40, 50)]
    assert kept(Best("loss", "min"), *there, pending=2) == [40, 50]
    assert judge(history(*there), Epochs(1), 3).keep[20] == "its metrics may come"
    assert kept(Latest(1), *there, pending=2) == [50]  # a rule that never wants late
    assert kept(Best("loss", "min"), *there, pending=0) == [50]


def test_what_training_needs_stays_whatever_the_rule_says():
    differ = [Committed(10), Committed(20), *(Committed(step, diverged=True) for step in (30, 40))]
    assert judge(history(*differ), Tagged()).keep == {20: "newest whose ranks agreed", 40: "newest"}
    assert judge(history(10, 20, 30, resumed=20), Tagged()).keep[20] == "resumed from it"
    assert kept(Tagged(), 10, 20, 30, 40, resumed=20) == [40] and kept(Tagged(), 10, 20, resumed=5) == [20]


def test_a_rule_of_the_users_own_joins_the_others():
    class Odd:
        metrics = ("f1",)

        def wants(self, history):
            return {one.step: "odd" for one in history.checkpoints if one.step % 2} | {999: "not there"}

    for rule in (Odd() | Latest(1), Latest(1) | Odd()):
        assert kept(rule, 1, 2, 3, 4) == [1, 3, 4] and metrics_of(rule) == ("f1",)
    assert "0x" not in text_of(Odd()) and text_of(Odd()).endswith("Odd()")
    assert as_rule(own := Odd()) is own


def test_two_rules_of_the_users_own_are_joined_if_one_is_a_rule():
    class Odd(Rule):
        def wants(self, history):
            return {one.step: "odd" for one in history.checkpoints if one.step % 2}

    @dataclass(frozen=True)
    class Every(Rule):
        n: int
        late = True

        def wants(self, history):
            return {one.step: f"every {self.n}" for one in history.checkpoints if one.step % self.n == 0}

    class Second:
        def wants(self, history):
            return {2: "the second"}

    assert kept(Odd() | Every(4), 1, 2, 3, 4, 6) == [1, 3, 4, 6]
    assert kept(Second() | Odd(), 1, 2, 3, 4) == [1, 2, 3, 4] and kept(Every(4) | Second(), 2, 3, 4, 5) == [2, 4, 5]
    assert text_of(Odd() | Every(4)).endswith(".Every(n=4)") and text_of(Odd()) == "Odd()"
    assert is_late(Odd() | Every(4)) and not is_late(Odd())


def test_a_rule_is_the_same_text_on_every_rank():
    rule = Latest(2) | Spaced(steps=1000) | Spaced(seconds=3600) | Epochs(5) | Best("val_loss", "min", 3) | Tagged()
    assert text_of(rule) == (
        "Latest(2) | Spaced(steps=1000) | Spaced(seconds=3600) | Epochs(5) | Best('val_loss', 'min', 3) | Tagged()"
    )
    assert text_of(Latest(3, of=Epochs(5) | Tagged())) == "Latest(3, of=Epochs(5) | Tagged())"


@pytest.mark.parametrize(
    "wrong", [0, -1, 1.5, True, "2", None, Latest, [Latest(2)], object()], ids=lambda one: type(one).__name__
)
def test_what_is_no_rule_is_refused(wrong):
    with pytest.raises(OptionError, match=r"keep=: expected a whole number.*or a rule"):
        as_rule(wrong)


@pytest.mark.parametrize("named", ["best", "Best", Best], ids=["best", "Best", "class"])
def test_the_name_of_a_rule_is_answered_with_the_rule_and_its_import(named):
    with pytest.raises(OptionError) as caught:
        as_rule(named)
    written, line = caught.value.todo.removeprefix("pass ").split(", for example: ")
    scope = {}
    exec(line, scope)
    assert eval(written, scope) == Latest(2) | Best("val_loss", "min")
    with pytest.raises(OptionError, match=r"found 'best'.*from deepfreeze.store import Best, Latest"):
        Latest(2) | "best"


def test_the_other_rules_and_numbers_in_quotes_are_answered_alike():
    for named, rule in (("epoch", "Epochs(1)"), ("latest", "Latest(2)"), ("tagged", "Tagged()"), ("spaced", "Spaced")):
        with pytest.raises(OptionError, match=re.escape(rule)):
            as_rule(named)
    with pytest.raises(OptionError, match="Pass the number itself: 3"):
        as_rule("3")


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: Latest(0), "Latest: expected a whole number"),
        (lambda: Latest(2, of="epoch"), r"Latest\(of=\): expected a whole number from 1 to 2147483647, or a rule"),
        (lambda: Epochs(1.5), "Epochs: expected a whole number"),
        (lambda: Spaced(), "one of the two; found \\(None, None\\)"),
        (lambda: Spaced(steps=1, seconds=2), "one of the two"),
        (lambda: Spaced(seconds=0), "seconds, 1 or more"),
        (lambda: Best("loss", "lowest"), "Best\\(mode\\): expected 'min' or 'max'; found 'lowest'"),
        (lambda: Best("", "min"), "Best\\(metric\\)"),
        (lambda: Latest(2) | "paper", "or a rule"),
    ],
)
def test_a_rule_with_wrong_arguments_says_so_at_once(make, where):
    with pytest.raises(OptionError, match=where):
        make()


RULES = st.lists(
    st.one_of(
        st.builds(Latest, st.integers(1, 4), of=st.one_of(st.none(), st.builds(Epochs, st.integers(1, 3)))),
        st.builds(lambda steps: Spaced(steps=steps), st.integers(1, 300)),
        st.builds(lambda seconds: Spaced(seconds=seconds), st.integers(1, 5000)),
        st.builds(Epochs, st.integers(1, 3)),
        st.builds(Best, st.sampled_from(["a", "b"]), st.sampled_from(["min", "max"]), st.integers(1, 3)),
        st.just(Tagged()),
    ),
    min_size=1,
    max_size=4,
)
COMMIT = st.fixed_dictionaries(
    {
        "steps": st.integers(1, 120),
        "seconds": st.integers(-500, 4000),  # clocks jump
        "diverged": st.booleans(),
        "tags": st.sampled_from([(), (), (), ("paper",)]),
        "metrics": st.dictionaries(st.sampled_from(["a", "b"]), st.floats(allow_nan=True), max_size=2),
        "epoch": st.one_of(st.none(), st.integers(1, 6)),
        "awaited": st.booleans(),
        "restart": st.sampled_from([False, False, False, True]),
        "back": st.integers(0, 2),
    }
)
# 10,000 histories in the full tier, where TIMES is 20.
EXAMPLES = 500 if TIMES > 1 else 60


@holds(examples=EXAMPLES, rules=RULES, pending=st.integers(0, 4), commits=st.lists(COMMIT, min_size=1, max_size=25))
def test_what_must_never_go_never_goes(rules, pending, commits):
    """Across restarts, from the newest checkpoint or an older one, whose newer ones are abandoned."""
    rule = rules[0]
    for other in rules[1:]:
        rule = rule | other
    there: list[Committed] = []
    resumed, clock = None, 1_700_000_000
    for commit in commits:
        if commit["restart"] and there:
            there = there[: max(1, len(there) - commit["back"])]
            resumed = there[-1].step
        step, clock = (there[-1].step if there else resumed or 0) + commit["steps"], clock + commit["seconds"]
        own = {name: commit[name] for name in ("diverged", "tags", "metrics", "epoch", "awaited")}
        there.append(Committed(step, time=clock, measured=step, **own))
        before = History(tuple(there), resumed)
        verdict = judge(before, rule, pending)
        steps = [one.step for one in there]
        alike = [one.step for one in there if not one.diverged]
        assert set(verdict.remove) == set(steps) - set(verdict.keep) and all(verdict.keep.values())
        assert step in verdict.keep
        assert not alike or alike[-1] in verdict.keep
        assert resumed not in steps or steps.index(resumed) < len(steps) - 2 or resumed in verdict.keep
        assert set(rule.wants(before)) <= set(verdict.keep) if len(rules) > 1 else True
        there = [one for one in there if one.step in verdict.keep]
        assert judge(History(tuple(there), resumed), rule, pending).remove == ()  # a second look removes no more


@pytest.mark.parametrize("metrics", [None, "f1", ("f1", ""), (1,)], ids=["none", "text", "empty", "number"])
def test_a_rule_that_names_its_metrics_wrongly_is_refused_at_once(metrics):
    class Mine:
        def wants(self, history):
            return {}

    rule = Mine()
    rule.metrics = metrics
    with pytest.raises(OptionError, match=r"keep=Mine.metrics: expected a tuple or list of the names of metrics"):
        as_rule(rule)
