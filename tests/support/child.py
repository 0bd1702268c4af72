"""Runs a command in this process's place, so that it is killed when its parent ends: child.py PARENT OUTPUT COMMAND ...

PARENT is the parent's process id, or 0 for any parent. OUTPUT is empty or a folder. Into a folder rank R of a launcher writes
rank-R, which has all that the rank prints, and rank-R.pid, its process id. (Open MPI's own options for a file per rank lose what ranks
write to stderr.) Uses the standard library alone; started with -S -I.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
RANK = ("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK")


def die_with_parent(parent: int = 0) -> None:
    """Has the system kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        sys.exit("the parent ended before this began")


def main(parent: int, output: str, command: list[str]) -> None:
    die_with_parent(parent)
    if output:
        rank = next(os.environ[name] for name in RANK if name in os.environ)
        file = os.open(f"{output}/rank-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        with open(f"{output}/rank-{rank}.pid", "w") as pid:
            pid.write(str(os.getpid()))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
