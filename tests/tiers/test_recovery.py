"""What a dead attempt left: the decisions are pure, the effects small."""

import errno
import os
import types
from pathlib import Path

import pytest

from deepfreeze.engine.faults import EngineFault
from deepfreeze.errors import EngineError, RunError
from deepfreeze.events.messages import to_logger
from deepfreeze.store.posix_store import PosixStore
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.tiers import leftovers, rescue
from deepfreeze.tiers.local_tier import LocalTier
from deepfreeze.tiers.recovery_plan import LeftoverSlot, NodeSlot, PartialState, RecoveryPlan, plan_recovery
from tests.support import files
from tests.support.refusals import assert_four_parts

A, B = "a" * 32, "b" * 32
TIER = LocalTier(Path("/nowhere"), None)


def partial(step, ranks, attempt=A, world=3, size=100, structure="s"):
    return PartialState(step, attempt, frozenset(ranks), world, size, structure)


def slot(step, rank, node="n0", attempt=A, world=3, size=100, structure="s", name=None):
    path = name or f"/local/{step}-{attempt[0]}-{rank}.slot"
    return NodeSlot(node, LeftoverSlot(path, step, rank, world, size, size, files.RUN_ID, attempt, structure))


def test_attempts_are_never_mixed():
    found = plan_recovery(30, [partial(40, {0, 1}), partial(40, {2}, B)], [slot(40, 1, attempt=B)])
    assert found == RecoveryPlan(clear=[(40, A), (40, B)])


def test_what_a_newer_checkpoint_has_overtaken_is_finished_if_it_is_whole(tmp_path):
    """Unless a checkpoint has its step, or an attempt has told that it is over."""
    run = WritableRun.open(files.write_run(tmp_path))
    made = files.sample()
    for step in (20, 40):
        files.write_checkpoint(tmp_path, step, made)
    for step in (10, 20, 30):
        files.write_partial(tmp_path, step, made, attempt=A)
    (tmp_path / files.failed_file(30, A)).write_text("superseded by step 40\n")
    assert run.told() == {(30, A)}
    found = rescue.plan(run, [], run.told())
    assert (found.finish, found.clear) == ([(10, A)], [(20, A), (30, A)])
    assert rescue.plan(run, []).finish == [(10, A), (30, A)]
    run.clear_trash()
    assert run.told() == frozenset()


@pytest.mark.parametrize("leads_to", ["a partial directory", "nowhere"])
def test_a_partial_directory_that_is_a_link_is_refused_and_not_followed(tmp_path, leads_to):
    run = files.write_run(tmp_path / "run")
    elsewhere = files.write_partial(files.write_run(tmp_path / "other"), 40, files.sample())
    link = run / elsewhere.name
    link.symlink_to(elsewhere if leads_to == "a partial directory" else tmp_path / "nothing")
    with pytest.raises(RunError) as caught:
        leftovers.partial_states(WritableRun.open(run))
    assert_four_parts(caught.value, where=str(link), expected="a directory", found="a symbolic link", todo="remove it")
    assert link.is_symlink() and len(list(elsewhere.iterdir())) == 3


def test_only_valid_records_of_the_right_checkpoint_count(tmp_path):
    run = WritableRun.open(files.write_run(tmp_path))
    made = files.sample(world=4)
    folder = files.write_partial(tmp_path, 40, made, [0, 1])
    (folder / "rank-00002.record").write_bytes(files.rank_record(40, made, 3))
    (folder / "rank-00003.record").write_bytes(files.rank_record(40, made, 3)[:-1])
    (folder / "rank-00003.record.tmp").write_bytes(files.rank_record(40, made, 3))
    files.write_partial(tmp_path, 50, made, [])
    first, second = leftovers.partial_states(run)
    assert first == PartialState(40, files.ATTEMPT, frozenset({0, 1}), 4, 20000, made.hash)
    assert second == PartialState(50, files.ATTEMPT)


