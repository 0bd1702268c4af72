"""Becomes a command that dies with its parent: child.py PARENT OUTPUT COMMAND ... Standard library alone, started with -S -I.

PARENT is the parent's process id, or 0 for any. OUTPUT is empty, or the folder in which a launcher's rank R has rank-R for what it
prints and rank-R.pid for its process: Open MPI's own options for a file per rank lose what ranks write to stderr.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
RANK = ("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK")


def die_with_parent(parent: int = 0) -> None:
    """Has this process killed when its parent ends."""
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
