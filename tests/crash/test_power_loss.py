"""Loss of power at every operation of whole jobs, those of Python among them: what a job makes, writes and moves at its start, and
the structure without which no checkpoint can be read."""

from __future__ import annotations

import copy
import hashlib
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import deepfreeze
import veloc_bindings as vb
from deepfreeze.errors import CorruptError
from deepfreeze.format import names
from deepfreeze.format.model_config import ModelConfig
from deepfreeze.format.run_file import Parent
from deepfreeze.format.structure import Structure
from deepfreeze.inspect.verify import verify
from deepfreeze.store import durable
from deepfreeze.store.writable_run import WritableRun
from tests.support import files, killed, page_cache, restart
from tests.support.recorder import Recorder
from tests.support.seed import SEED

pytestmark = pytest.mark.crash
DRAWS = 4 * int(os.environ.get("DEEPFREEZE_TEST_DRAWS", "3"))  # subsets of what was not synced, per point
MEMORY = "/dev/shm"
AT = 5000  # the byte of a model that is damaged
PARENT = Parent("/runs/base", "a" * 32, 40, "b" * 32)


@pytest.fixture
def folder():
    """A folder in memory, where many small files cost little."""
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="deepfreeze-test-") as path:
        yield Path(path)


@pytest.fixture
def engine(testing_library, tmp_path) -> str:
    """The path of a testing library that this process never loads: each child has one of its own, and its own record."""
    return str(shutil.copy(testing_library, tmp_path / "libdeepfreeze_recording.so"))


def model(step: int, number: int) -> files.Sample:
    """What job ``number`` saves at a step."""
    return files.sample(world=1, seed=100 * number + step)


class Checked(restart.Newest):
    """Values that are read as a job reads them, of a model that stands at a step and was seeded from a checkpoint."""

    def __init__(self, there: Path, now: int = 0) -> None:
        self._run, self._now = there / "run", now

    def read(self, step: int, table: None) -> None:
        with deepfreeze.read(self._run, step) as tensors:
            for name in tensors:
                tensors[name]
        problems = verify(self._run, step).problems
        if problems:
            raise CorruptError(where=problems[0].file, expected="whole", found=str(problems[0]), todo="nothing")

    def now(self) -> int:
        return self._now

    def parent(self) -> Parent:
        return PARENT


class Job:
    """A job of one rank, to be run in a child of the test: what it does to the files below ``there`` is recorded to ``log``."""

    def __init__(self, there: Path, log: Path, engine: str) -> None:
        os.environ["DEEPFREEZE_LIBRARY"], os.environ["DEEPFREEZE_RECORD"] = engine, str(log)
        vb._library._loaded = None
        self.there, self.recorder = there, Recorder(log, there)

    def start(self, number: int, steps: list[int], now: int = 0, level: int = vb.EXTERNAL, **options) -> None:
        """The job of that number, which commits the steps, and says so; or gets them to the local level and no further."""
        options = {"local": None, **options}
        (start,) = restart.begin(self.there, 1, lambda rank: Checked(self.there, now), **options)
        for step, _ in start.finished.committed:
            self.recorder.mark(f"external {step} {number - 1}")
        run, target = WritableRun.open(self.there / "run"), start.target
        run.store_structure(Structure.from_bytes(model(0, 0).structure, "a sample"))
        run.store_config(ModelConfig(run.run_id, target.attempt, {"class_name": "Sequential"}))
        held = []
        with vb.EmbeddedEngine.open(
            run_id=bytes.fromhex(run.run_id),
            attempt=bytes.fromhex(target.attempt),
            structure=bytes.fromhex(model(0, 0).hash),
            run_dir=str(run.path),
            local_dir=options["local"],
            file_size=len(model(0, 0).content),
        ) as opened:
            for step in steps:
                made = model(step, number)
                held.append(made.content)
                opened.submit(step, [(held[-1], len(made.content), 0)], made.seeds[0].tobytes(), 60)
                opened.wait(step, level, 60)
                if level == vb.EXTERNAL:
                    self.recorder.mark(f"external {step} {number}")
        start.close()

    def damage(self, step: int) -> None:
        """Flips a bit of the model, durably."""
        fd = os.open(self.there / "run" / names.step_dir(step) / names.MODEL_FILE, os.O_RDWR)
        os.pwrite(fd, bytes([os.pread(fd, 1, AT)[0] ^ 1]), AT)
        os.fsync(fd)
        os.close(fd)

    def leave_behind(self) -> None:
        """What a killed job may leave: a part of a checkpoint, and trash."""
        for name in (names.partial_dir(50, files.ATTEMPT), names.trash_dir(5, files.ATTEMPT)):
            (self.there / "run" / name).mkdir()
            durable.write(self.there / "run" / name / names.MODEL_FILE, b"a part")
            durable.sync_dir(self.there / "run")