def test_records_of_a_nodes_ranks_count_if_their_file_is_whole(tmp_path):
    run = WritableRun.open(files.write_run(tmp_path))
    made = files.sample(world=4)
    folder = files.write_partial(tmp_path, 40, made, [0])
    together = b"".join(files.rank_record(40, made, rank) for rank in (1, 3))
    (folder / "ranks-00001-00003-2.record").write_bytes(together)
    assert leftovers.partial_states(run)[0].ranks == frozenset({0, 1, 3})
    (folder / "ranks-00001-00003-2.record").write_bytes(together[: len(together) // 2])
    assert leftovers.partial_states(run)[0].ranks == frozenset({0})


@pytest.fixture
def engine(monkeypatch):
    """The engine's answers, by path or step: None for success, else a code. Its calls are noted."""
    answers, calls = {}, []

    def answer(key, *call):
        calls.append(call)
        if answers.get(key):
            raise EngineFault(answers[key], "the engine's message")

    def inspect(path):
        answer(os.path.basename(path), "inspect")
        return types.SimpleNamespace(
            step=40, rank=0, world=1, file_size=9, nbytes=9, run_id=bytes.fromhex(files.RUN_ID), attempt=b"\1" * 16,
            structure=b"\2" * 32,
        )  # fmt: skip

    monkeypatch.setattr("veloc_bindings.slot_inspect", inspect)
    monkeypatch.setattr("veloc_bindings.slot_transfer", lambda path, run: answer(path, "transfer", path, run))
    monkeypatch.setattr("veloc_bindings.commit", lambda run, step, attempt: answer(step, "commit", run, step, attempt))
    return types.SimpleNamespace(answers=answers, calls=calls)


def test_a_record_that_can_not_be_read_does_not_count_and_hides_no_other(tmp_path):
    run = WritableRun.open(files.write_run(tmp_path))
    made = files.sample(world=4)
    folder = files.write_partial(tmp_path, 40, made, [2, 3])
    (folder / "rank-00000.record").symlink_to(tmp_path / "nowhere")
    (folder / "rank-00001.record").symlink_to(folder)
    (found,) = leftovers.partial_states(run)
    assert found.ranks == {2, 3}


def test_a_record_that_is_gone_since_it_was_listed_does_not_count(tmp_path, monkeypatch):
    run = WritableRun.open(files.write_run(tmp_path))
    files.write_partial(tmp_path, 40, files.sample(), [1])
    really = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: ["rank-00000.record", *really(path)])
    assert leftovers._partial_state(run, 40, files.ATTEMPT).ranks == {1}


def test_nothing_but_records_is_read_in_a_partial_directory(tmp_path, monkeypatch):
    """A model may be larger than memory."""
    run = WritableRun.open(files.write_run(tmp_path))
    folder = files.write_partial(tmp_path, 40, files.sample(), [1])
    (folder / "rank-00000.record.tmp").write_text("half")
    seen, really = [], PosixStore.read
    monkeypatch.setattr(PosixStore, "read", lambda store, name, limit: seen.append(name) or really(store, name, limit))
    assert leftovers.partial_states(run)[0].ranks == {1} and seen == [f"{folder.name}/rank-00001.record"]


def test_records_that_contradict_each_other_count_for_nothing(tmp_path):
    run = WritableRun.open(files.write_run(tmp_path))
    folder = files.write_partial(tmp_path, 40, files.sample(), [0])
    (folder / "rank-00001.record").write_bytes(files.rank_record(40, files.sample(state="weights"), 1))
    assert leftovers.partial_states(run) == [PartialState(40, files.ATTEMPT)]


OWN = 0o700


@pytest.fixture
def tier(tmp_path, monkeypatch):
    """A run's directory of the local tier with a slot in it, from within the user's directory above."""
    place = tmp_path / "user" / "run"
    place.mkdir(parents=True, mode=OWN)
    (tmp_path / "user").chmod(OWN)
    (place / "rank-00000-0.slot").write_text("")
    monkeypatch.chdir(place.parent)
    return place


def is_passed_by(place, where, caplog) -> bool:
    """Nothing is reported, nothing deleted, nothing stays open; and the log says which directory, and why."""
    caplog.clear()
    slot, before = os.path.join(os.path.realpath(where), "rank-00000-0.slot"), len(os.listdir("/proc/self/fd"))
    assert os.path.exists(slot)
    found = leftovers.leftover_slots(place, to_logger)
    leftovers.clear_slots(place)
    assert len(os.listdir("/proc/self/fd")) == before
    if found or not os.path.exists(slot):
        return False
    assert len(caplog.records) == 1 and caplog.records[0].message.startswith(f"{place} is left alone: "), caplog.text
    return True


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o755])
@pytest.mark.parametrize("above", [False, True], ids=["the-run-s", "the-user-s"])
def test_slots_where_others_may_write_are_passed_by(tier, engine, caplog, mode, above):
    (tier.parent if above else tier).chmod(mode)
    assert is_passed_by(tier, tier, caplog) == (mode != 0o755)
    assert mode == 0o755 or f"users other than {os.geteuid()} may write there" in caplog.text


