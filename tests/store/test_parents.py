"""The directories above a new run: made where they are missing, unless the place is one of a file system that is not mounted."""

import errno
import os
import stat
from pathlib import Path

import pytest

from deepfreeze.errors import CorruptError, RunError
from deepfreeze.format import names
from deepfreeze.store import durable, file_system
from deepfreeze.store.posix_store import PosixStore
from deepfreeze.store.writable_run import WritableRun


def refused(run, told=None):
    with pytest.raises(RunError) as caught:
        WritableRun.open_or_make(run, told or (lambda above: pytest.fail(f"{above} was told")))
    return caught.value


@pytest.fixture
def points(monkeypatch, tmp_path):
    """The mount points that the system shows: a list of paths, to be added to."""
    found, table = [], tmp_path / "fstab"
    mounts = tmp_path / "mountinfo"

    def add(place, planned=False):
        found.append((str(place).replace(" ", r"\040"), planned))
        mounts.write_text("".join(f"36 21 0:46 / {one} rw - xfs xfs rw\n" for one, only in found if not only))
        table.write_text("# a comment\n\n" + "".join(f"server:/x {one}/ nfs rw 0 0\n" for one, only in found if only))

    monkeypatch.setattr(file_system, "_MOUNTS", mounts)
    monkeypatch.setattr(file_system, "_PLANNED", table)
    return add


def test_missing_directories_above_a_run_are_made_and_told(tmp_path):
    told = []
    before = os.umask(0o022)
    try:
        run = WritableRun.open_or_make(tmp_path / "a" / "b" / "run", told.append)
    finally:
        os.umask(before)
    assert told == [[tmp_path / "a", tmp_path / "a" / "b"]]
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755
    assert WritableRun.open_or_make(run.path, told.append) == run and len(told) == 1
    WritableRun.open_or_make(tmp_path / "a" / "other", told.append)
    assert len(told) == 1, "its parent was there"


def test_each_directory_is_durable_before_the_next_one_is_made(tmp_path, monkeypatch):
    done, mkdir, sync = [], os.mkdir, durable.sync_dir
    monkeypatch.setattr(
        os, "mkdir", lambda path, *mode: (done.append(("mkdir", Path(path).name)), mkdir(path, *mode))[1]
    )
    monkeypatch.setattr(durable, "sync_dir", lambda path: (done.append(("fsync", path.name)), sync(path))[1])
    (tmp_path / "base").mkdir()
    done.clear()
    WritableRun.open_or_make(tmp_path / "base" / "a" / "b" / "run")
    here = tmp_path.name
    made = [
        ("fsync", here),
        ("mkdir", "a"),
        ("fsync", "base"),
        ("mkdir", "b"),
        ("fsync", "a"),
        ("mkdir", "run"),
        ("fsync", "b"),
    ]
    assert done[:7] == made


def test_links_and_two_dots_above_a_run_are_followed(tmp_path):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "runs").symlink_to("scratch")
    told = []
    WritableRun.open_or_make(tmp_path / "runs" / "a" / ".." / "b" / "run", told.append)
    assert (tmp_path / "scratch" / "b" / "run" / names.RUN_FILE).exists()
    assert told == [[tmp_path / "runs" / "a", tmp_path / "runs" / "a" / ".." / "b"]]


def test_nothing_is_made_right_below_the_root():
    error = refused("/no such directory/runs/nt3")
    assert error.found == "none but /" and "file system mounted on this machine?" in error.todo
    assert "mkdir -p /no such directory/runs" in error.todo and not os.path.exists("/no such directory")


@pytest.mark.parametrize("planned", [False, True], ids=["mounted", "fstab"])
def test_nothing_is_made_in_an_empty_mount_point(tmp_path, points, planned):
    """A file system that was to be mounted on it is not, or not yet; with something in it, it is the right one."""
    place = tmp_path / "my scratch"
    place.mkdir()
    points(place, planned)
    error = refused(place / "runs" / "nt3")
    assert error.found == f"none but {place}, a mount point with nothing in it" and os.listdir(place) == []
    assert "file system mounted on this machine?" in error.todo
    (place / "lost+found").mkdir()
    WritableRun.open_or_make(place / "runs" / "nt3")


def test_an_empty_directory_that_is_no_mount_point_is_as_any_other(tmp_path, points):
    (tmp_path / "empty").mkdir()
    points(tmp_path)
    assert WritableRun.open_or_make(tmp_path / "empty" / "a" / "run").committed() == []


