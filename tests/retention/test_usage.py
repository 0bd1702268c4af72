"""The bytes that a run may take: what counts, what a rule keeps, whether one more checkpoint fits."""

import pytest

from deepfreeze.errors import OptionError
from deepfreeze.retention.keeper import Keeper
from deepfreeze.retention.usage import Bound, Usage, measure, most_kept
from deepfreeze.store import Best, Epochs, Latest, Spaced, Tagged
from deepfreeze.store.run import Run
from tests.support import files

FILE = 1000


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (Latest(1), 2),  # the one that a start resumes from stays too, until there are two newer ones
        (Latest(2), 2),
        (Latest(5), 5),
        (Latest(1) | Tagged() | Epochs(), 2),  # nobody knows how many tags and epochs there will be
        (Latest(2) | Best("loss", "min"), 3),  # the best one may be an old one
        (Latest(2) | Best("loss", "max", n=3), 5),
        (Latest(2) | Spaced(steps=5), 4),
        (Latest(100), 12),  # more than can be there
    ],
)
def test_the_most_that_a_rule_keeps_at_once(rule, kept):
    assert most_kept(rule, 11) == kept


def test_a_bound_that_is_too_low_for_the_rule_says_what_is_needed():
    Bound(3 * FILE, FILE).require(Latest(2))
    with pytest.raises(OptionError) as told:
        Bound(3 * FILE - 1, FILE).require(Latest(2))
    assert str(told.value) == (
        "storage=: expected room for 3 checkpoints of 1 kB: 2 that keep=Latest(2) keeps, and the one that is being written; "
        "found 3 kB. Raise storage=, or keep fewer checkpoints."
    )
    with pytest.raises(OptionError, match="room for 10 checkpoints of 1 kB: 9 that"):
        Bound(3 * FILE, FILE).require(Latest(9))
    with pytest.raises(OptionError, match="room for 66 or more checkpoints of 1 kB: 65 or more that"):
        Bound(3 * FILE, FILE).require(Latest(900))
    Bound(7 * FILE, FILE).require(Best("loss", "min"), 4)
    waiting = r"room for 7 checkpoints of 1 kB: 2 that .* written, beside 4 that may wait for their metrics \(keep_pending=\);"
    with pytest.raises(OptionError, match=waiting):
        Bound(6 * FILE, FILE).require(Best("loss", "min"), 4)


def test_only_a_loop_whose_rule_wants_metrics_has_checkpoints_that_wait():
    assert Keeper(Best("loss", "min"), 4, loop=True).most_waiting == 4
    assert Keeper(Best("loss", "min"), 4, loop=False).most_waiting == 0 == Keeper(Latest(2), 4, loop=True).most_waiting


def test_committed_partial_and_removed_checkpoints_count_and_nothing_else(tmp_path):
    path = files.write_run(tmp_path / "run")
    sizes = {}
    for step in (10, 20, 30):
        sizes[step] = sum(file.stat().st_size for file in files.write_checkpoint(path, step)[0].iterdir())
    (path / "step-0000000020").rename(path / f".trash-step-0000000020-{files.ATTEMPT}")
    (path / "step-0000000030").rename(path / f"step-0000000030.partial-{files.ATTEMPT}")
    for folder in ("damaged", "abandoned", "tags", "structures"):
        (path / folder).mkdir(exist_ok=True)
        (path / folder / "step-0000000001").write_bytes(bytes(5000))
    run = Run.open(path)
    usage = measure(run, [], FILE, {10: "newest"})
    assert (usage.taken, usage.kept, usage.leftovers) == (sum(sizes.values()), sizes[10], True)
    # A step on its way counts as a whole one, whatever of it is there.
    usage = measure(run, [30, 40], FILE, {10: "newest 2", 40: "newest 2"})
    assert (usage.taken, usage.kept, usage.leftovers) == (sizes[10] + sizes[20], sizes[10] + FILE, True)
    (path / f".trash-step-0000000020-{files.ATTEMPT}" / "model.weights.h5").unlink()
    for file in (path / f".trash-step-0000000020-{files.ATTEMPT}").iterdir():
        file.unlink()
    (path / f".trash-step-0000000020-{files.ATTEMPT}").rmdir()
    assert not measure(run, [30, 40], FILE, {}).leftovers


def test_a_folder_that_gets_another_name_meanwhile_counts_all_the_same(tmp_path, monkeypatch):
    path = files.write_run(tmp_path / "run")
    files.write_checkpoint(path, 10)
    run, moves = Run.open(path), iter([f".trash-step-0000000010-{files.ATTEMPT}", "step-0000000010"] * 20)
    expected, real, stops = measure(run, [], FILE, {}).taken, type(run.store).nbytes, 3

    def nbytes(self, name):
        nonlocal stops
        if stops:
            stops -= 1
            (path / name).rename(path / next(moves))
        return real(self, name)

    monkeypatch.setattr(type(run.store), "nbytes", nbytes)
    assert measure(run, [], FILE, {}).taken == expected > 0
    stops = 99
    assert measure(run, [], FILE, {}) is None, "it has not come to rest"


def test_there_is_room_where_all_that_is_on_its_way_fits_too():
    bound = Bound(4 * FILE, FILE)
    assert Usage(frozenset({3}), 2 * FILE, {}, 0).fits(bound)
    assert not Usage(frozenset({3, 4}), 2 * FILE, {}, 0).fits(bound)
    assert not Usage(frozenset({3}), 2 * FILE + 1, {}, 0).fits(bound)
    assert not Usage(frozenset(), 0, {}, 3 * FILE).is_full(bound)
    full = Usage(frozenset(), 0, {step: f"tag t{step}" for step in range(1, 7)}, 3 * FILE + 1)
    assert full.is_full(bound)
    assert (
        "3 kB that stay: step 1 (tag t1), step 2 (tag t2), step 3 (tag t3), step 4 (tag t4), 2 more."
        in full.warning(bound)
    )