@pytest.mark.parametrize("above", [False, True], ids=["the-run-s", "the-user-s"])
def test_slots_of_another_user_are_passed_by(tier, engine, caplog, monkeypatch, above):
    owner = (tier.parent if above else tier).stat().st_ino
    really = os.fstat

    def fstat(fd):
        status = really(fd)
        return types.SimpleNamespace(
            st_uid=status.st_uid + (status.st_ino == owner), st_mode=status.st_mode, st_size=status.st_size
        )

    monkeypatch.setattr(os, "fstat", fstat)
    assert is_passed_by(tier, tier, caplog)


@pytest.mark.parametrize("above", [False, True], ids=["the-run-s", "the-user-s"])
def test_slots_behind_a_link_are_passed_by(tier, engine, caplog, above, tmp_path):
    own = tier.parent if above else tier
    own.rename(tmp_path / "elsewhere")
    own.symlink_to(tmp_path / "elsewhere")
    slot = tmp_path / "elsewhere" / ("run" if above else "") / "rank-00000-0.slot"
    assert leftovers.leftover_slots(tier, to_logger) == []
    leftovers.clear_slots(tier)
    assert slot.exists()


def test_a_directory_that_can_not_be_opened_is_passed_by_and_named(tier, engine, caplog, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert leftovers.leftover_slots(tier, to_logger) == []
    assert [record.message for record in caplog.records] == [f"{tier} is left alone: Permission denied"]


def test_what_is_no_directory_has_no_slots(tmp_path, engine, caplog):
    (tmp_path / "file").write_text("")
    tmp_path.chmod(OWN)
    for place in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / "none" / "run"):
        assert leftovers.leftover_slots(place, to_logger) == []
        leftovers.clear_slots(place)
    assert not caplog.records, "a node that has no local tier yet is nothing to warn of"


def test_a_slot_that_can_not_be_deleted_hides_no_other(tier, engine):
    (tier / "rank-00001-0.slot").mkdir()
    (tier / "rank-00002-0.slot").write_text("")
    leftovers.clear_slots(tier)
    assert os.listdir(tier) == ["rank-00001-0.slot"]


def test_only_whole_slots_are_reported(tmp_path, engine):
    for name in ("rank-00000-0.slot", "rank-00000-1.slot", "other"):
        (tmp_path / name).write_text("")
    engine.answers["rank-00000-1.slot"] = 5
    (found,) = leftovers.leftover_slots(tmp_path, to_logger)
    assert (found.path, found.step, found.attempt) == (str(tmp_path / "rank-00000-0.slot"), 40, "01" * 16)
    assert leftovers.leftover_slots(tmp_path / "none", to_logger) == []


@pytest.mark.parametrize("version", ["as it is", "before the attempt was in the name"])
def test_slots_are_found_and_cleared_under_the_names_of_every_version(tmp_path, engine, version):
    now = files.slot_name(0, "a" * 32, 1)
    name = now if version == "as it is" else "rank-00000-1.slot"
    (tmp_path / name).write_text("")
    (found,) = leftovers.leftover_slots(tmp_path, to_logger)
    assert os.path.basename(found.path) == name
    leftovers.clear_slots(tmp_path)
    assert os.listdir(tmp_path) == []


def test_slots_of_another_run_are_ignored(tmp_path):
    run = WritableRun.open(files.write_run(tmp_path))
    mine = slot(40, 0, world=1).slot
    theirs = LeftoverSlot(**{**vars(mine), "run_id": "f" * 32, "step": 50})
    assert rescue.plan(run, [("n0", mine), ("n0", theirs)]).finish == [(40, A)]


