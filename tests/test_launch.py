"""What launchers and schedulers say of a job in a process's environment."""

import pytest

from deepfreeze.errors import OptionError
from deepfreeze.launch import job_ends_at, launched_as_several
from deepfreeze.notices import unheard


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"SLURM_STEP_NUM_TASKS": "4"}, ("SLURM_STEP_NUM_TASKS", 4)),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, ("OMPI_COMM_WORLD_SIZE", 2)),
        ({"PMI_SIZE": "16"}, ("PMI_SIZE", 16)),
        ({"WORLD_SIZE": "8"}, ("WORLD_SIZE", 8)),
        ({"HOROVOD_SIZE": "2"}, ("HOROVOD_SIZE", 2)),
        ({"SLURM_NTASKS": "8"}, None),
        ({"OMPI_COMM_WORLD_SIZE": "1", "PMI_SIZE": "", "WORLD_SIZE": "all"}, None),
        ({}, None),
    ],
)
def test_a_launcher_tells_of_several_processes(environment, found):
    assert launched_as_several(environment) == found


def now():
    return 1000.0


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"DEEPFREEZE_ENDS_AT": "3000.5", "SLURM_JOB_END_TIME": "4000"}, 3000.5),
        ({"SLURM_JOB_END_TIME": "4000"}, 4000.0),
        ({"DEEPFREEZE_ENDS_AT": "", "SLURM_JOB_END_TIME": "4000"}, 4000.0),
        ({}, None),
    ],
)
def test_the_jobs_end_is_the_users_or_the_schedulers(environment, expected):
    assert job_ends_at(environment, unheard, now) == expected


@pytest.mark.parametrize("said", ["0", "soon", "999", "inf"])
def test_a_scheduler_that_names_no_time_to_come_is_left_aside(said):
    told = []
    assert job_ends_at({"SLURM_JOB_END_TIME": said}, lambda *one: told.append(one), now) is None
    message = f"SLURM_JOB_END_TIME says {said!r}, which is no time to come: the job's end is not known (ends_at=)"
    assert told == [("info", message)]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("echo 60", 1060.0), ("echo inf", None), ("echo", None), ("exit 1", None)],
    ids=["60", "inf", "none", "fails"],
)
def test_flux_says_how_many_seconds_are_left(tmp_path, monkeypatch, answer, expected):
    flux = tmp_path / "flux"
    flux.write_text(f'#!/bin/sh\n[ "$*" = "job timeleft" ] || exit 2\n{answer}\n')
    flux.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert job_ends_at({"FLUX_JOB_ID": "f1"}, unheard, now) == expected
    assert job_ends_at({}, unheard, now) is None, "no job of Flux"


@pytest.mark.parametrize(
    ("said", "message"), [("14:00", "DEEPFREEZE_ENDS_AT: expected a time in"), ("999", "found 999, 1 s ago")]
)
def test_a_wrong_variable_of_the_users_own_is_refused(said, message):
    with pytest.raises(OptionError, match=message):
        job_ends_at({"DEEPFREEZE_ENDS_AT": said}, unheard, now)
