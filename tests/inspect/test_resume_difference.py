"""What differs between two trainings' last checkpoints, and the likely cause."""

import numpy as np
import pytest

from deepfreeze.format import attachment_tree, state_tree
from deepfreeze.format.position import Position
from deepfreeze.inspect.rank_states import EXTRA, RNG, SEED, StateChange, _attached, changed_states
from deepfreeze.inspect.resume_difference import Difference, unrepeatable, unresumed

MIDDLE, END = Position(0, 1, 4, 10, 3, 14), Position(0, 1, 10, 10, 3, 20)
STEP = StateChange(EXTRA, "stopping", (0, 1))


def found(tensors=None, *states, saves_rng=True, saves_optimizer=True):
    return Difference(None, tensors or {}, states, saves_rng, saves_optimizer)


@pytest.mark.parametrize(
    ("difference", "at", "said"),
    [
        (found(), MIDDLE, []),
        (found({"d/kernel": "weight"}), MIDDLE, ["the input's order is not repeated: training was killed at batch 4 of epoch 2"]),
        (found({"d/kernel": "weight"}), END, ["the input's order is not repeated: the program that is started again"]),
        (found({"d/kernel": "weight"}, saves_rng=False), None, ["the input's order", 'the global random generators began anew']),
        (found({"d/kernel": "weight"}, StateChange(RNG, "numpy", (0,))), END, ["the input's order", "another number of random"]),
        (found({"d/kernel": "weight"}, saves_optimizer=False), END, ["the optimizer began anew", "the input's order"]),
        (found({"d/kernel": "weight", "adam/learning_rate": "optimizer"}), END, ["the learning rate", "the input's order"]),
        (found({}, STEP), END, ["extra['stopping'], ranks 0, 1: load_state_dict()"]),
        (found({"mean/total": "metric"}), END, ["the running means of metrics began anew"]),
    ],
    ids=["none", "inside", "boundary", "no-rng", "draws", "no-optimizer", "rate", "extra", "metrics"],
)  # fmt: skip
def test_the_likely_cause_follows_from_what_differs(difference, at, said):
    causes = unresumed(difference, at)
    assert len(causes) == len(said), causes
    for cause, begin in zip(causes, said, strict=True):
        assert cause.startswith(begin), cause


def test_metrics_alone_are_no_other_training():
    assert found({"mean/total": "metric"}).same_training and found().same_training
    assert not found({"d/kernel": "weight"}).same_training and not found({}, STEP).same_training


def test_a_program_without_seeds_is_told_to_set_them():
    for difference in (found({"d/kernel": "weight"}), found({"d/kernel": "weight"}, StateChange(SEED, "s", (0,)))):
        assert "keras.utils.set_random_seed(1)" in unrepeatable(difference)[0]
    assert unrepeatable(found({}, STEP)) == [
        "a state that the program saves depends on the time, or on another program"
    ]


def test_a_state_is_the_same_only_bit_for_bit_on_each_rank():
    def states(*counts):
        return [
            _attached(attachment_tree.encode({"a": {"n": n, "x": np.zeros(2)}, "b": 1}, {"numpy": (n,)}), "x")
            for n in counts
        ]

    assert changed_states(states(1, 2), states(1, 2)) == ()
    assert changed_states(states(1, 2, 3), states(1, 5, 6)) == (
        StateChange(EXTRA, "a", (1, 2)),
        StateChange(RNG, "numpy", (1, 2)),
    )
    assert changed_states(states(1), states(1, 1)) == tuple(
        StateChange(kind, name, (1,)) for kind, name in ((EXTRA, "a"), (EXTRA, "b"), (RNG, "numpy"))
    )
    assert state_tree.encode(-0.0, "") != state_tree.encode(0.0, "")
