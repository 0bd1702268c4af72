"""The number of ranks that this process's launcher has started, by the environment variables that the launcher has set."""

from __future__ import annotations

from collections.abc import Mapping

# Variables in which launchers tell a process how many there are of it: srun, Open MPI, MPICH and Intel MPI, torchrun and others,
# horovodrun with Gloo.
# SLURM_NTASKS is none of them: every batch script has it, also where a step of one process runs.
_SIZES = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "HOROVOD_SIZE")


def launched_as_several(environment: Mapping[str, str]) -> tuple[str, int] | None:
    """The variable by which a launcher says that it has started several processes, and their number. None if none says so."""
    for name in _SIZES:
        value = environment.get(name, "")
        if value.isdecimal() and int(value) > 1:
            return name, int(value)
    return None
