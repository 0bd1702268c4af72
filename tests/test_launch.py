"""What launchers say of a job in a process's environment."""

import pytest

from deepfreeze.launch import launched_as_several


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
