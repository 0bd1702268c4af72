"""Every change that Python makes to a run: what is synced, in which order, and what is said and left if a call is refused."""

import errno
import os
import stat

import pytest

from deepfreeze.errors import CorruptError, NewerError, NotFoundError, OptionError, RunError
from deepfreeze.format import names
from deepfreeze.format.model_config import ModelConfig
from deepfreeze.format.run_file import Parent
from deepfreeze.format.structure import Structure
from deepfreeze.store.posix_store import PosixStore
from deepfreeze.store.run import Run
from deepfreeze.store.stores import at
from deepfreeze.store.writable_run import WritableRun
from tests.support import files
from tests.support.calls import Calls
from tests.support.refusals import assert_four_parts

A = files.ATTEMPT
FULL = OSError(errno.ENOSPC, "No space left on device")
PARENT = Parent("/runs/base", "a" * 32, 40, "b" * 32)
CONFIG = ModelConfig(files.RUN_ID, A, {"class_name": "Sequential"})


@pytest.fixture
def run(tmp_path):
    return WritableRun.open(files.write_run(tmp_path / "run"))


@pytest.fixture
def calls(monkeypatch, run):
    return Calls(monkeypatch)


def refused(action, where, found="No space left on device"):
    with pytest.raises(RunError) as caught:
        action()
    assert_four_parts(caught.value, where=str(where), found=found)
    return caught.value


# --- what no run can be called


@pytest.mark.parametrize("path", ["runs/nt3", b"runs/nt3"])
def test_a_path_is_taken_as_it_was_given(path):
    assert str(at(path).path) == "runs/nt3"


@pytest.mark.parametrize("path", ["", b"", "a\0b", 3, None, ["runs"]], ids=repr)
def test_what_no_directory_can_be_called_is_refused(path):
    with pytest.raises(OptionError) as caught:
        at(path)
    assert_four_parts(caught.value, where="run=", found=repr(path), todo="pass a path")


def test_what_is_no_path_and_no_step_is_shown_up_to_200_characters(run):
    long = ["x" * 300]
    for action in (lambda: at(long), lambda: run.step_path(long)):
        with pytest.raises(OptionError) as caught:
            action()
        assert caught.value.found == repr(long)[:200]


def test_the_longest_path_whose_files_fit_is_taken_and_no_longer_one(tmp_path):
    deepest = len(names.partial_dir(2**63 - 1, A)) + len("rank-4294967295.record.tmp") + 2
    room = os.pathconf("/", "PC_PATH_MAX") - 1 - deepest
    folder = tmp_path
    while room - len(str(folder)) > 250:
        folder /= "d" * 200
        folder.mkdir()
    last = room - len(str(folder)) - 1
    WritableRun.open_or_make(folder / ("r" * last))
    error = refused(lambda: WritableRun.open_or_make(folder / ("r" * (last + 1))), folder, f"{room + 1} bytes")
    assert str(room) in error.expected and not (folder / ("r" * (last + 1))).exists()


# --- making one


def test_a_new_run_is_made_durable_from_above(tmp_path, calls):
    before = os.umask(0)
    try:
        run = WritableRun.open_or_make(tmp_path / "new")
        run.store_config(ModelConfig(run.run_id, A, {"class_name": "Sequential"}))
    finally:
        os.umask(before)
    assert calls[:2] == [("mkdir", "new"), ("fsync", tmp_path.name)]
    assert stat.S_IMODE(run.path.stat().st_mode) == stat.S_IMODE((run.path / "configs").stat().st_mode) == 0o775


def test_a_run_that_is_there_is_made_durable_too_as_far_as_that_goes(tmp_path, run, calls):
    assert WritableRun.open_or_make(run.path) == run
    assert ("fsync", tmp_path.name) in calls
    calls.failing["fsync", tmp_path.name] = OSError(errno.EACCES, "Permission denied")
    assert WritableRun.open_or_make(run.path) == run