def test_complete_sets_are_committed_and_the_rest_cleared(tmp_path, engine, caplog):
    caplog.set_level("INFO", "deepfreeze")
    run = WritableRun.open(files.write_run(tmp_path))
    made = files.sample()
    for step in (40, 50, 60):
        files.write_partial(tmp_path, step, made)
    engine.answers[50] = 6
    decided = RecoveryPlan(finish=[(40, files.ATTEMPT), (50, files.ATTEMPT)], clear=[(60, files.ATTEMPT)])
    done = rescue.finish(decided, run, to_logger)
    assert engine.calls[0] == ("commit", str(tmp_path), 40, bytes.fromhex(files.ATTEMPT))
    assert (done.committed, [step for step, _, _ in done.lost]) == ([(40, files.ATTEMPT)], [50])
    assert run.partials() == [(40, files.ATTEMPT)]  # this engine renames nothing; what it failed at is cleared
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "step 40 of a dead attempt was complete: committed"),
        ("WARNING", "step 50 of a dead attempt could not be finished: the engine's message"),
    ]


@pytest.mark.parametrize(("code", "lost"), [(5, True), (6, True), (8, True), (3, False), (7, False), (9, False)])
def test_only_a_set_that_can_never_be_committed_is_lost_and_cleared(tmp_path, engine, code, lost):
    """Damaged, incomplete, or of ranks that differ; whatever else the engine says may pass."""
    run = WritableRun.open(files.write_run(tmp_path))
    files.write_partial(tmp_path, 50, files.sample())
    engine.answers[50] = code
    decided = RecoveryPlan(finish=[(50, files.ATTEMPT)])
    if lost:
        assert rescue.finish(decided, run, to_logger) == rescue.Finished(
            [], [(50, files.ATTEMPT)], [(50, files.ATTEMPT, "the engine's message")]
        )
    else:
        with pytest.raises(EngineError):
            rescue.finish(decided, run, to_logger)
    assert run.partials() == ([] if lost else [(50, files.ATTEMPT)])


def test_a_set_that_is_gone_when_its_commit_fails_is_lost_and_not_cleared(tmp_path, engine):
    run = WritableRun.open(files.write_run(tmp_path))
    engine.answers[50] = 6
    done = rescue.finish(RecoveryPlan(finish=[(50, files.ATTEMPT)]), run, to_logger)
    assert (done.committed, done.cleared, [step for step, _, _ in done.lost]) == ([], [], [50])


def test_nothing_is_cleared_while_the_store_fails(tmp_path, engine):
    run = WritableRun.open(files.write_run(tmp_path))
    for step in (40, 50):
        files.write_partial(tmp_path, step, files.sample())
    engine.answers[50] = 3
    with pytest.raises(EngineError, match="the engine's message"):
        rescue.finish(RecoveryPlan(finish=[(50, files.ATTEMPT)], clear=[(40, files.ATTEMPT)]), run, to_logger)
    assert len(run.partials()) == 2
    engine.answers["/x.slot"] = 2
    with pytest.raises(EngineError):
        rescue.copy_slots(RecoveryPlan(slots={"n0": ["/x.slot"]}), "n0", tmp_path, {"/x.slot": TIER})


def test_each_host_copies_its_own_slots_and_names_the_damaged(engine):
    engine.answers["/b"] = 5
    decided = RecoveryPlan(slots={"n0": ["/a", "/b"], "n1": ["/c"]})
    holders = dict.fromkeys(["/a", "/b", "/c"], TIER)
    assert rescue.copy_slots(decided, "n0", "/run", holders) == ["/b"]
    assert [call[1] for call in engine.calls] == ["/a", "/b"]
    assert rescue.copy_slots(decided, "n2", "/run", {}) == []


def test_clearing_slots_touches_nothing_else(tmp_path):
    for name in ("rank-00000-0.slot", "rank-00001-12.slot", "mine.slot"):
        (tmp_path / name).write_text("x")
    leftovers.clear_slots(tmp_path)
    leftovers.clear_slots(tmp_path / "none")
    assert os.listdir(tmp_path) == ["mine.slot"]
