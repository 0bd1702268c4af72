"""The sections of a run's plan.json: who reads and writes them, and what becomes of a file that is not whole."""

import pytest

from deepfreeze.errors import CorruptError, NewerError, RunError
from deepfreeze.format import names
from deepfreeze.store.plan import put_section, read_plan, read_section
from deepfreeze.store.run import Run
from deepfreeze.store.writable_run import WritableRun
from tests.support import configs, files, memory_store, plans

OTHER = "f" * 32
NEW = {"key": {"nodes": 2}, "k": 3}


@pytest.fixture(params=["directory", "memory"])
def run(tmp_path, request):
    path = files.write_run(tmp_path / "nt3")
    if request.param == "directory":
        return Run.open(path)
    return Run.open(memory_store.copy_of(path, f"memory://{tmp_path}"))


def test_a_section_is_written_beside_the_others(run):
    assert read_plan(run) is None and read_section(run, "auto") is None
    put_section(run, "auto", plans.section_json())
    put_section(run, "from-the-future", NEW)
    put_section(run, "auto", plans.section_json(interval=4))
    found = read_plan(run)
    assert found.sections == {"auto": plans.section_json(interval=4), "from-the-future": NEW}
    assert read_section(run, "auto")["interval"] == 4 and read_section(run, "other") is None


def test_a_damaged_plan_or_another_runs_is_replaced_with_a_warning(run):
    for data in (plans.plan_bytes()[:-1], plans.plan_bytes(OTHER), b""):
        run.store.put(names.PLAN_FILE, data)
        with pytest.raises(CorruptError):
            read_plan(run)
        said = {}
        put_section(run, "new", NEW, notify=said.__setitem__)
        assert read_plan(run).sections == {"new": NEW}
        ((level, message),) = said.items()
        assert level == "warning" and message.startswith(f"{run.store.where('plan.json')}: expected ")
        assert message.endswith("It is replaced now, and what it knew beside new is lost.")


def test_a_newer_versions_plan_is_never_overwritten(run):
    newer = configs.sign(b'{"format": 2, "sections": []}')
    run.store.put(names.PLAN_FILE, newer)
    with pytest.raises(NewerError):
        put_section(run, "auto", plans.section_json())
    assert run.store.read(names.PLAN_FILE, 1000) == newer


def test_an_attempt_whose_run_was_taken_writes_no_plan(run):
    run.store.put(names.OWNER_FILE, f"{OTHER}\n".encode())
    with pytest.raises(RunError, match=f"attempt {OTHER}, which has taken the run"):
        put_section(run, "auto", NEW, files.ATTEMPT)
    assert read_plan(run) is None
    put_section(run, "auto", NEW, OTHER)
    assert read_section(run, "auto") == NEW


def test_a_section_that_no_plan_can_have_changes_nothing(run):
    put_section(run, "auto", NEW)
    for section in ({}, {"key": {}, "a": float("nan")}, {"key": {}, "a": "x" * (1 << 20)}):
        with pytest.raises(ValueError, match="plan"):
            put_section(run, "auto", section)
    assert read_section(run, "auto") == NEW


def test_what_is_no_file_is_no_plan_and_is_not_replaced(tmp_path):
    run = Run.open(files.write_run(tmp_path / "nt3"))
    (tmp_path / "nt3" / "plan.json").mkdir()
    with pytest.raises(CorruptError):
        read_plan(run)
    with pytest.raises(RunError):
        put_section(run, "auto", NEW)


def test_a_start_of_a_job_and_its_cleaning_leave_the_plan_alone(tmp_path):
    path = files.write_run(tmp_path / "nt3")
    files.write_checkpoint(path, 10)
    plans.write_plan(path)
    run = WritableRun.open_or_make(path)
    run.clear_trash()
    assert read_section(run, "auto") == plans.section_json() and run.committed() == [10]
