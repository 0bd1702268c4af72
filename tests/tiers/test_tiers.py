"""The table of tiers, and which of them a job takes."""

import os
import types
from pathlib import Path

import pytest

from deepfreeze.errors import OptionError
from deepfreeze.notices import unheard
from deepfreeze.tiers import add, local_tier, node_memory, tiers
from deepfreeze.tiers.local_tier import LocalTier
from tests.support.second_directory import SecondDirectory

RUN_ID = 32 * "a"


def test_memory_and_disk_are_two_rows_and_memory_comes_first(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert list(tiers.TIERS) == ["memory", "disk"]
    assert [tier.base for tier in tiers.of("auto")] == [Path("/dev/shm"), tmp_path]
    assert all(tier.share == 0.5 for tier in tiers.of("auto"))


def test_a_row_of_ones_own_is_asked_where_it_was_put(monkeypatch, tmp_path):
    monkeypatch.setattr(tiers, "TIERS", {"memory": lambda: None, "disk": lambda: None})
    first, last = LocalTier(tmp_path / "first", None), LocalTier(tmp_path / "last", None)
    add("mine", lambda: first, before="memory")
    add("last", lambda: last)
    assert list(tiers.TIERS) == ["mine", "memory", "disk", "last"] and tiers.of("auto") == [first, last]
    add("mine", lambda: last, before="disk")
    assert list(tiers.TIERS) == ["memory", "mine", "disk", "last"] and tiers.of("auto") == [last, last]
    for before in ("nothing", "mine"):
        with pytest.raises(OptionError, match=f"another row of the table: memory, disk, last; found '{before}'"):
            add("mine", lambda: first, before=before)
    assert list(tiers.TIERS) == ["memory", "mine", "disk", "last"]


@pytest.mark.parametrize(("make", "found"), [(lambda: int("all"), "ValueError"), (object, "lacks methods")])
def test_a_row_that_makes_no_tier_is_named(monkeypatch, make, found):
    monkeypatch.setattr(tiers, "TIERS", {"mine": make})
    with pytest.raises(OptionError, match=f"the tier 'mine': expected an object .*; found .*{found}"):
        tiers.of("auto")


def test_a_directory_that_the_user_names_is_the_only_tier(tmp_path):
    assert tiers.of(tmp_path) == [LocalTier(tmp_path, None)] and tiers.of(None) == []
    with pytest.raises(OptionError, match="an existing directory on node-local storage"):
        tiers.of(tmp_path / "none")


def test_the_first_tier_with_room_is_taken(monkeypatch, tmp_path):
    full, second = LocalTier(tmp_path, 0.0), SecondDirectory(tmp_path / "first", tmp_path / "second")
    monkeypatch.setattr(tiers, "TIERS", {"none": lambda: None, "full": lambda: full, "second": lambda: second})
    assert tiers.choose("auto", 1000) == (second, tmp_path / "first") and second.needed == 1000
    monkeypatch.setattr(tiers, "TIERS", {"full": lambda: full})
    assert tiers.choose("auto", 1000) is None


def test_a_tier_lets_slots_take_its_share_of_what_is_free(monkeypatch, tmp_path):
    monkeypatch.setattr(local_tier, "_free", lambda base: 1000)
    tier = LocalTier(tmp_path, 0.5)
    assert tier.need(500) == tmp_path and tier.need(501) is None
    assert LocalTier(tmp_path, None).need(10**18) == tmp_path, "a named directory is not asked"


@pytest.mark.parametrize("share", [None, 0.5])
def test_a_node_without_the_directory_has_no_room(tmp_path, share):
    assert LocalTier(tmp_path / "none", share).need(1) is None
    assert LocalTier(tmp_path / "none", share).leftovers(RUN_ID, unheard) == []


def test_discarding_removes_what_is_empty_and_no_slot(tmp_path):
    tier = LocalTier(tmp_path, None)
    place = tmp_path / f"deepfreeze-{os.geteuid()}" / RUN_ID
    place.mkdir(parents=True, mode=0o700)
    (place / "rank-00000-0.slot").write_text("")
    tier.discard(RUN_ID)
    assert os.listdir(place) == ["rank-00000-0.slot"]
    tier.clear(RUN_ID)
    assert os.listdir(tmp_path) == []
    tier.discard(RUN_ID)


def test_another_runs_slots_stay(tmp_path):
    tier = LocalTier(tmp_path, None)
    for run_id in (RUN_ID, 32 * "b"):
        place = tmp_path / f"deepfreeze-{os.geteuid()}" / run_id
        place.mkdir(parents=True, mode=0o700)
        (place / "rank-00000-0.slot").write_text("")
    tier.clear(RUN_ID)
    assert [path.parent.name for path in tmp_path.rglob("*.slot")] == [32 * "b"]


@pytest.mark.parametrize(("memory", "free"), [(True, 300), (False, 1000)])
def test_memory_has_no_more_room_than_the_process_may_take(monkeypatch, tmp_path, memory, free):
    monkeypatch.setattr("shutil.disk_usage", lambda base: types.SimpleNamespace(free=1000))
    monkeypatch.setattr(node_memory, "available", lambda: 300)
    monkeypatch.setattr(node_memory, "is_memory", lambda base: memory)
    assert LocalTier(tmp_path, 1.0).need(free) == tmp_path and LocalTier(tmp_path, 1.0).need(free + 1) is None


def user_folder(tmp_path):
    return tmp_path / f"deepfreeze-{os.geteuid()}"


@pytest.mark.parametrize("name", [[], ["rank-00000-0.slot"]], ids=["empty", "a-slot"])
def test_discarding_leaves_no_descriptor_open(tmp_path, name):
    place = user_folder(tmp_path) / RUN_ID
    place.mkdir(parents=True)
    for slot in name:
        (place / slot).write_text("")
    before = len(os.listdir("/proc/self/fd"))
    LocalTier(tmp_path, None).discard(RUN_ID)
    assert len(os.listdir("/proc/self/fd")) == before and place.exists() == bool(name)


def test_discarding_follows_no_link(tmp_path):
    (tmp_path / "elsewhere" / RUN_ID).mkdir(parents=True)
    user_folder(tmp_path).symlink_to(tmp_path / "elsewhere")
    LocalTier(tmp_path, None).discard(RUN_ID)
    assert (tmp_path / "elsewhere" / RUN_ID).exists()


def test_discarding_waits_for_nothing_that_is_no_directory(tmp_path):
    os.mkfifo(user_folder(tmp_path))
    LocalTier(tmp_path, None).discard(RUN_ID)
    assert os.listdir(tmp_path) == [user_folder(tmp_path).name]
