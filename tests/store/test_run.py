"""The run directory: made once, read by anybody, changed by renames."""

import contextlib
import os
import stat
import subprocess
import sys

import pytest

from deepfreeze.errors import CorruptError, NotFoundError, RunError
from deepfreeze.format import names
from deepfreeze.format.structure import Structure
from deepfreeze.store.posix_store import PosixStore
from deepfreeze.store.writable_run import WritableRun
from tests.support import files, processes


def test_a_run_keeps_its_id(tmp_path):
    first = WritableRun.open_or_make(tmp_path / "run")
    assert WritableRun.open_or_make(tmp_path / "run") == first == WritableRun.open(str(tmp_path / "run"))
    assert os.listdir(tmp_path / "run") == ["run.json"]


def test_jobs_that_make_one_run_at_once_agree_on_its_id(tmp_path):
    code = "import sys; from deepfreeze.store.writable_run import WritableRun; print(WritableRun.open_or_make(sys.argv[1]).run_id)"
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    with contextlib.ExitStack() as started:
        jobs = [started.enter_context(processes.child(command, stdout=subprocess.PIPE, text=True)) for _ in range(4)]
        assert len({job.communicate(timeout=processes.LIMIT_S)[0] for job in jobs}) == 1
    assert os.listdir(tmp_path / "run") == ["run.json"]


def assert_four_parts(error, where):
    assert error.where == str(where)
    assert error.expected and error.found and error.todo
    assert all(part in str(error) for part in (error.where, error.expected, error.found))


def test_a_file_is_refused(tmp_path):
    (tmp_path / "run").write_text("precious")
    with pytest.raises(RunError) as caught:
        WritableRun.open_or_make(tmp_path / "run")
    assert_four_parts(caught.value, tmp_path / "run")
    assert caught.value.found == "a file"
    with pytest.raises(NotFoundError, match="a file"):
        WritableRun.open(tmp_path / "run")


def test_a_read_only_directory_is_refused(tmp_path, monkeypatch):
    run = tmp_path / "run"
    run.mkdir()
    run.chmod(stat.S_IRUSR | stat.S_IXUSR)
    if os.geteuid() == 0:
        # Nothing is read-only to root but a mount; this is what the write probe meets there.
        def refuse(*args, **kwargs):
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr("deepfreeze.store.durable.write", refuse)
    with pytest.raises(RunError) as caught:
        WritableRun.open_or_make(run)
    assert_four_parts(caught.value, run)
    run.chmod(0o700)


