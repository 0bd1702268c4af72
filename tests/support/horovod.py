"""A Horovod job that runs test cases one after the other. A launch costs ten seconds, and most cases take one: so tests share a launch.
Between two cases the ranks are stopped (SIGSTOP), because Horovod and MPI poll and would take a core from other tests.

A case is the function ``run`` of a program in tests/jobs. A test that kills processes, or that is about a job's exit, launches a job of
its own with ``jobs.job(*case(...), ranks=2)``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.support import jobs, kerases

START_S, CASE_S = 90, 120  # both together are below the bound on a test


def case(name: str, faults: dict[int, str] | None = None, **arguments: Any) -> list[str]:
    """The arguments for ``jobs.job`` and ``jobs.run`` that launch this case alone. ``name``: the program tests/jobs/NAME.py;
    ``faults``: plans of faults by rank (native/testing/fault_env.h); ``arguments``: those of its ``run``."""
    return ["case.py", name, json.dumps(arguments, default=str), json.dumps(faults or {})]


class Horovod:
    """A job of ``ranks`` ranks, launched by the first case. If a rank ends or gives no answer in time, all ranks are ended, and the
    next case launches new ones."""

    def __init__(self, ranks: int = 2, launcher: str = "mpirun", **env: str) -> None:
        self.size, self._launcher, self._env = ranks, launcher, env
        if not kerases.KERAS_IS_2:
            self._env["TF_USE_LEGACY_KERAS"] = (
                "1"  # what Horovod's own classes are made for; Keras 3 goes by its own name
            )
        self._open = contextlib.ExitStack()
        self._connections: list[Connection] = []
        self.pids: list[int] = []

    def run(self, name: str, faults: dict[int, str] | None = None, log: object = "", **arguments: Any) -> list[Any]:
        """Runs a case; returns by rank what ``run`` of tests/jobs/NAME.py returned. ``faults``: plans for the engines of some ranks;
        ``log``: the faults' log file."""
        self.start(name, faults, log, **arguments)
        return self.values()

    def errors(self, name: str, faults: dict[int, str] | None = None, **arguments: Any) -> list[str]:
        """Runs a case in which ``run`` must raise on every rank; returns the tracebacks by rank."""
        self.start(name, faults, **arguments)
        answers = self._answers()
        assert all("error" in answer for answer in answers), answers
        return [answer["error"] for answer in answers]

    def start(self, name: str, faults: dict[int, str] | None = None, log: object = "", **arguments: Any) -> None:
        """Begins a case and returns at once, so that the test can act while it runs. ``values`` must follow."""
        if not self._connections:
            self._launch()
        self._signal(signal.SIGCONT)
        for rank, connection in enumerate(self._connections):
            case = {"name": name, "arguments": arguments, "plan": (faults or {}).get(rank, ""), "log": str(log)}
            connection.send_bytes(json.dumps(case, default=str).encode())

    def until(self, happened: Callable[[], object]) -> None:
        """Waits until ``happened()`` is true, while the case runs."""
        self._job.until(happened)

    def values(self) -> list[Any]:
        """Waits for the end of the case; returns by rank what ``run`` returned. Fails if a rank raised."""
        answers = self._answers()
        errors = [f"rank {rank}:\n{answer['error']}" for rank, answer in enumerate(answers) if "error" in answer]
        assert not errors, "\n".join(errors)
        return [answer["value"] for answer in answers]

    def _answers(self) -> list[dict[str, Any]]:
        answers: dict[int, dict[str, Any]] = {}
        try:
            while missing := [rank for rank in range(self.size) if rank not in answers]:
                ready = wait([self._connections[rank] for rank in missing], CASE_S)
                assert ready, f"no answer of the ranks {missing} in {CASE_S} s"
                for connection in ready:
                    answers[self._connections.index(connection)] = json.loads(connection.recv_bytes())
        except BaseException as error:
            said = "".join(f"rank {rank} answered: {answer}\n" for rank, answer in answers.items())
            tails = self._job.tails()
            self.close()
            raise AssertionError(f"{error or type(error).__name__}\n{said}{tails}") from error
        self._signal(signal.SIGSTOP)
        return [answers[rank] for rank in range(self.size)]

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids:
            os.kill(pid, number)

    def _launch(self) -> None:
        with contextlib.ExitStack() as opening:
            folder = opening.enter_context(tempfile.TemporaryDirectory(prefix="deepfreeze-"))
            listener = opening.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(f"{folder}/socket")
            listener.listen(self.size)
            env = {"ranks": self.size, "launcher": self._launcher, **self._env}
            self._job = opening.enter_context(jobs.job("case.py", f"{folder}/socket", **env))
            found: dict[int, tuple[int, Connection]] = {}
            ended = opening.enter_context(open(os.pidfd_open(self._job.process.pid)))
            while len(found) < self.size:
                ready = wait([listener, ended], START_S)
                assert listener in ready, f"no ranks\n{self._job.tails()}"
                connection = opening.enter_context(Connection(listener.accept()[0].detach()))
                rank, pid = json.loads(connection.recv_bytes())
                found[rank] = pid, connection
            self._connections = [found[rank][1] for rank in range(self.size)]
            self.pids = [found[rank][0] for rank in range(self.size)]
            self._open = opening.pop_all()

    def close(self) -> None:
        """Ends the ranks."""
        self._connections, self.pids = [], []
        self._open.close()


@contextlib.contextmanager
def horovod(ranks: int = 2, launcher: str = "mpirun", **env: str) -> Iterator[Horovod]:
    """A job for several cases; its ranks are ended with the block."""
    job = Horovod(ranks, launcher, **env)
    try:
        yield job
    finally:
        job.close()
