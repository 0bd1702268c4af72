"""A backend that hands captures to VELOC, through ctypes and the C interface of its client (version 1.8), and restores them from VELOC's
files. Tests run it with a stand-in for the library (veloc_stub.c).

Each rank is a client of its own (``VELOC_Init_single``). One capture of a rank is one *image*: its header, private bytes, regions and
their bytes, in one VELOC region. VELOC's faults, and the defence against each:

- A wrong configuration ends the process: the file is checked before VELOC sees it (``configuration``).
- VELOC never fsyncs: this backend fsyncs VELOC's file, then a marker beside it. A checkpoint counts when all ranks have their markers.
- VELOC restores torn files: an image has a checksum, which is compared before the marker is written and after a restart. VELOC takes a
  torn file on scratch although the persistent one is whole: the torn one is removed, and VELOC asked again.
- VELOC writes files in place: names have the attempt's id, so that no attempt ever writes a file of another one again.
- VELOC forgets that memory was protected anew, or refuses it: each image is protected under the checkpoint's name, after the one before
  is unprotected.
"""

from __future__ import annotations

import contextlib
import ctypes as c
import json
import os
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy as np

from deepfreeze.engine.backend import BackendKind, Opening
from deepfreeze.engine.backends import table as backends
from deepfreeze.errors import EngineError
from deepfreeze.format.levels import Level
from tests.support.native import ROOT
from veloc_bindings import CLOSED, CORRUPT, INCOMPLETE, INVALID, IO, OK, TIMEOUT, EngineFault, Report

STUB = Path(__file__).with_name("veloc_stub.c")
_REGION = 0  # the number of VELOC's one region
_HEADER = 512  # bytes of an image before its table of regions
_POLL = 0.01  # seconds between two looks for another rank's marker