def three_jobs(there: Path, log: Path, engine: str) -> None:
    """Makes a run and commits; moves a damaged checkpoint away, clears, and commits; goes back and moves newer ones away."""
    job = Job(there, log, engine)
    job.start(1, [10, 30])
    job.recorder.mark("moves 30 1")
    job.damage(30)
    job.leave_behind()
    job.start(2, [30, 40])
    job.recorder.mark("moves 30 2")
    job.recorder.mark("moves 40 2")
    job.start(3, [30], now=20, resume="off")


class Promises:
    """What the jobs have said so far, and may be relied on after a loss of power."""

    def __init__(self) -> None:
        self._kept: dict[int, int] = {}  # step: job
        self._moved: set[tuple[int, int]] = set()

    def hear(self, op: page_cache.Op) -> None:
        if op.kind == "mark":
            what, step, number = op.path.split()
            if what == "external":
                self._kept[int(step)] = int(number)
            else:
                del self._kept[int(step)]
                self._moved.add((int(step), int(number)))

    def hold(self, run: Path) -> None:
        """Every committed checkpoint can be read and is what it was; what was moved aside is there, here or there."""
        for step, number in self._kept.items():
            assert not (found := verify(run, step).problems), f"step {step} of job {number}: {found[0]}"
            with deepfreeze.read(run, step) as tensors:
                for name, value in model(step, number).values.items():
                    assert tensors[name].tobytes() == value.tobytes(), f"step {step}: {name} is not of job {number}"
        for step, number in self._moved:
            models = [path.read_bytes() for path in run.rglob(f"{names.step_dir(step)}*/{names.MODEL_FILE}")]
            assert any(alike(data, model(step, number).content) for data in models), (
                f"step {step} of job {number} is gone"
            )

    def newest(self) -> int:
        """The step that a start goes on from at the least."""
        return max(self._kept, default=0)

    def __repr__(self) -> str:
        return f"{self._kept} {sorted(self._moved)}"


def alike(data: bytes, other: bytes) -> bool:
    """But for the bit that was flipped."""
    return data[:AT] == other[:AT] and data[AT + 1 :] == other[AT + 1 :]


def check(state: dict[str, bytes | None], folder: Path, there: Path, promises: Promises) -> None:
    """The promises hold of what a crash left, and after the next start too, which succeeds whatever there is."""
    shutil.rmtree(there, ignore_errors=True)
    page_cache.write_out(state, {str(folder): str(there)})
    promises.hold(there / "run")
    (start,) = restart.begin(there, 1, lambda rank: Checked(there), local=None)
    start.close()
    assert start.step >= promises.newest()
    promises.hold(there / "run")
    assert not restart.leftovers(there / "run")


def contents(folder: Path) -> dict[str, bytes | None]:
    """As ``Disk.killed`` has it, of what is really there."""
    found = {str(path): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}
    return {str(folder): None, **found}


def test_what_python_has_made_survives_a_loss_of_power(folder):
    """What python has made is there after a loss of power right after it."""
    jobs, log, run = folder / "jobs", folder / "log", folder / "jobs" / "run"
    jobs.mkdir()
    structure = Structure.from_bytes(model(0, 0).structure, "a sample")
    config = ModelConfig("a" * 32, "b" * 32, {"class_name": "Sequential"})
    makes = {
        "a run": (lambda: WritableRun.open_or_make(run), lambda: WritableRun.open(run).run_id),
        "its parent": (lambda: WritableRun.open(run).set_parent(PARENT), lambda: WritableRun.open(run).parent),
        "a structure": (
            lambda: WritableRun.open(run).store_structure(structure),
            lambda: WritableRun.open(run).structure(structure.hash),
        ),
        "a configuration": (
            lambda: WritableRun.open(run).store_config(config),
            lambda: len(list(run.glob("configs/*.json"))),
        ),
        "a checkpoint moved aside": (
            lambda: WritableRun.open(run).abandon(10, files.ATTEMPT),
            lambda: os.listdir(run / "abandoned"),
        ),
        "another one": (lambda: WritableRun.open(run).quarantine(20), lambda: os.listdir(run / "damaged")),
        "one on its way out": (
            lambda: WritableRun.open(run).discard(names.step_dir(30), 30),
            lambda: WritableRun.open(run).step_dirs(),
        ),
    }
    for what, (make, look) in makes.items():
        if what == "a checkpoint moved aside":
            for step in (10, 20, 30):
                files.write_checkpoint(run, step)
        disk = page_cache.Disk(jobs)
        log.unlink(missing_ok=True)

        def recorded(make=make):
            Recorder(log, jobs)
            make()

        killed.in_a_child(recorded)
        for op in page_cache.read_log(log):
            disk.apply(op)
        assert disk.killed() == contents(jobs), f"{what}: all that was done is in the record"
        wanted = look()
        shutil.rmtree(jobs)
        page_cache.write_out(disk.lost_power(None), {str(jobs): str(jobs)})
        assert look() == wanted, what


