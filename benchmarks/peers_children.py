"""The processes that ``peers`` measures in, as it sees them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import ROOT, say

_OTHERS = ROOT / ".venv-peers"
_TAIL = 3000


class Children:
    """The processes of some sides, at work until the ``with`` block ends. What isn't installed is left out, and said."""

    def __init__(self, group: Sequence[str], workload: str, folder: Path, quick: bool) -> None:
        self.fsync: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self._children: list[Child] = []
        try:
            # All start at once: most of that is reading libraries.
            for side in group:
                if python := _python(side):
                    self._children.append(Child(python, side, workload, folder, quick))
            for child in self._children:
                ready = child.ready()
                self.versions.update(ready["versions"])
                self.fsync.update({name: facts["fsync"] for name, facts in ready["approaches"].items()})
        except BaseException:
            self._kill()
            raise

    def round(self) -> Iterator[tuple[str, dict[str, float]]]:
        """(approach, what one checkpoint of it took), one after another."""
        for child in self._children:
            for name in child.approaches:
                yield name, child.round(name)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                for child in self._children:
                    child.end()
        finally:
            self._kill()

    def _kill(self) -> None:
        for child in self._children:
            child.kill()


def _python(side: str) -> str | None:
    """What runs that side; None if it isn't installed."""
    if side != "others":
        return sys.executable
    # The stamp is written last: half of an environment doesn't count.
    if (_OTHERS / ".packages").is_file():
        return str(_OTHERS / "bin" / "python")
    say("numpy, safetensors, torch and Orbax are left out: `python tools/peers.py` installs them into .venv-peers")
    return None


class Child:
    """One ``benchmarks.peers_child``."""

    def __init__(self, python: str, side: str, workload: str, folder: Path, quick: bool) -> None:
        self.approaches: list[str] = []
        self._side, self._log = side, folder / f"{side}.log"
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore", "JAX_PLATFORMS": "cpu"}
        # What libraries leave in the temporary directory goes with the folder.
        environment["TMPDIR"] = str(folder)
        command = [python, "-m", "benchmarks.peers_child", side, workload, str(folder / side), *["--quick"] * quick]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def ready(self) -> dict[str, Any]:
        """Waits for what it can measure, and returns it."""
        message = self._hear()
        self.approaches = list(message["approaches"])
        return message

    def round(self, name: str) -> dict[str, float]:
        """One round of the approach ``name``."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(name + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed() from None
        return self._hear()

    def end(self) -> None:
        """Lets it end by itself. SystemExit if that goes wrong."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait(timeout=120):
            raise self._failed()

    def kill(self) -> None:
        """Ends it in any case. It hears first that there is nothing more to do, and clears what it has in memory and on disk."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failed()
        return json.loads(line)

    def _failed(self) -> SystemExit:
        tail = self._log.read_text(errors="replace")[-_TAIL:]
        return SystemExit(f"the process that measures {self._side!r} failed:\n{tail}")