def compile_stub(folder: Path) -> Path:
    """Builds the stand-in with the compiler that builds the engine. Returns the library's path."""
    cache = ROOT / "build" / "native" / "CMakeCache.txt"
    lines = cache.read_text().splitlines() if cache.exists() else []
    compiler = next((line.partition("=")[2] for line in lines if line.startswith("CMAKE_CXX_COMPILER:")), "c++")
    library = folder / "libveloc-client.so"
    flags = ["-x", "c", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run([compiler, *flags, str(STUB), "-o", str(library)], check=True)
    return library


def write_configuration(folder: Path) -> Path:
    """Makes FOLDER/scratch and FOLDER/persistent, and writes a configuration file that names them. Returns the file's path."""
    for name in ("scratch", "persistent"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    file = folder / "veloc.cfg"
    file.write_text(f"scratch = {folder / 'scratch'}\npersistent = {folder / 'persistent'}\nmode = async\n")
    return file


def configuration(file: Path) -> dict[str, str]:
    """The settings of a configuration file. ``EngineFault`` for each mistake after which VELOC would end the process or hang."""
    try:
        lines = [line.partition("=") for line in file.read_text().splitlines() if line.strip()]
    except OSError as error:
        raise EngineFault(INVALID, f"{file}: {error.strerror}") from error
    found = {name.strip(): value.strip() for name, _, value in lines}
    for name in ("scratch", "persistent"):
        if not os.path.isdir(found.get(name, "")) or not os.access(found[name], os.W_OK):
            raise EngineFault(INVALID, f"{file}: {name} is no directory that can be written to: {found.get(name)}")
    if found.get("mode", "async") not in ("sync", "async"):
        raise EngineFault(INVALID, f"{file}: mode is neither sync nor async: {found['mode']}")
    return found


def _client(library: Path) -> c.CDLL:
    client = c.CDLL(str(library))
    client.VELOC_Init_single.argtypes = [c.c_uint, c.c_char_p]
    client.VELOC_Region_protect.argtypes = [c.c_int, c.c_void_p, c.c_size_t, c.c_size_t, c.c_char_p]
    client.VELOC_Region_unprotect.argtypes = [c.c_int, c.c_char_p]
    for function in (client.VELOC_Checkpoint, client.VELOC_Restart_test, client.VELOC_Restart_begin):
        function.argtypes = [c.c_char_p, c.c_int]
    return client


def _name(attempt: str) -> bytes:
    return f"deepfreeze_{attempt}".encode()


def _marker(persistent: Path, attempt: str, rank: int, step: int, says: str = "durable") -> Path:
    return persistent / f"{_name(attempt).decode()}-{rank}-{step}.{says}"


@dataclass
class _Job:
    """A checkpoint on its way."""

    step: int
    regions: np.ndarray
    private: bytes
    values: bytes
    lost: str = ""  # why there is no capture
    begun: float = field(default_factory=time.monotonic)
    level: Level = Level.CAPTURED
    code: int = OK
    released: bool = False
    seconds: dict[Level, float] = field(default_factory=dict)
    message: str = ""
    told: bool = False

    @property
    def ended(self) -> bool:
        return self.code != OK or self.level == Level.EXTERNAL

    def report(self) -> Report:
        at, nbytes = self.seconds, int(self.regions[:, 1].sum())
        external = at.get(Level.EXTERNAL, -1.0)
        local = at.get(Level.LOCAL, -1.0)
        return Report(
            self.step, self.level, self.code, self.released, -1, nbytes, local, external, external, self.message
        )


class VelocBackend:
    """One rank's client of VELOC. Implements ``engine.backend.Backend``, and nothing besides. A thread of its own makes all calls of the
    library after ``__init__``, because the library is not made for several threads. Does not compare the ranks, and leaves it to VELOC's
    ``max_versions`` which checkpoints stay."""

    library: ClassVar[Path]
    configuration: ClassVar[Path]

    def __init__(self, opening: Opening) -> None:
        self._opening, self._name = opening, _name(opening.target.attempt)
        self._persistent = Path(configuration(self.configuration)["persistent"])
        self._veloc = _client(self.library)
        if self._veloc.VELOC_Init_single(opening.rank, os.fsencode(self.configuration)):
            raise EngineFault(IO, f"VELOC_Init_single({opening.rank}, {self.configuration}) failed")
        self._changed = threading.Condition()
        self._jobs: dict[int, _Job] = {}
        self._ended: dict[int, _Job] = {}
        self._moved, self._closing = time.monotonic(), False
        self._image = np.zeros(0, np.uint8)
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="veloc", daemon=True)
        self._thread.start()

    @classmethod
    def load(cls) -> None:
        try:
            _client(cls.library)
        except (OSError, AttributeError) as error:
            todo = "install VELOC 1.8"
            raise EngineError(where=cls.library, expected="VELOC's client", found=str(error), todo=todo) from error

    def plan(self, regions: np.ndarray, private_nbytes: int, side_nbytes: int) -> list[int]:
        self._image = np.zeros(_image_nbytes(regions, private_nbytes), np.uint8)  # touched before training waits for it
        return []

    def submit(self, step: int, regions: np.ndarray, private: bytes, timeout: float, values: bytes) -> None:
        self._until(lambda: self._held() < self._opening.engine.in_flight, timeout, "memory")
        with self._changed:
            if self._closing:
                raise EngineFault(CLOSED, "the backend is closed")
            self._jobs[step] = job = _Job(step, regions.copy(), bytes(private), bytes(values))
        self._queue.put(job)

    def fail(self, step: int, message: str) -> None:
        with self._changed:
            self._jobs[step] = job = _Job(step, np.zeros((0, 3), np.uint64), b"", b"", message)
        self._queue.put(job)

    def wait(self, step: int, level: int, timeout: float) -> None:
        job = self._jobs.get(step) or self._ended[step]
        self._until(lambda: job.code != OK or job.level >= level, timeout, f"step {step}")
        if job.code != OK:
            raise EngineFault(job.code, job.message)

    def poll(self) -> list[Report]:
        with self._changed:
            changed = [job for job in self._jobs.values() if not job.told]
            for job in changed:
                job.told = True
                if job.ended and job.released:
                    self._ended[job.step] = self._jobs.pop(job.step)
            return [job.report() for job in changed]

    def remove(self, steps: Iterable[int]) -> None:
        """Does nothing: VELOC removes old versions itself (``max_versions``)."""

    def drain(self, timeout: float) -> None:
        self._until(lambda: all(job.ended for job in self._jobs.values()), timeout, "every checkpoint")

    def idle(self) -> float:
        return time.monotonic() - self._moved

    def close(self) -> None:
        self._closing = True
        self._queue.put(None)
        self._thread.join(30)
        if self._thread.is_alive():
            raise EngineFault(TIMEOUT, f"{self._persistent} hangs")
        self._veloc.VELOC_Finalize(0)

    def _held(self) -> int:
        return sum(not job.released for job in self._jobs.values())

    def _until(self, happened: Callable[[], bool], seconds: float, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(happened, seconds):
                raise EngineFault(TIMEOUT, f"rank {self._opening.rank} waited {seconds:.1f} s for {what}")

    def _work(self) -> None:
        """The thread: makes one checkpoint after the other."""
        while (job := self._queue.get()) is not None and not self._closing:
            try:
                self._checkpoint(job)
            except (EngineFault, OSError) as error:
                code = error.code if isinstance(error, EngineFault) else IO
                self._set(job, released=True, code=code, message=str(error))

    def _set(self, job: _Job, level: Level | None = None, **changes: Any) -> None:
        with self._changed:
            self._moved = time.monotonic()
            if level is not None:
                job.level = level
                job.seconds[level] = self._moved - job.begun
            for name, value in changes.items():
                setattr(job, name, value)
            job.told = False
            self._changed.notify_all()

    def _checkpoint(self, job: _Job) -> None:
        opening, rank, step = self._opening, self._opening.rank, job.step
        if job.lost:
            _marker(self._persistent, opening.target.attempt, rank, step, "failed").write_text(job.lost)
            raise EngineFault(INCOMPLETE, job.lost)
        self._pack(job)
        self._set(job, released=True)  # VELOC reads the image, and no memory of the caller's
        self._veloc.VELOC_Region_unprotect(_REGION, self._name)
        self._call("VELOC_Region_protect", _REGION, self._image.ctypes.data, len(self._image), 1, self._name)
        self._call("VELOC_Checkpoint", self._name, step)
        self._set(job, Level.LOCAL)
        self._call("VELOC_Checkpoint_wait")
        file = self._persistent / f"{self._name.decode()}-{rank}-{step}.dat"
        _fsync(file)
        if Image.read(np.fromfile(file, np.uint8)[-len(self._image) :]) is None:
            raise EngineFault(CORRUPT, f"{file} is not as VELOC was given it")
        marker = _marker(self._persistent, opening.target.attempt, rank, step)
        marker.touch()
        _fsync(marker)
        _fsync(self._persistent)
        begin = time.monotonic()
        for other in range(opening.world):
            while not _marker(self._persistent, opening.target.attempt, other, step).exists():
                if _marker(self._persistent, opening.target.attempt, other, step, "failed").exists():
                    raise EngineFault(INCOMPLETE, f"step {step}: rank {other} failed")
                if self._closing or time.monotonic() - begin > opening.timeout:
                    raise EngineFault(INCOMPLETE, f"step {step}: rank {other} has not written its part")
                time.sleep(_POLL)
        self._set(job, Level.EXTERNAL)

    def _call(self, function: str, *arguments: Any) -> None:
        if getattr(self._veloc, function)(*arguments):
            raise EngineFault(IO, f"{function} failed")

    def _pack(self, job: _Job) -> None:
        """Copies a capture into the image."""
        nbytes = _image_nbytes(job.regions, len(job.private) + len(job.values))
        if len(self._image) != nbytes:
            self._image = np.zeros(nbytes, np.uint8)
        opening = self._opening
        header = {
            "step": job.step,
            "rank": opening.rank,
            "world": opening.world,
            "run_id": opening.target.run_id,
            "attempt": opening.target.attempt,
            "structure": opening.structure.hex(),
            "file_size": opening.file_size,
            "regions": len(job.regions),
            "private": len(job.private),
            "values": len(job.values),
        }
        table = np.ascontiguousarray(job.regions[:, 1:]).tobytes()
        prefix = json.dumps(header).encode().ljust(_HEADER) + table + job.private + job.values
        self._image[: len(prefix)] = np.frombuffer(prefix, np.uint8)
        at = len(prefix)
        for address, nbytes, _ in job.regions.tolist():
            c.memmove(self._image.ctypes.data + at, address, nbytes)
            at += nbytes
        self._image[at:] = np.frombuffer(zlib.crc32(self._image[:at]).to_bytes(4, "little"), np.uint8)


def kind(library: Path, file: Path) -> BackendKind:
    """The backends that use this library with this configuration file. They can do nothing besides."""
    made = type("ConfiguredVeloc", (VelocBackend,), {"library": library, "configuration": file})
    return BackendKind(made.load, made)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _image_nbytes(regions: np.ndarray, private_nbytes: int) -> int:
    return _HEADER + 16 * len(regions) + private_nbytes + int(regions[:, 1].sum()) + 4


@dataclass(frozen=True, eq=False)
class Image:
    """A rank's image, as it was read. ``header``: see ``VelocBackend._pack``; ``regions``: (file offset, bytes) of each region."""

    header: dict[str, Any]
    private: bytes
    values: bytes
    regions: list[tuple[int, np.ndarray]]

    @classmethod
    def read(cls, data: np.ndarray) -> Image | None:
        """The image in ``data``, uint8; None if the bytes are not those that a rank has packed."""
        if len(data) < _HEADER + 4 or zlib.crc32(data[:-4]) != int.from_bytes(data[-4:].tobytes(), "little"):
            return None
        header = json.loads(data[:_HEADER].tobytes())
        at = _HEADER + 16 * header["regions"]
        table = data[_HEADER:at].view("<u8").reshape(-1, 2)
        private, at = data[at : at + header["private"]].tobytes(), at + header["private"]
        values, at = data[at : at + header["values"]].tobytes(), at + header["values"]
        ends = at + np.cumsum(table[:, 0]).astype(np.int64)
        parts = np.split(data[at:-4], ends[:-1] - at)
        return cls(header, private, values, list(zip(table[:, 1].tolist(), parts, strict=True)))


def use(monkeypatch: Any, kind: BackendKind) -> None:
    """Trainings take this kind until the test ends: a row of the product's table, as an option will name it."""
    monkeypatch.setitem(backends.TABLE, "veloc", kind)
    monkeypatch.setattr(backends, "DEFAULT", "veloc")


def attempts(file: Path) -> list[str]:
    """The ids of the attempts of which VELOC has files."""
    names = os.listdir(configuration(file)["persistent"])
    return sorted({name.split("-")[0].removeprefix("deepfreeze_") for name in names})


def restore(library: Path, file: Path, attempt: str, world: int) -> tuple[list[Image], list[int]]:
    """The images of all ranks at the newest step at which each rank has a whole image and its marker; and the steps that were passed by
    because an image is torn. An empty list of images if there is no such step."""
    persistent = Path(configuration(file)["persistent"])
    veloc, torn, step = _client(library), [], 0
    while True:
        tested = [_test(veloc, file, attempt, rank, step) for rank in range(world)]
        step = min(tested)  # VELOC's own way, the greatest, is a step that some rank may lack
        if step < 0:
            return [], torn
        if all(_marker(persistent, attempt, rank, step).exists() for rank in range(world)):
            images = [_recover(veloc, file, attempt, rank, step) for rank in range(world)]
            found = [one for one in images if one is not None and one.header["step"] == step]
            if len(found) == world:
                return found, torn
            torn.append(step)


@contextlib.contextmanager
def _as_client(veloc: c.CDLL, file: Path, rank: int) -> Iterator[None]:
    veloc.VELOC_Init_single(rank, os.fsencode(file))
    yield
    veloc.VELOC_Finalize(0)


def _test(veloc: c.CDLL, file: Path, attempt: str, rank: int, below: int) -> int:
    """The newest version of a rank below ``below``, or of all if that is 0; -1 if there is none."""
    with _as_client(veloc, file, rank):
        found = veloc.VELOC_Restart_test(_name(attempt), below)
    return found


def _recover(veloc: c.CDLL, file: Path, attempt: str, rank: int, step: int) -> Image | None:
    """A rank's image of ``step``; None if neither scratch nor persistent storage has it whole."""
    scratch = Path(configuration(file)["scratch"]) / f"{_name(attempt).decode()}-{rank}-{step}.dat"
    found = _restart(veloc, file, attempt, rank, step)
    if found is None and scratch.exists():
        scratch.unlink()
        found = _restart(veloc, file, attempt, rank, step)
    return found


def _restart(veloc: c.CDLL, file: Path, attempt: str, rank: int, step: int) -> Image | None:
    name, found = _name(attempt), None
    with _as_client(veloc, file, rank):
        veloc.VELOC_Restart_begin(name, step)
        if (nbytes := veloc.VELOC_Recover_size(_REGION)) > 0:
            data = np.zeros(nbytes, np.uint8)
            veloc.VELOC_Region_protect(_REGION, data.ctypes.data, nbytes, 1, name)
            if veloc.VELOC_Recover_mem() == 0 and veloc.VELOC_Restart_end(1) == 0:
                found = Image.read(data)
    return found


def assemble(images: list[Image], file: Path) -> Path:
    """Writes the model file that the images of all ranks make up."""
    with open(file, "wb") as target:
        target.truncate(images[0].header["file_size"])
        for image in images:
            for offset, data in image.regions:
                target.seek(offset)
                target.write(data)
    return file