def test_a_new_run_that_can_not_be_made_durable_is_taken_away_again(tmp_path, calls):
    calls.failing["fsync", tmp_path.name] = OSError(errno.EINVAL, "Invalid argument")
    refused(lambda: WritableRun.open_or_make(tmp_path / "new"), tmp_path / "new", "Invalid argument")
    assert not (tmp_path / "new").exists()
    calls.failing["rmdir"] = OSError(errno.EBUSY, "Device or resource busy")
    refused(lambda: WritableRun.open_or_make(tmp_path / "new"), tmp_path / "new", "Invalid argument")


def test_a_new_run_that_gets_no_identity_is_taken_away_again(tmp_path, monkeypatch):
    def full(store, name, data):
        raise FULL

    monkeypatch.setattr(PosixStore, "create", full)
    refused(lambda: WritableRun.open_or_make(tmp_path / "new"), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    refused(lambda: WritableRun.open_or_make(tmp_path / "mine"), tmp_path / "mine")
    assert (tmp_path / "mine").is_dir()


def test_a_file_is_created_once_where_hard_links_are_refused(run, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert run.store.create("tags/best", b"first") is True and run.store.create("tags/best", b"second") is False
    assert run.store.read("tags/best", 9) == b"first" and run.store.list("tags") == ["best"]


def test_an_empty_directory_that_can_not_be_used_stays(tmp_path, calls):
    (tmp_path / "mine").mkdir()
    calls.failing["rename"] = FULL
    refused(lambda: WritableRun.open_or_make(tmp_path / "mine"), tmp_path / "mine")
    assert (tmp_path / "mine").is_dir()


def test_a_run_that_can_not_be_made_at_all_says_why(tmp_path, calls):
    calls.failing["mkdir"] = FULL
    refused(lambda: WritableRun.open_or_make(tmp_path / "new"), tmp_path / "new")


# --- its files


def test_the_parent_is_written_once_and_read_back(run, calls):
    seeded = run.set_parent(PARENT)
    assert seeded == WritableRun.open(run.path) and (seeded.parent, seeded.run_id) == (PARENT, run.run_id)
    assert calls == [("fsync", "run.json.tmp"), ("replace", "run.json.tmp"), ("fsync", "run")]
    assert seeded.set_parent(PARENT) is seeded and len(calls) == 3
    calls.failing["replace"] = FULL
    refused(lambda: seeded.set_parent(None), run.path / "run.json")


def test_the_owner_is_the_attempt_and_a_newline(run, calls):
    assert run.claim(A) == A
    assert (run.path / "owner").read_text() == f"{A}\n"
    assert calls == [("fsync", "owner.tmp"), ("replace", "owner.tmp"), ("fsync", "run")]
    calls.failing["fsync"] = FULL
    refused(lambda: run.claim(A), run.path / "owner")


def test_what_is_stored_is_durable_and_so_is_its_folder(run, calls):
    run.store_config(CONFIG)
    file = run.path / "configs" / f"{A}.json"
    stored = [("fsync", f"{file.name}.tmp"), ("replace", f"{file.name}.tmp"), ("fsync", "configs")]
    made = [("mkdir", "configs"), ("fsync", "run")]
    assert calls == made + stored
    del calls[:]
    run.store_config(CONFIG)  # whoever stored it may have been killed before a sync
    assert calls == [*made, ("fsync", "configs")]
    del calls[:]
    file.write_bytes(b"something else")
    run.store_config(CONFIG)
    assert calls == made + stored and run.config(A) == CONFIG
    calls.failing["fsync", "configs"] = FULL
    refused(lambda: run.store_config(CONFIG), file)


def test_a_configuration_that_is_not_there_or_anothers_is_no_configuration(run, calls):
    with pytest.raises(NotFoundError, match="save_config=False"):
        run.config(A)
    run.store_config(ModelConfig("f" * 32, A, {"class_name": "Sequential"}))
    with pytest.raises(CorruptError) as caught:
        run.config(A)
    found, wanted = f"{A} of {'f' * 32}", f"attempt {A} of run {run.run_id}"
    assert_four_parts(caught.value, where=f"configs/{A}.json", expected=wanted, found=found)
    (run.path / "configs" / f"{'b' * 32}.json").write_bytes(CONFIG.to_bytes())
    with pytest.raises(CorruptError, match=f"attempt {'b' * 32}"):
        run.config("b" * 32)
    for file in (run.path / "configs").iterdir():
        file.unlink()
    (run.path / "configs").rmdir()
    (run.path / "configs").write_text("a file")
    with pytest.raises(NotFoundError):
        run.config(A)


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, CorruptError), (errno.EACCES, RunError)])
def test_what_the_system_does_not_read_is_an_error_with_the_reason(run, monkeypatch, number, kind):
    files.write_checkpoint(run.path, 5)

    def fails(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("deepfreeze.store.posix_store.PosixStore.read", fails)
    for action in (lambda: run.structure("a" * 64), lambda: run.config(A), lambda: run.manifest(5)):
        with pytest.raises(kind) as caught:
            action()
        assert type(caught.value) is kind
        assert_four_parts(caught.value, where=str(run.path), found=os.strerror(number))


def test_a_structure_of_another_hash_is_named_by_both(run):
    structure = Structure.from_bytes(files.sample().structure, "x")
    run.store_structure(structure)
    file = run.path / "structures" / f"{structure.hash}.json"
    file.rename(file.with_name(f"{'a' * 64}.json"))
    with pytest.raises(CorruptError) as caught:
        run.structure("a" * 64)
    assert_four_parts(caught.value, where=f"{'a' * 64}.json", expected=f"SHA-256 {'a' * 64}", found=structure.hash)


# --- its checkpoints


@pytest.mark.parametrize("step", [-1, 2**63, "x", None], ids=repr)
def test_a_step_that_can_not_be_is_an_option_error(run, step):
    with pytest.raises(OptionError) as caught:
        run.step_path(step)
    assert_four_parts(caught.value, where="step=", expected=f"from 0 to {names.MAX_STEP}", found=repr(step))


def test_a_manifest_of_another_step_or_run_belongs_elsewhere(run):
    folder, _ = files.write_checkpoint(run.path, 5)
    folder.rename(run.path / names.step_dir(6))
    with pytest.raises(CorruptError) as caught:
        run.manifest(6)
    expected, found = (f"step {step} of run {run.run_id}" for step in (6, 5))
    assert_four_parts(caught.value, expected=expected, found=found, todo="it belongs elsewhere")
    (run.path / names.step_dir(7)).write_text("a file")
    with pytest.raises(CorruptError, match="no checkpoint: use another step"):
        run.manifest(7)


def test_a_missing_step_names_the_last_ten_or_says_that_there_is_none(run):
    with pytest.raises(NotFoundError) as caught:
        run.manifest(3)
    assert_four_parts(caught.value, where=str(run.path), found="no checkpoint", todo="let the job run until")
    made = files.sample()
    for step in range(10, 21):
        files.write_checkpoint(run.path, step, made)
    with pytest.raises(NotFoundError) as caught:
        run.manifest(3)
    assert caught.value.found == "steps " + ", ".join(map(str, range(11, 21)))
    assert caught.value.expected == "a checkpoint of step 3" and "choose one of these" in caught.value.todo


def test_what_is_invalid_is_listed_but_no_newer_and_no_vanished_one(run, monkeypatch):
    for step in (4, 5, 6, 7):
        files.write_checkpoint(run.path, step)
    files.flip(run.path / names.step_dir(7) / "manifest.json", 20)
    files.flip(run.path / names.step_dir(4) / "manifest.json", 20)
    really, listings = Run.step_dirs, iter([[4, 5, 6, 7, 8]])  # 8 is deleted right after the first one
    monkeypatch.setattr(Run, "step_dirs", lambda self: next(listings, None) or really(self))
    newest, found = run.newest_and_invalid()
    assert newest == 6 and list(found) == [7] and found[7].__traceback__ is None
    manifest = run.path / names.step_dir(6) / "manifest.json"
    body = (
        manifest.read_bytes()
        .replace(b'"format": 1', b'"format": 3')
        .replace(b'"format": 2', b'"format": 3')
        .rpartition(b'  "crc32c"')[0]
    )
    manifest.write_bytes(files.sign(body))
    with pytest.raises(NewerError):
        run.newest_and_invalid()


def test_what_lies_beside_the_damaged_ones_is_not_listed(run):
    files.write_checkpoint(run.path, 5)
    run.quarantine(5)
    (run.path / "damaged" / "notes").write_text("mine")
    for step in (7, 3):
        (run.path / "damaged" / names.damaged_dir(step, None)).mkdir()
    assert run.damaged() == [(3, None), (5, A), (7, None)]


def test_a_run_that_can_not_be_listed_says_why(run):
    (run.path / "run.json").unlink()
    run.path.rmdir()
    for action in (run.step_dirs, run.partials, run.committed, run.clear_trash):
        refused(action, run.path, "No such file")


# --- moving and deleting


MOVED = [("mkdir", "{}"), ("fsync", "run"), ("rename", names.step_dir(5)), ("fsync", "{}"), ("fsync", "run")]


@pytest.mark.parametrize("folder", ["abandoned", "damaged"])
def test_what_is_moved_aside_is_synced_where_it_comes_to_and_from(run, calls, folder):
    files.write_checkpoint(run.path, 5)
    del calls[:]
    target = run.abandon(5, A) if folder == "abandoned" else run.quarantine(5)
    assert calls == [(call, name.format(folder)) for call, name in MOVED]
    assert target == run.path / folder / f"{names.step_dir(5)}-{A}" and target.is_dir()


@pytest.mark.parametrize("call", ["mkdir", "rename", "fsync"])
@pytest.mark.parametrize("folder", ["abandoned", "damaged"])
def test_a_move_that_is_refused_names_where_to(run, calls, folder, call):
    files.write_checkpoint(run.path, 5)
    calls.failing[call] = FULL
    move = (lambda: run.abandon(5, A)) if folder == "abandoned" else (lambda: run.quarantine(5))
    refused(move, run.path / folder / f"{names.step_dir(5)}-{A}")


def test_a_checkpoint_that_is_gone_can_not_be_abandoned(run):
    refused(lambda: run.abandon(5, A), run.path / names.step_dir(5), "No such file")


def test_a_partial_one_is_renamed_durably_before_it_is_deleted(run, calls):
    partial = files.write_partial(run.path, 5, files.sample())
    del calls[:]
    run.clear((5, A))
    assert calls[:2] == [("rename", partial.name), ("fsync", "run")]
    assert calls[2][0] == "rmdir" and not partial.exists() and not list(run.path.glob(".trash-*"))
    del calls[:]
    run.clear((5, A))
    assert calls == [("rename", partial.name)], "there is none"


@pytest.mark.parametrize("call", ["rename", "fsync"])
def test_a_partial_one_that_can_not_be_renamed_is_an_error(run, calls, call):
    partial = files.write_partial(run.path, 5, files.sample())
    calls.failing[call] = FULL
    refused(lambda: run.clear((5, A)), partial)


@pytest.mark.parametrize("place", ["run", "damaged"])
def test_a_checkpoint_is_renamed_durably_before_it_is_deleted(run, calls, place):
    folder, _ = files.write_checkpoint(run.path, 5)
    if place == "damaged":
        folder = run.quarantine(5)
    del calls[:]
    name = str(folder.relative_to(run.path))
    assert run.discard(name, 5) and not folder.exists()
    places = ["run"] if place == "run" else [place, "run"]
    assert [call for call in calls if call[0] != "rmdir"] == [("rename", folder.name), *(("fsync", p) for p in places)]
    assert calls[-1][0] == "rmdir" and calls[-1][1].startswith(".trash-step-0000000005-")
    assert run.discard(name, 5), "there is none"


def test_what_can_not_be_deleted_whole_is_left_for_the_next_start(run, calls):
    folder, _ = files.write_checkpoint(run.path, 5)
    calls.failing["rmdir"] = OSError(errno.EBUSY, "Device or resource busy")
    assert not run.discard(folder.name, 5) and not folder.exists()
    (trash,) = run.path.glob(".trash-*")
    calls.failing.clear()
    run.clear_trash()
    assert not trash.exists()


@pytest.mark.parametrize("call", ["rename", "fsync"])
def test_a_checkpoint_that_can_not_be_renamed_is_an_error(run, calls, call):
    folder, _ = files.write_checkpoint(run.path, 5)
    calls.failing[call] = FULL
    refused(lambda: run.discard(folder.name, 5), folder)
