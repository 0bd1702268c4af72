"""PosixStore beyond the tests of every store: open descriptors, syncs, links, and errors of the system."""

import errno
import os

import pytest

import veloc_bindings
from deepfreeze.errors import CorruptError, EngineError, LockedError, RunError
from deepfreeze.store.posix_store import PosixStore
from deepfreeze.store.run import Run
from deepfreeze.store.writable_run import WritableRun
from tests.support import files
from tests.support.calls import Calls
from tests.support.refusals import assert_four_parts


@pytest.fixture
def store(tmp_path):
    return PosixStore(files.write_run(tmp_path / "run"))


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_a_directory_says_where_it_is(store, tmp_path):
    assert store.directory == tmp_path / "run"


def test_no_descriptor_stays_open(store):
    store.put("tags/one", b"1")
    before = descriptors()
    for number in range(5):
        store.list("tags")
        store.read("tags/one", 9)
        store.append(f"events/{number}.jsonl").close()
    assert descriptors() == before


def test_what_is_removed_stays_removed_after_a_loss_of_power(store, monkeypatch):
    store.put("tags/one", b"1")
    calls = Calls(monkeypatch)
    store.remove("tags/one")
    assert calls == [("fsync", "tags")]


def test_a_link_to_the_very_bytes_is_no_file_of_the_run(store, tmp_path):
    """Readers follow no link: what is put must be there for them."""
    (tmp_path / "elsewhere").write_bytes(b"1")
    store.where("plan.json").symlink_to(tmp_path / "elsewhere")
    store.put("plan.json", b"1")
    assert store.read("plan.json", 9) == b"1" and (tmp_path / "elsewhere").read_bytes() == b"1"


def test_two_files_are_appended_in_one_folder_each_at_its_end(store):
    first, second = store.append("events/a.jsonl"), store.append("events/b.jsonl")
    first.write(b"one\n")
    os.truncate(
        store.where("events/a.jsonl"), 0
    )  # the next write goes to the end that there is, not to where the last one was
    first.write(b"two\n")
    second.write(b"three\n")
    assert store.read("events/a.jsonl", 99) == b"two\n" and store.read("events/b.jsonl", 99) == b"three\n"
    first.close()
    second.close()


def test_a_file_that_another_process_deletes_meanwhile_has_no_bytes(store, monkeypatch):
    store.put("tags/one", b"1")
    store.put("tags/two", b"22")
    lstat = os.lstat

    def gone(path, *arguments, **options):
        if os.fspath(path).endswith("one"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return lstat(path, *arguments, **options)

    monkeypatch.setattr(os, "lstat", gone)
    assert store.nbytes("tags") == 2


def test_a_name_that_the_file_system_refuses_is_no_missing_parent(tmp_path, monkeypatch):
    calls = Calls(monkeypatch)
    calls.failing["mkdir"] = FileNotFoundError(errno.ENOENT, "No such file or directory")
    with pytest.raises(RunError) as caught:
        PosixStore(tmp_path / "new").make()
    assert_four_parts(caught.value, where=str(tmp_path / "new"), found="No such file or directory")
    assert "parent" not in caught.value.expected


def test_the_lock_is_for_one_rank_unless_more_are_named(store, monkeypatch):
    """The advice in the error depends on that."""
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    said = []
    with store.lock():
        for ranks in ((), (1,), (2,)):
            with pytest.raises(LockedError) as caught:
                store.lock(*ranks)
            said.append(caught.value.todo)
    assert said[0] == said[1] != said[2]


@pytest.mark.parametrize("code", ["CORRUPT", "INCOMPLETE", "DIVERGED", "IO"])
def test_what_can_not_be_published_is_damaged_or_refused(store, monkeypatch, code):
    def fail(*arguments):
        raise veloc_bindings.EngineFault(getattr(veloc_bindings, code), "the reason")

    monkeypatch.setattr(veloc_bindings, "commit", fail)
    with pytest.raises(EngineError if code == "IO" else CorruptError) as caught:
        store.publish(40, files.ATTEMPT)
    assert_four_parts(caught.value, where="step-0000000040.partial-", found="the reason", todo="nothing was deleted")


def test_trash_that_can_not_be_looked_for_is_an_error(store, monkeypatch):
    def fail(self):
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(PosixStore, "sweep", fail)
    with pytest.raises(RunError, match="Permission denied"):
        WritableRun.open(store).clear_trash()


def test_only_an_error_that_may_pass_is_tried_again(store, monkeypatch):
    files.write_checkpoint(store.path, 5)
    run, tries = Run.open(store), []

    def fail(self, name, limit):
        tries.append(name)
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(PosixStore, "read", fail)
    with pytest.raises(RunError, match="Permission denied"):
        run.manifest(5)
    assert len(tries) == 1
