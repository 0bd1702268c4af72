"""Bytes and names that stay, and what is said where the system refuses."""

import errno
import os
import stat

import pytest

from deepfreeze.errors import CorruptError, RunError
from deepfreeze.store import durable, failures
from tests.support.calls import Calls
from tests.support.refusals import assert_four_parts


@pytest.fixture
def calls(monkeypatch):
    return Calls(monkeypatch)


def opened() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_is_written_is_written_whole_and_synced(tmp_path, monkeypatch, calls):
    really = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: really(fd, data[:3]))  # as a signal, or a full disk, may cut it
    (tmp_path / "file").write_bytes(b"more than there will be")
    durable.write(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"
    assert calls == [("fsync", "file")]


def test_no_descriptor_stays_open_and_a_failed_sync_is_named(tmp_path, calls):
    before = opened()
    durable.write(tmp_path / "file", b"x")
    durable.sync_dir(tmp_path)
    calls.failing["fsync"] = OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="fsync: Input/output error") as caught:
        durable.write(tmp_path / "file", b"x")
    assert caught.value.errno == errno.EIO
    calls.failing["fsync"] = OSError("no number and no text of the system's")
    with pytest.raises(OSError, match="fsync: no number and no text of the system's"):
        durable.write(tmp_path / "file", b"x")
    with pytest.raises(OSError):
        durable.sync_dir(tmp_path)
    assert opened() == before


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_in_a_files_place_is_not_written_through(tmp_path, link):
    (tmp_path / "precious").write_bytes(b"precious")
    link(tmp_path / "precious", tmp_path / "link")
    durable.write(tmp_path / "link", b"x")
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert (tmp_path / "link").read_bytes() == b"x" and not (tmp_path / "link").is_symlink()


def test_no_umask_makes_a_file_writable_for_everybody(tmp_path):
    before = os.umask(0)
    try:
        durable.write(tmp_path / "file", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o664
    assert durable.DIRECTORY_MODE == 0o775


def test_only_a_directory_is_synced_as_one(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(NotADirectoryError):
        durable.sync_dir(tmp_path / "file")


def test_a_file_is_replaced_by_a_synced_one_and_its_name_synced(tmp_path, calls):
    (tmp_path / "file").write_bytes(b"old")
    durable.replace(tmp_path / "file", b"new")
    assert calls == [("fsync", "file.tmp"), ("replace", "file.tmp"), ("fsync", tmp_path.name)]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"new"}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_replacement_that_fails_leaves_the_old_file_alone(tmp_path, calls, call):
    (tmp_path / "file").write_bytes(b"old")
    calls.failing[call] = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        durable.replace(tmp_path / "file", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}


def test_a_replacement_that_can_not_begin_says_why(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError):
        durable.replace(tmp_path / "file", b"new")


def test_a_probe_does_what_a_commit_does_and_leaves_nothing(tmp_path, calls):
    durable.probe(tmp_path)
    assert [name for name, _ in calls] == ["fsync", "rename", "fsync"] and calls[2][1] == tmp_path.name
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_probe_that_fails_names_the_call_and_leaves_nothing(tmp_path, calls, call):
    calls.failing[call] = OSError(errno.EINVAL, "Invalid argument")
    with pytest.raises(OSError, match=f"{call}: Invalid argument"):
        durable.probe(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_probe_where_directories_are_not_synced_says_so(tmp_path, monkeypatch):
    def refuse(folder):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(durable, "sync_dir", refuse)
    with pytest.raises(OSError, match="fsync of a directory: Invalid argument"):
        durable.probe(tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_can_not_be_deleted_is_left_and_that_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "other").write_bytes(b"x")
    for gone in (tmp_path / "other", tmp_path / "link", tmp_path / "none"):
        durable.delete(gone)
    assert os.listdir(tmp_path) == ["folder"] and (tmp_path / "folder" / "file").exists()

    def refuse(*arguments, **options):
        raise OSError(errno.EBUSY, "Device or resource busy")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", refuse)
        durable.delete(tmp_path / "folder")
    assert (tmp_path / "folder").is_dir()
    durable.delete(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize(
    ("number", "todo"),
    [
        (errno.ENOSPC, "larger quota"),
        (errno.EDQUOT, "larger quota"),
        (errno.ENOSYS, "another file system"),
        (errno.EOPNOTSUPP, "another file system"),
        (errno.EINVAL, "another file system"),
        (errno.EACCES, "permissions"),
        (errno.EROFS, "mounted read-only"),
    ],
)
def test_a_refused_change_says_what_to_do(number, todo):
    error = failures.refused("/run", OSError(number, os.strerror(number)))
    assert type(error) is RunError
    assert_four_parts(error, where="/run", expected="a directory", found=os.strerror(number), todo=todo)
    assert failures.refused("/run", OSError("a text alone")).found == "a text alone"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EIO, CorruptError),
        (errno.EBADMSG, CorruptError),
        (errno.EUCLEAN, CorruptError),
        (errno.EACCES, RunError),
        (errno.ESTALE, RunError),
    ],
)
def test_only_bytes_that_are_lost_make_a_file_damaged(number, kind):
    failed = OSError(number, os.strerror(number))
    assert failures.has_lost(failed) == (kind is CorruptError)
    error = failures.unreadable("/run/file", failed)
    assert type(error) is kind
    assert_four_parts(error, where="/run/file", found=os.strerror(number))
    without = OSError(number, "")
    assert failures.unreadable("/run/file", without).found == str(without)


def test_a_folder_is_made_once_and_a_file_is_none(tmp_path):
    durable.make_folder(tmp_path / "new")
    durable.make_folder(tmp_path / "new")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        durable.make_folder(tmp_path / "file")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    with pytest.raises(durable.LinkError) as caught:
        durable.make_folder(tmp_path / "link")
    assert caught.value.filename == str(tmp_path / "link")
    assert (tmp_path / "new").is_dir()