def test_a_directory_that_is_no_run_is_not_found(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(NotFoundError) as caught:
            WritableRun.open(path)
        assert_four_parts(caught.value, path)


@pytest.mark.parametrize("text", ["", "{}", '{"format": 2, "run_id": "x", "created": "y"}', "[1]", "\0" * 100])
def test_a_damaged_run_file_is_corrupt(tmp_path, text):
    files.write_run(tmp_path)
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(CorruptError):
        WritableRun.open(tmp_path)
    with pytest.raises(CorruptError):
        WritableRun.open_or_make(tmp_path)


def test_a_runs_file_has_a_checksum_and_one_without_is_read_too(tmp_path):
    run = WritableRun.open_or_make(tmp_path / "run")
    text = (tmp_path / "run" / "run.json").read_text()
    signed = files.write_run(tmp_path / "signed", signed=True)
    assert WritableRun.open(signed) == WritableRun(PosixStore(signed), files.RUN_ID, files.CREATED)
    assert WritableRun.open(files.write_run(tmp_path / "old")).run_id == files.RUN_ID
    digit = "1" if run.run_id[0] != "1" else "2"
    for changed in (
        text.replace(run.run_id, digit + run.run_id[1:]),
        text.replace(" ", "  ", 1),
        text[:-1],
        text + "\n",
    ):
        (tmp_path / "run" / "run.json").write_text(changed)
        with pytest.raises(CorruptError) as caught:
            WritableRun.open(tmp_path / "run")
        assert_four_parts(caught.value, tmp_path / "run" / "run.json")


def test_a_run_that_lost_its_identity_does_not_get_another_one(tmp_path):
    run = files.write_run(tmp_path / "run")
    files.write_checkpoint(run, 5)
    (run / "run.json").unlink()
    with pytest.raises(CorruptError) as caught:
        WritableRun.open_or_make(run)
    assert_four_parts(caught.value, run / "run.json")
    assert "every manifest.json" in caught.value.todo
    files.write_run(run)
    assert WritableRun.open_or_make(run).committed() == [5]


def test_only_directories_with_a_valid_manifest_count(tmp_path):
    run = WritableRun.open(files.write_run(tmp_path))
    made = files.sample()
    for step in (30, 5, 40, 50, 60, 70):
        files.write_checkpoint(tmp_path, step, made)
    (tmp_path / names.step_dir(40) / "manifest.json").unlink()
    files.flip(tmp_path / names.step_dir(50) / "manifest.json", 20)
    os.rename(tmp_path / names.step_dir(60), tmp_path / names.step_dir(61))
    (tmp_path / names.step_dir(70) / "manifest.json").rename(tmp_path / names.step_dir(70) / "manifest.json.tmp")
    files.write_partial(tmp_path, 80, made)
    (tmp_path / "step-12").mkdir()
    assert run.committed() == [5, 30]
    assert run.step_dirs() == [5, 30, 40, 50, 61, 70]
    assert run.partials() == [(80, files.ATTEMPT)]
    (tmp_path / "step-0000000090").write_text("a file")
    newest, found = run.newest_and_invalid()
    assert newest == run.newest() == 30 and sorted(found) == [40, 50, 61, 70, 90]
    older, again = run.newest_and_invalid({30, 61, 90})
    assert older == 5 and list(again) == [70, 50, 40], "from the newest down"
    for step, error in found.items():
        assert_four_parts(error, tmp_path / names.step_dir(step) / "manifest.json")


def test_a_checkpoint_of_another_run_does_not_count(tmp_path):
    files.write_run(tmp_path)
    files.write_checkpoint(tmp_path, 5)
    text = (tmp_path / "run.json").read_text().replace(files.RUN_ID, "f" * 32)
    (tmp_path / "run.json").write_text(text)
    assert WritableRun.open(tmp_path).committed() == []
    with pytest.raises(CorruptError, match="belongs elsewhere"):
        WritableRun.open(tmp_path).manifest(5)


def test_a_step_that_does_not_exist_names_those_that_do(tmp_path):
    files.write_run(tmp_path)
    files.write_checkpoint(tmp_path, 5)
    files.write_checkpoint(tmp_path, 30)
    with pytest.raises(NotFoundError) as caught:
        WritableRun.open(tmp_path).manifest(31)
    assert "5, 30" in caught.value.found


def test_structures_are_stored_once_and_checked_by_their_hash(tmp_path):
    run = WritableRun.open_or_make(tmp_path / "run")
    structure = Structure.from_bytes(files.sample().structure, "x")
    run.store_structure(structure)
    file = run.path / "structures" / f"{structure.hash}.json"
    before = file.stat().st_mtime_ns
    run.store_structure(structure)
    assert file.stat().st_mtime_ns == before
    assert run.structure(structure.hash) == structure
    assert os.listdir(file.parent) == [f"{structure.hash}.json"]
    files.flip(file, 100)
    with pytest.raises(CorruptError):
        run.structure(structure.hash)
    run.store_structure(structure)
    assert run.structure(structure.hash) == structure
    file.unlink()
    with pytest.raises(CorruptError, match="no such file"):
        run.structure(structure.hash)


def test_abandoned_checkpoints_are_kept_but_do_not_count(tmp_path):
    run = WritableRun.open(files.write_run(tmp_path))
    files.write_checkpoint(tmp_path, 5)
    moved = run.abandon(5, files.ATTEMPT)
    assert run.committed() == []
    assert moved == tmp_path / "abandoned" / f"step-0000000005-{files.ATTEMPT}"
    assert (moved / "model.weights.h5").exists()
    with pytest.raises(RunError):
        run.abandon(5, files.ATTEMPT)


def test_damaged_checkpoints_are_kept_under_names_of_their_own(tmp_path):
    run = WritableRun.open(files.write_run(tmp_path))
    made, moved = files.sample(), []
    for number in range(6):
        folder, _ = files.write_checkpoint(tmp_path, 5, made)
        (folder / "number").write_text(str(number))
        if number % 2:
            (folder / "manifest.json").unlink()
        moved.append(run.quarantine(5))
        assert not folder.exists()
    stems = [f"step-0000000005-{files.ATTEMPT}", "step-0000000005-unknown"]
    assert [path.name for path in moved] == [stem + suffix for suffix in ("", ".2", ".3") for stem in stems]
    assert [(path / "number").read_text() for path in moved] == list("012345")
    assert run.damaged() == [(5, None)] * 3 + [(5, files.ATTEMPT)] * 3
    assert run.committed() == run.step_dirs() == []


def test_a_checkpoint_that_is_gone_cannot_be_moved_and_that_is_no_error(tmp_path):
    run = WritableRun.open(files.write_run(tmp_path))
    assert run.damaged() == []
    assert run.quarantine(5) is None
    assert run.damaged() == []


def test_a_checkpoint_that_may_not_be_moved_is_an_error_with_the_reason(tmp_path):
    run = WritableRun.open(files.write_run(tmp_path))
    folder, _ = files.write_checkpoint(tmp_path, 5)
    (tmp_path / "damaged").write_text("a file")
    with pytest.raises(RunError) as caught:
        run.quarantine(5)
    assert_four_parts(caught.value, tmp_path / "damaged" / f"step-0000000005-{files.ATTEMPT}")
    assert folder.exists()


def test_partials_and_trash_are_cleared_and_nothing_else(tmp_path):
    run = WritableRun.open(files.write_run(tmp_path))
    made = files.sample()
    files.write_checkpoint(tmp_path, 5, made)
    files.write_partial(tmp_path, 10, made)
    run.clear((10, files.ATTEMPT))
    run.clear((10, files.ATTEMPT))
    os.rename(files.write_partial(tmp_path, 15, made), tmp_path / names.trash_dir(15, files.ATTEMPT))
    failed = files.failed_file(10)
    for name in (failed, names.temporary(failed), "step-0000000010.failed-mine"):
        (tmp_path / name).write_text("rank 3 failed: no space\n")
    (tmp_path / files.failed_file(20)).mkdir()
    assert WritableRun.open(tmp_path).told() == {(step, files.ATTEMPT) for step in (10, 20)}
    (tmp_path / ".trash-mine").mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / names.trash_dir(20, files.ATTEMPT)).symlink_to(tmp_path / "precious")
    (tmp_path / "precious" / "file").write_text("x")
    run.clear_trash()
    left = set(os.listdir(tmp_path)) - {names.trash_dir(20, files.ATTEMPT), files.failed_file(20)}
    mine = {".trash-mine", "step-0000000010.failed-mine", "precious"}
    assert left == {*mine, "run.json", "structures", names.step_dir(5)}
    assert (tmp_path / "precious" / "file").exists()
