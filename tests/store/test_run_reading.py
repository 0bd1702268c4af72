"""How a run's own files are read, and made: what is refused, and what is left open or behind."""

import errno
import os

import pytest

from deepfreeze.errors import CorruptError, NewerError, NotFoundError, RunError
from deepfreeze.format import names
from deepfreeze.store.catalog import checkpoints, choose, latest
from deepfreeze.store.posix_store import PosixStore
from deepfreeze.store.run import Run
from deepfreeze.store.writable_run import WritableRun
from tests.support import files


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_a_run_without_a_valid_checkpoint_has_no_newest_one(tmp_path):
    run = files.write_run(tmp_path / "run")
    assert Run.open(run).newest_and_invalid() == (None, {}) and Run.open(run).newest() is None
    folder, _ = files.write_checkpoint(run, 5)
    (folder / names.MANIFEST_FILE).unlink()
    newest, invalid = Run.open(run).newest_and_invalid()
    assert newest is None and list(invalid) == [5]


@pytest.mark.parametrize("what", ["no such directory", "a directory without one", "a file"])
def test_what_is_no_run_is_told_by_what_it_is(tmp_path, what):
    path = tmp_path / "run"
    if what == "a file":
        path.write_text("text")
    elif what != "no such directory":
        path.mkdir()
    with pytest.raises(NotFoundError) as caught:
        Run.open(path)
    assert caught.value.found == what


def test_a_run_file_that_can_not_be_read_says_why(tmp_path, monkeypatch):
    run = files.write_run(tmp_path / "run")

    def fails(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("deepfreeze.store.posix_store.PosixStore.read", fails)
    with pytest.raises(RunError, match="Permission denied"):
        Run.open(run)


def test_a_manifest_is_read_through_no_link_and_leaves_no_descriptor(tmp_path):
    run = files.write_run(tmp_path / "run")
    folder, _ = files.write_checkpoint(run, 5)
    opened = Run.open(run)
    before = descriptors()
    assert opened.manifest(5).step == 5
    manifest = folder / names.MANIFEST_FILE
    aside = folder.rename(tmp_path / "aside")
    folder.symlink_to(aside)
    with pytest.raises(CorruptError):
        opened.manifest(5)
    folder.unlink()
    aside.rename(folder)
    manifest.rename(folder / "other")
    manifest.symlink_to(folder / "other")
    with pytest.raises(CorruptError) as caught:
        opened.manifest(5)
    assert str(caught.value.where) == str(manifest), "the whole path, not the name"
    assert descriptors() == before


def test_an_identity_is_made_where_files_have_no_second_name(tmp_path, monkeypatch):
    def fails(*arguments):
        raise OSError(95, "no hard links")

    monkeypatch.setattr(os, "link", fails)
    run = WritableRun.open_or_make(tmp_path / "run")
    assert Run.open(tmp_path / "run").run_id == run.run_id and os.listdir(tmp_path / "run") == [names.RUN_FILE]


def test_an_identity_that_can_not_be_made_leaves_nothing_behind(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()

    def fails(*arguments):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "link", fails)
    really = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: fails() if str(b).endswith(names.RUN_FILE) else really(a, b))
    with pytest.raises(RunError, match="Read-only"):
        WritableRun.open_or_make(tmp_path / "run")
    assert os.listdir(tmp_path / "run") == []


def test_checkpoints_without_an_identity_are_counted_and_nothing_else_is(tmp_path):
    run = files.write_run(tmp_path / "run")
    files.write_checkpoint(run, 5)
    (run / "notes").write_text("mine")
    (run / names.RUN_FILE).unlink()
    with pytest.raises(CorruptError) as caught:
        WritableRun.open_or_make(run)
    assert "1 checkpoints" in caught.value.expected


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """A run with steps 5 and 30, and a function that has reads of the newer manifest fail: with these errors, one after the other."""
    files.write_run(tmp_path)
    for step in (5, 30):
        files.write_checkpoint(tmp_path, step)
    read, left = PosixStore.read, []

    def fails(self, name, limit):
        if name == f"{names.step_dir(30)}/{names.MANIFEST_FILE}" and left:
            number = left.pop()
            raise OSError(number, os.strerror(number))
        return read(self, name, limit)

    monkeypatch.setattr(PosixStore, "read", fails)
    return Run.open(tmp_path), left.extend


NEWEST = {
    "run": lambda run: run.newest(),
    "latest": lambda run: latest(run.path).step,
    "choose": lambda run: choose(run, None),
    "all": lambda run: [info.step for info in checkpoints(run.path)][-1],
}


@pytest.mark.parametrize("ask", NEWEST)
def test_no_older_checkpoint_passes_for_the_newest_for_want_of_an_answer(failing, ask):
    run, fail = failing
    fail([errno.ESTALE] * 2)
    with pytest.raises(RunError, match=r"manifest.json: .*Stale file handle"):
        NEWEST[ask](run)
    for number in (errno.ESTALE, errno.EIO):
        fail([number])  # it passes
        assert NEWEST[ask](run) == 30
    fail([errno.EIO] * 2)  # the disk has lost its bytes
    assert NEWEST[ask](run) == 5


@pytest.mark.parametrize("ask", NEWEST)
def test_no_older_checkpoint_takes_a_newer_versions_place(failing, ask):
    run, _ = failing
    file = run.path / names.step_dir(30) / names.MANIFEST_FILE
    body = file.read_bytes().replace(b'"format": 1', b'"format": 3').replace(b'"format": 2', b'"format": 3')
    file.write_bytes(files.sign(body[: body.rindex(b'  "crc32c"')]))
    with pytest.raises(NewerError):
        NEWEST[ask](run)


def test_a_checkpoint_that_is_removed_while_it_is_read_is_passed_over(failing, monkeypatch):
    run, fail = failing
    fail([errno.ESTALE])
    read = PosixStore.read

    def removed(self, name, limit):
        try:
            return read(self, name, limit)
        except OSError:
            os.rename(self.where(names.step_dir(30)), self.where(names.trash_dir(30, files.ATTEMPT)))
            raise

    monkeypatch.setattr(PosixStore, "read", removed)
    assert latest(run.path).step == 5