def sweep(
    folder: Path, run: Callable[[Path, Path], None], points: Callable[[range], list[int]]
) -> tuple[Promises, str]:
    """Lets jobs run, and then a crash happen to them after each operation that is among the points; returns what they promised in
    the end, and how many crashes there were."""
    print(f"seed {SEED} (DEEPFREEZE_TEST_SEED)")
    jobs, log, there = folder / "jobs", folder / "log", folder / "there"
    (jobs / "local-0").mkdir(parents=True)
    disk, promises, known, crashes = page_cache.Disk(jobs), Promises(), set(), Counter()
    run(jobs, log)
    ops = page_cache.read_log(log)
    due = set(points(range(len(ops))))
    for number, op in enumerate(ops):
        disk.apply(op)
        promises.hear(op)
        if number not in due:
            continue
        lost = [None, *(random.Random(f"{SEED} {number} {draw}") for draw in range(DRAWS))]
        for kind, state in [("killed", disk.killed()), *(("lost power", disk.lost_power(choose)) for choose in lost)]:
            key = hashlib.sha256(repr((promises, state)).encode()).digest()
            crashes[kind] += 1
            if key not in known:
                known.add(key)
                try:
                    check(state, jobs, there, promises)
                except Exception as error:
                    raise AssertionError(f"seed {SEED}, after operation {number}: {op}; {kind}: {error}") from error
    assert disk.killed() == contents(jobs), "all that was done is in the record"
    per_operation = 2 + DRAWS
    assert crashes.total() == len(due) * per_operation and len(ops) * per_operation > 500
    counts = ", ".join(f"{count} {kind}" for kind, count in crashes.items())
    tried = f"{crashes.total()} of {len(ops) * per_operation} points, all passed"
    return promises, f"{tried} ({counts}; {len(known)} different)"


@pytest.mark.slow
def test_power_lost_at_any_operation_of_a_job_takes_nothing_committed(folder, engine, record_property, points):
    """Power that is lost at any operation of Python or of the engine takes no committed checkpoint."""
    promises, counts = sweep(folder, lambda jobs, log: killed.in_a_child(lambda: three_jobs(jobs, log, engine)), points)
    record_property("points", f"crash sweep of whole jobs: {counts}")
    assert repr(promises) == "{10: 1, 30: 3} [(30, 1), (30, 2), (40, 2)]"


@pytest.mark.slow
def test_power_lost_in_a_start_that_rescues_slots_takes_nothing_committed(folder, engine, record_property, points):
    """Slots are deleted by the start that has committed what was in them."""

    def run(jobs: Path, log: Path) -> None:
        def breaks_down():
            os.environ["DEEPFREEZE_FAULT"] = "fail=EIO:pwrite:model.weights.h5:1+"
            Job(jobs, log, engine).start(1, [10], level=vb.LOCAL, local=jobs / "local-0")

        killed.in_a_child(breaks_down)
        killed.in_a_child(lambda: Job(jobs, log, engine).start(2, [20], local=jobs / "local-0"))

    promises, counts = sweep(folder, run, points)
    record_property("points", f"crash sweep of a start that rescues slots: {counts}")
    assert repr(promises) == "{10: 1, 20: 2} []"


@pytest.mark.slow
def test_power_lost_after_a_killed_start_takes_nothing_committed(folder, engine, record_property, points):
    """What the killed one has done and not synced is there for the next one, which has to make it durable all the same."""
    jobs, log, there = folder / "jobs", folder / "log", folder / "there"
    tried = 0

    def anew():
        shutil.rmtree(jobs, ignore_errors=True)
        log.unlink(missing_ok=True)
        jobs.mkdir()

    def job(number: int, step: int):
        Job(jobs, log, engine).start(number, [step])

    anew()
    empty = page_cache.Disk(jobs)
    for call in killed.before_each_call(lambda: job(1, 10), anew, engine, points):
        killed.in_a_child(lambda: job(2, 20))
        disk, promises = copy.deepcopy(empty), Promises()
        for op in page_cache.read_log(log):
            disk.apply(op)
            promises.hear(op)
        assert disk.killed() == contents(jobs), "all that was done is in the record"
        assert promises.newest() == 20
        try:
            check(disk.lost_power(None), jobs, there, promises)
        except Exception as error:
            raise AssertionError(f"the first start was killed before {call}: {error}") from error
        tried += 1
    record_property(
        "points", f"crash sweep of two jobs, the first killed, then lost power, {points}: {tried}, all passed"
    )
    assert tried > (50 if points.every == 1 else 1)
