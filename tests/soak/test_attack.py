"""The attack on the input in small: that it finds items which are trained twice or never, and that there are none."""

import json
import random

import pytest

from deepfreeze.data.dealing import Dealing
from tests.soak import attack, chains, ended
from tests.soak.chains import Attempt, Chain, Kill
from tests.support import kerases, trained
from tests.support.seed import SEED

CHAIN = Chain("same", "keras", 6, 1, (Attempt(2, 2, kill=Kill(2)), Attempt(2, 2)))


def note(folder, attempt, rank, *steps):
    """Has a rank train ``steps``: (updates before it, its items)."""
    recorder = trained.Recorder(folder, attempt, rank)
    recorder.epoch = 0
    for updates, items in steps:
        recorder.note(updates, [float(item) for item in items], [1.0] * len(items))


def end(folder, **changed):
    """What both ranks of the attempt 1 of ``CHAIN`` leave at its end."""
    states = {"stop": [0.5, 0, 0, 0]}
    values = {"updates": 3, "epochs": [0], "history": {"val_loss": [0.5]}, "states": states, "weights": [1.0]}
    replayed = {**states, "stopped": False}
    for rank in range(2):
        text = json.dumps({**values, "replayed": replayed, **changed})
        (folder / f"end-1-{rank}.json").write_text(text)


def test_a_killed_attempt_is_followed_by_what_goes_on_from_its_checkpoint(tmp_path):
    """The attempts trained three steps, of which two were in a checkpoint; nothing; and two steps, of which rank 1 lacks the last one and
    rank 0 has half a line of one more."""
    note(tmp_path, 0, 0, (0, [4]), (1, [2]), (2, [0]))
    note(tmp_path, 0, 1, (0, [5]), (1, [3]), (2, [1]))
    note(tmp_path, 1, 0)
    note(tmp_path, 2, 0, (2, [0]), (3, [7]))
    note(tmp_path, 2, 1, (2, [1]))
    with open(tmp_path / "items" / "2-0", "a") as file:
        file.write("[5, 0, [8")
    assert trained.begun(tmp_path, 2, 2) and not trained.begun(tmp_path, 1, 2)
    attempts = [trained.steps(tmp_path, attempt) for attempt in range(3)]
    assert [len(steps) for steps in attempts] == [3, 0, 2]
    assert trained.history(attempts) == [(1, 0, (4, 5)), (2, 0, (2, 3)), (3, 0, (0, 1)), (4, 0, (7,))]


def test_copies_of_another_ranks_items_count_for_nothing(tmp_path):
    trained.Recorder(tmp_path, 0, 0).note(0, [4.0, 5.0], [1.5, 0.0])
    assert trained.steps(tmp_path, 0)[1].items == (4,)


@pytest.mark.parametrize(
    ("last", "found"),
    [
        ([0, 1], []),
        ([0, 4], ["more than once, in the steps [1, 3]: [4]", "1 of 6 items never trained: [1]"]),
        ([0], ["1 of 6 items never trained: [1]"]),
    ],
)
def test_items_that_are_trained_twice_or_never_are_found(tmp_path, last, found):
    note(tmp_path, 0, 0, (0, [4]), (1, [2]), (2, [0]))
    note(tmp_path, 0, 1, (0, [5]), (1, [3]))
    note(tmp_path, 1, 0, (2, last))
    end(tmp_path)
    said = ended.wrong(CHAIN, tmp_path, 1, None)
    assert len(said) == len(found) and all(part in text for part, text in zip(found, said)), said


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"updates": 2}, "the optimizer counts 2 updates, the history has 3"),
        ({"epochs": [1]}, "History has the epochs [1]"),
        ({"history": {"val_loss": [0.5], "loss": []}}, "of each metric so many: {'val_loss': 1, 'loss': 0}"),
        ({"states": {"stop": [0.5, 0, 1, 0]}}, "callbacks end with {'stop': [0.5, 0, 1, 0]}, by this history with"),
        ({"weights": [2.0]}, "weights is [2.0], undisturbed [1.0]"),
    ],
)
def test_what_ranks_end_with_is_compared_with_a_training_never_killed(tmp_path, changed, found):
    whole = tmp_path / "whole"
    whole.mkdir()
    for folder in (tmp_path, whole):
        note(folder, 0, 0, (0, [4, 5]), (1, [2, 3]), (2, [0, 1]))
        end(folder)
    for rank in range(2):
        (whole / f"end-1-{rank}.json").rename(whole / f"end-0-{rank}.json")
    assert ended.wrong(CHAIN, tmp_path, 1, whole) == []
    end(tmp_path, **changed)
    assert any(found in text for text in ended.wrong(CHAIN, tmp_path, 1, whole))


def test_every_chain_can_be_trained_and_is_drawn_again_by_its_seed():
    print(f"seed {SEED} (DEEPFREEZE_TEST_SEED)")
    for number in range(100):
        chain = chains.draw(SEED, number, kerases.NAMES)
        assert chain == chains.draw(SEED, number, kerases.NAMES)
        assert [attempt.kill is None for attempt in chain.attempts] == [False, False, False, True], chain
        for attempt in chain.attempts:
            assert Dealing(chain.items, attempt.ranks, attempt.shared, chain.last).batches(0) > 0, chain
        if chain.kind != "other batches":  # its batches may be equal by chance
            assert (chain.undisturbed is not None) == (chain.kind in ("same", "other ranks")), chain
        assert chain.one_world == (chain.kind == "same"), chain


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.ranks
@pytest.mark.tensorflow
def test_no_item_is_trained_twice_when_1_2_and_3_ranks_have_larger_batches(tmp_path):
    """Each attempt has trained less than one batch of the next one's when it is killed."""
    chain = chains.grown(random.Random(SEED), kerases.NAMES[SEED % len(kerases.NAMES)], (1, 2, 3))
    print(f"seed {SEED} (DEEPFREEZE_TEST_SEED): {chain}")
    found = attack.attack(chain, tmp_path)
    assert found.wrong == () and found.kills == 2 and found.began == (0, 1, 2)