def test_a_run_right_below_an_empty_mount_point_is_the_users_own_choice(tmp_path, points):
    (tmp_path / "scratch").mkdir()
    points(tmp_path / "scratch")
    assert WritableRun.open_or_make(tmp_path / "scratch" / "run").committed() == []


def test_a_file_in_the_way_is_named_and_kept(tmp_path):
    (tmp_path / "runs").write_text("mine")
    error = refused(tmp_path / "runs" / "a" / "nt3")
    assert error.where == str(tmp_path / "runs" / "a" / "nt3") and error.found == f"{tmp_path / 'runs'}, a file"
    assert (tmp_path / "runs").read_text() == "mine"


@pytest.mark.parametrize("name", ["runs", "runs/nt3"])
def test_a_link_to_nothing_is_asked_about_and_not_followed(tmp_path, name):
    """The run's own name, or one above it, leads to a file system that is not mounted here."""
    link = tmp_path / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "scratch" / "mine")
    error = refused(tmp_path / "runs" / "nt3")
    assert "a symbolic link to nothing" in error.found and f"{tmp_path}/scratch/mine is on" in error.todo
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.ENAMETOOLONG])
def test_what_the_system_refuses_to_make_leaves_nothing_behind(tmp_path, monkeypatch, number):
    mkdir = os.mkdir

    def refuse(path, *mode):
        if Path(path).name == "b":
            raise OSError(number, os.strerror(number))
        mkdir(path, *mode)

    monkeypatch.setattr(os, "mkdir", refuse)
    error = refused(tmp_path / "a" / "b" / "run")
    assert (error.where, error.found) == (str(tmp_path / "a" / "b"), os.strerror(number)) and os.listdir(tmp_path) == []


def test_a_directory_that_can_not_be_made_durable_is_taken_away_again(tmp_path, monkeypatch):
    sync = durable.sync_dir

    def refuse(path):
        if path.name == "a":
            raise OSError(errno.EIO, "Input/output error")
        sync(path)

    monkeypatch.setattr(durable, "sync_dir", refuse)
    assert refused(tmp_path / "a" / "b" / "run").found == "Input/output error" and os.listdir(tmp_path) == []


def test_a_run_that_fails_takes_the_directories_above_it_along(tmp_path, monkeypatch):
    def full(store, name, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PosixStore, "create", full)
    refused(tmp_path / "a" / "b" / "run")
    assert os.listdir(tmp_path) == []
    monkeypatch.setattr(
        durable, "probe", lambda folder: (folder.parent / "another job's").mkdir() or full(None, "", b"")
    )
    refused(tmp_path / "a" / "b" / "run")
    assert os.listdir(tmp_path / "a" / "b") == ["another job's"], "what another job has put there stays"


def test_a_path_that_is_too_long_makes_nothing(tmp_path):
    path = tmp_path
    while len(str(path)) < 4096:
        path /= "d" * 200
    assert "a path of at most" in refused(path).expected and os.listdir(tmp_path) == []


def test_jobs_that_make_the_same_directories_at_once_both_go_on(tmp_path, monkeypatch):
    """Another job makes the directory between the look and the call."""
    mkdir = os.mkdir

    def late(path, *mode):
        if Path(path).name == "a" and not os.path.exists(path):
            mkdir(path)
        mkdir(path, *mode)

    monkeypatch.setattr(os, "mkdir", late)
    told = []
    WritableRun.open_or_make(tmp_path / "a" / "b" / "run", told.append)
    assert told == [[tmp_path / "a" / "b"]], "the other job's is not this one's"


def test_a_run_whose_identity_is_lost_stays_with_what_is_above_it(tmp_path):
    folder = tmp_path / "a" / "run" / names.step_dir(5)
    folder.mkdir(parents=True)
    with pytest.raises(CorruptError):
        WritableRun.open_or_make(tmp_path / "a" / "run")
    assert folder.is_dir()


def test_all_directories_above_are_opened_anew_from_the_top(tmp_path, monkeypatch):
    opened, real = [], os.open
    monkeypatch.setattr(os, "open", lambda path, *more: (opened.append(Path(path)), real(path, *more))[1])
    PosixStore(tmp_path / "none" / "run").refresh()
    assert opened[0] == Path("/") and opened[-3:] == [tmp_path, tmp_path / "none", tmp_path / "none" / "run"]
