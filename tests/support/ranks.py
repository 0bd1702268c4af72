"""Starts rank processes (an engine each, without TensorFlow) and commands them; reads the checkpoints that they leave without using
the engine."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import google_crc32c

import veloc_bindings as vb
from tests.support import content

LIMIT = 120  # seconds; no test comes near it unless something hangs


class Rank:
    def __init__(self, library: str, fault: str = "", log: str = "") -> None:
        environment = {**os.environ, "DEEPFREEZE_LIBRARY": library, "DEEPFREEZE_FAULT": fault}
        environment["DEEPFREEZE_FAULT_LOG"] = log
        # -S: nothing but the standard library is needed, and starting is faster without the rest.
        command = [sys.executable, "-S", str(Path(__file__).resolve().parents[1] / "jobs" / "rank_process.py")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)

    def send(self, name: str, **arguments) -> Rank:
        with suppress(BrokenPipeError):  # it was killed, as some tests want
            self.process.stdin.write(json.dumps([name, arguments]) + "\n")
            self.process.stdin.flush()
        return self

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"the rank ended with {self.process.wait(LIMIT)}")
        answer = json.loads(line)
        if "code" in answer:
            raise vb.EngineFault(answer["code"], answer["message"])
        return answer["value"]

    def ask(self, name: str, **arguments):
        return self.send(name, **arguments).answer()

    def kill(self) -> None:
        """Kills it (SIGKILL), and all processes that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Closes its input, lets it finish, and returns its exit status. May be called twice."""
        if self.process.stdout.closed:
            return self.process.wait(LIMIT)
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.read()  # or its last answers would find nobody
        self.process.stdout.close()
        return self.process.wait(LIMIT)


@contextmanager
def ranks(library: str, *faults: str, log: str = ""):
    """One rank process for each plan of faults; all are ended at the end of the block."""
    started = [Rank(library, fault, log) for fault in faults]
    try:
        yield started
    finally:
        for rank in started:
            rank.kill()
            rank.end()


def until(happened) -> None:
    """Waits until a condition is true that another process brings about."""
    end = time.monotonic() + LIMIT
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def options(tmp_path: Path, rank: int = 0, world: int = 1, local: bool = True, **more) -> dict:
    run = tmp_path / "run"
    run.mkdir(exist_ok=True)
    local_dir = tmp_path / f"local-{rank}"
    local_dir.mkdir(exist_ok=True)
    defaults = {"attempt": 1, "file_size": 1_000_003, "chunk_bytes": 65536, "commit_timeout": 60.0}
    place = {"run_dir": str(run), "local_dir": str(local_dir) if local else None, "rank": rank, "world": world}
    return {**defaults, **place, **more}


def slots(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("local-*/deepfreeze-*/*/*.slot"))


def committed(run: Path) -> dict[int, int]:
    """{step: attempt} of every committed checkpoint. Asserts that each has, byte for byte, what its attempt had to write."""
    found = {}
    for directory in sorted(run.glob("step-*")):
        if re.fullmatch(r"step-\d{10,}", directory.name):
            step, attempt = check_checkpoint(directory)
            found[step] = attempt
    return found


def check_checkpoint(directory: Path, run_id: bytes | None = content.RUN_ID) -> tuple[int, int]:
    """Asserts that a checkpoint has, byte for byte, what its attempt had to write, and belongs to this run (or to any); returns
    (step, attempt)."""
    text = (directory / "manifest.json").read_bytes()
    manifest = json.loads(text)
    covered = text[: text.rindex(b'  "crc32c"')]
    assert manifest["crc32c"] == f"{google_crc32c.value(covered):08x}"
    attempt, step, size = int(manifest["attempt"], 16), manifest["step"], manifest["file_size"]
    assert directory.name == f"step-{step:010d}"
    assert run_id is None or manifest["run_id"] == run_id.hex()
    assert manifest["structure"] == content.STRUCTURE.hex()
    model = (directory / "model.weights.h5").read_bytes()
    assert model == content.model_bytes(attempt, step, size), f"{directory}: not the bytes of attempt {attempt}"
    world = manifest["world_size"]
    assert [record["rank"] for record in manifest["records"]] == list(range(world))
    extents = []
    records = (directory / "records").read_bytes()
    for entry in manifest["records"]:
        record, records = records[: entry["size"]], records[entry["size"] :]
        (crc,) = struct.unpack("<I", record[-4:])
        assert google_crc32c.value(record[:-4]) == crc == int(entry["crc32c"], 16)
        assert len(record) == entry["size"]
        for i in range(entry["extents"]):
            offset, nbytes, checksum, zero = struct.unpack_from("<QQII", record, 136 + 24 * i)
            assert google_crc32c.value(model[offset : offset + nbytes]) == checksum and zero == 0
            extents.append((offset, nbytes))
        assert record[136 + 24 * entry["extents"] : -4] == content.private_bytes(attempt, step, entry["rank"])
    assert records == b""
    end = 0
    for offset, nbytes in sorted(extents):
        assert offset == end
        end += nbytes
    assert end == size
    # A rank that was killed right after the commit has left its own record, which nobody reads any more.
    left = {f"rank-{rank:05d}.record" for rank in range(world)}
    assert {path.name for path in directory.iterdir()} - left == {"manifest.json", "model.weights.h5", "records"}
    return step, attempt
