"""What every store promises (deepfreeze/store/store.py, native/store/store.h): one suite for all implementations and both halves.

``Half`` is what the suite needs from whoever writes checkpoints: Python's half of the interface, or the engine's. Over one directory each
half commits, reads and removes what the other one has written. A further implementation is a row of ``STORES``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import deepfreeze
from deepfreeze.errors import CorruptError, EngineError, LockedError, NotFoundError, OptionError, RunError
from deepfreeze.events.event_files import EventFiles
from deepfreeze.format import names
from deepfreeze.format.run_file import RunFile
from deepfreeze.inspect.verify import verify
from deepfreeze.notices import unheard
from deepfreeze.store import stores
from deepfreeze.store.posix_store import PosixStore
from deepfreeze.store.prune import prune
from deepfreeze.store.quarantine import Fallback
from deepfreeze.store.ranges import scratch
from deepfreeze.store.run import Run
from deepfreeze.store.store import Store
from deepfreeze.store.tags import tag, tags, untag
from deepfreeze.store.writable_run import WritableRun
from tests.support import files, memory_store
from tests.support.engine_half import EngineHalf, newest

A, B = files.ATTEMPT, "b" * 32


def fill(store: Store, step: int, made: files.Sample, attempt: str = A) -> None:
    """The shards and records of a checkpoint, before its commit."""
    partial = names.partial_dir(step, attempt)
    store.put(f"{names.STRUCTURES_DIR}/{names.structure_file(made.hash)}", made.structure)
    store.put(f"{partial}/{names.MODEL_FILE}", made.content)
    for rank in range(len(made.extents)):
        store.put(f"{partial}/{names.record_file(rank)}", files.rank_record(step, made, rank, attempt))


@dataclass
class Half:
    """``fill`` writes a checkpoint's shards and records, ``publish`` commits it, ``discard`` removes a committed one."""

    fill: Callable[..., None] = fill
    publish: Callable[[Store, int, str], None] = lambda store, step, attempt: store.publish(step, attempt)
    discard: Callable[[Store, int], None] = lambda store, step: store.discard(names.step_dir(step), step)


def directory(folder: Path) -> Store:
    return PosixStore(folder / "run")


def memory_run(folder: Path) -> Store:
    return memory_store.MemoryStore(Path("memory:/run"))


def removed_by_engine() -> Half:
    return Half(discard=EngineHalf().discard)


def removed_by_python() -> Half:
    engine = EngineHalf()
    return Half(fill=engine.fill, publish=engine.publish)


#: name -> (makes the store in a temporary directory, makes who writes its checkpoints)
STORES = {
    "directory": (directory, Half),
    "memory": (memory_run, Half),
    "engine": (directory, EngineHalf),
    "engine removes": (directory, removed_by_engine),
    "engine writes": (directory, removed_by_python),
}
# What has no checkpoints is Python's half alone.
small = pytest.mark.parametrize("pair", ["directory", "memory"], indirect=True)


def sample(**making) -> files.Sample:
    """Of whole pages, which the engine asks for."""
    return files.sample(version=2, extent=4096, **making)


@pytest.fixture(params=STORES)
def pair(request, tmp_path):
    make, half = STORES[request.param]
    return make(tmp_path), half()


@pytest.fixture
def store(pair):
    pair[0].make()
    assert pair[0].create(names.RUN_FILE, RunFile(files.RUN_ID, files.CREATED).to_bytes())
    return pair[0]


@pytest.fixture
def commit(pair):
    def commit(store, step, attempt=A, **making):
        made = sample(**making)
        pair[1].fill(store, step, made, attempt)
        pair[1].publish(store, step, attempt)
        return made

    return commit


# --- small files


@small
def test_a_file_has_what_was_put_last(store):
    for data in (b"one", b"another", b"", b"another"):
        store.put("owner", data)
        assert store.read("owner", 7) == data
    with pytest.raises(CorruptError, match=r"owner: expected at most 6 bytes; found 7 bytes"):
        store.read("owner", 6)


@small
def test_a_reader_never_sees_a_mixture(store):
    texts = [b"a" * 100_000, b"b" * 100_000]
    store.put("marks.json", texts[0])
    done = threading.Event()

    def put():
        for number in range(50):
            store.put("marks.json", texts[number % 2])
        done.set()

    thread = threading.Thread(target=put)
    thread.start()
    while not done.is_set():
        assert store.read("marks.json", 100_000) in texts
    thread.join()


@small
def test_a_file_is_created_once(store):
    assert store.create("tags/best", b"first") is True and store.create("tags/best", b"second") is False
    assert store.read("tags/best", 9) == b"first" and store.list("tags") == ["best"]
    won = []
    barrier = threading.Barrier(8)

    def create(number):
        barrier.wait()
        if store.create("tags/race", bytes([number])):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and store.read("tags/race", 1) == bytes(won)
    assert sorted(store.list("tags")) == ["best", "race"]


@small
def test_what_is_not_there_is_not_found(store):
    store.put("owner", b"x")
    for name in ("none", "none/none"):
        assert not store.has(name)
        for call in (
            lambda name=name: store.read(name, 9),
            lambda name=name: store.open(name),
            lambda name=name: store.remove(name),
        ):
            with pytest.raises(FileNotFoundError):
                call()
    with pytest.raises(FileNotFoundError):
        store.list("none")
    for call in (lambda: store.read("owner/x", 9), lambda: store.list("owner")):
        with pytest.raises(NotADirectoryError):
            call()
    assert store.has("owner") and store.has("") and store.nbytes("none") is None


@small
def test_what_is_removed_is_gone_and_the_rest_is_not(store):
    store.put("tags/one", b"1")
    store.put("tags/two", b"2")
    store.remove("tags/one")
    assert store.list("tags") == ["two"] and not store.has("tags/one")


@small
def test_the_bytes_of_a_folder_are_those_of_all_files_below(store):
    store.put("tags/one", b"123")
    store.put("tags/two", b"45")
    assert store.nbytes("tags") == 5


@small
def test_a_growing_file_is_read_while_it_grows(store):
    file = store.append("events/a.jsonl")
    assert file.write(b"one\n") == 4
    assert store.read("events/a.jsonl", 99) == b"one\n"
    file.write(b"two\n")
    file.close()
    assert store.read("events/a.jsonl", 99) == b"one\ntwo\n"
    with pytest.raises(FileExistsError):
        store.append("events/a.jsonl")


# --- checkpoints


def test_a_checkpoint_is_seen_when_it_is_published_and_whole(store, pair, commit):
    made = sample()
    pair[1].fill(store, 40, made)
    run = Run.open(store)
    assert run.committed() == run.step_dirs() == [] and run.partials() == [(40, A)]
    pair[1].publish(store, 40, A)
    assert run.committed() == run.step_dirs() == [40] and run.manifest(40).attempt == A
    with deepfreeze.read(store) as reader:
        for name, value in made.values.items():
            np.testing.assert_array_equal(reader[name], value)
    assert verify(store).ok and deepfreeze.latest(store).step == 40
    assert sorted(store.list(names.step_dir(40))) == ["manifest.json", "model.weights.h5", "records"]


@pytest.mark.parametrize("missing", [True, False], ids=["missing", "damaged"])
def test_a_checkpoint_without_a_whole_record_is_not_published(store, pair, missing):
    pair[1].fill(store, 40, sample())
    record = f"{names.partial_dir(40, A)}/{names.record_file(1)}"
    data = store.read(record, 1 << 20)
    store.remove(record)
    if not missing:
        store.put(record, data[:-1] + b"?")
    with pytest.raises(CorruptError):
        pair[1].publish(store, 40, A)
    assert Run.open(store).step_dirs() == [] and Run.open(store).partials() == [(40, A)]


def test_ranges_are_read_also_after_the_checkpoint_is_gone(store, pair, commit):
    made = commit(store, 40)
    with closing(store.open(f"{names.step_dir(40)}/{names.MODEL_FILE}")) as file:
        file.past_cache()
        pair[1].discard(store, 40)
        assert file.size == len(made.content) and not store.has(names.step_dir(40))
        assert bytes(file.fetch(5000, 9000, scratch(4000))) == made.content[5000:9000]
        into = np.empty(4096, np.uint8)
        file.fill(into, 8192, scratch(4096))
        assert into.tobytes() == made.content[8192 : 8192 + 4096]
        assert file.get(19_990, 99) == made.content[19_990:] and file.get(30_000, 5) == b""
        with pytest.raises(CorruptError, match="the end at byte 20000"):
            file.fetch(19_000, 21_000, scratch(2000))
    assert file.closed
    file.close()


def test_a_checkpoint_that_is_discarded_is_gone_whole(store, pair, commit):
    commit(store, 10)
    commit(store, 20, seed=1)
    assert store.nbytes(names.step_dir(10)) > 20_000
    pair[1].discard(store, 10)
    assert Run.open(store).step_dirs() == [20] and store.nbytes(names.step_dir(10)) is None
    assert store.discard(names.step_dir(10), 10), "there is none"
    pair[1].fill(store, 30, sample(), B)
    WritableRun.open(store).clear((30, B))
    assert Run.open(store).partials() == [] and verify(store).ok
    store.sweep()
    assert not [name for name in store.list() if name.startswith(".")]


def test_a_checkpoint_that_is_abandoned_has_its_bytes_under_the_new_name(store, commit):
    made = commit(store, 40)
    run = WritableRun.open(store)
    to = run.abandon(40, A)
    name = f"{names.ABANDONED_DIR}/{names.abandoned_dir(40, A)}"
    assert to == store.where(name) and run.step_dirs() == [] and not run.has_step(40)
    with closing(store.open(f"{name}/{names.MODEL_FILE}")) as file:
        assert file.get(0, file.size) == made.content
    with pytest.raises(RunError):
        run.abandon(40, A)
    commit(store, 40, B)
    assert run.manifest(40).attempt == B and run.quarantine(40) == store.where(f"damaged/{names.damaged_dir(40, B)}")
    assert run.damaged() == [(40, B)]
    removed = prune(store, 1, damaged=True, abandoned=True)
    assert [one.kind for one in removed.removals] == ["damaged", "abandoned"] and removed.freed > 40_000
    assert run.damaged() == [] and run.step_dirs() == [] and not [name for name in store.list() if name.startswith(".")]


# --- both halves over one directory


@pytest.fixture
def both(tmp_path):
    """A directory, Python's half and the engine's."""
    store = directory(tmp_path)
    store.make()
    assert store.create(names.RUN_FILE, RunFile(files.RUN_ID, files.CREATED).to_bytes())
    return store, Half(), EngineHalf()


def test_both_halves_see_the_same_newest_checkpoint(both):
    store, python, engine = both

    def seen():
        steps = Run.open(store).committed()
        assert newest(store) == (steps[-1] if steps else None)
        return newest(store)

    assert seen() is None
    for step, half in ((10, python), (20, engine), (30, python), (40, engine)):
        half.fill(store, step, sample())
        assert seen() == (step - 10 or None)
        half.publish(store, step, A)
        assert seen() == step
    WritableRun.open(store).abandon(40, A)
    assert seen() == 30
    engine.discard(store, 30)
    assert seen() == 20
    python.discard(store, 20)
    assert seen() == 10
    manifest = f"{names.step_dir(10)}/{names.MANIFEST_FILE}"
    store.put(manifest, store.read(manifest, 1 << 20)[:-9])
    assert seen() is None


def test_what_one_half_leaves_half_done_the_other_finishes(both):
    store, python, engine = both
    made = sample()
    engine.fill(store, 40, made)
    fill(store, 40, made)  # rank 0's part too, by Python
    python.publish(store, 40, A)
    fill(store, 50, made)
    store.remove(f"{names.partial_dir(50, A)}/{names.record_file(0)}")
    engine.fill(store, 50, made)
    engine.publish(store, 50, A)
    assert Run.open(store).committed() == [40, 50] and verify(store).ok


def test_an_attempt_that_has_lost_the_run_changes_nothing(both):
    store, _, engine = both
    run = WritableRun.open(store)
    run.claim(A)
    for step in (10, 20):
        engine.fill(store, step, sample())
    engine.publish(store, 10, A)
    run.claim(B)
    with pytest.raises(EngineError, match=f"attempt {B} has taken the run"):
        engine.publish(store, 20, A)
    with pytest.raises(EngineError, match=f"attempt {B} has taken the run"):
        engine.discard(store, 10)
    assert run.committed() == [10] and verify(store).ok
    engine.discard(store, 10, B)
    assert run.step_dirs() == []


@pytest.mark.parametrize("writer", ["python", "engine"])
def test_readers_see_the_whole_of_a_checkpoint_or_nothing(both, writer):
    store, python, engine = both
    half = python if writer == "python" else engine
    made, over, read = sample(), threading.Event(), []

    def look():
        while not over.is_set():
            newest(store)
            for step in Run.open(store).step_dirs():
                try:
                    with deepfreeze.read(store, step) as reader:
                        for name, value in made.values.items():
                            np.testing.assert_array_equal(reader[name], value)
                except NotFoundError:
                    continue  # removed meanwhile
                read.append(step)

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(look)
        try:
            for step in range(1, 6):
                half.fill(store, step, made)
                half.publish(store, step, A)
                seen = len(read)
                while len(read) == seen and not reader.done():
                    over.wait(0.001)
                half.discard(store, step)
        finally:
            over.set()
        reader.result()
    assert len(read) >= 5 and Run.open(store).step_dirs() == []


# --- the run


@small
def test_a_run_is_made_once_and_opened(pair):
    store, _ = pair
    with pytest.raises(NotFoundError, match="no such directory"):
        Run.open(store)
    run = WritableRun.open_or_make(store)
    assert WritableRun.open_or_make(store) == Run.open(store) == run or run.run_id == Run.open(store).run_id
    assert not store.make_above() and not store.make()
    store.refresh()
    assert Run.open(store) == Run.open(store)
    store.remove(names.RUN_FILE)
    store.unmake()
    assert not store.has("")


@small
def test_one_job_at_a_time_has_the_lock(store):
    with store.lock(), pytest.raises(LockedError):
        store.lock(4)
    held = store.lock()
    held.release()
    held.release()
    store.lock().release()


def test_tags_marks_and_rules_need_the_store_alone(store, pair, commit):
    for step in (10, 20, 30):
        commit(store, step, seed=step)
    run = Run.open(store)
    assert tag(run, 10, "paper").step == 10 and list(tags(run)) == ["paper"]
    with pytest.raises(RunError, match="step 10 has it"):
        tag(run, 20, "paper")
    assert prune(store, 1).keep == {10: "tag paper", 30: "newest"} and run.committed() == [10, 30]
    with deepfreeze.read(store, "paper") as reader:
        assert reader.info.step == 10
    untag(run, "paper")
    assert prune(store, 1).keep == {30: "newest"} and tags(run) == {}


def test_damage_falls_back_to_the_checkpoint_before(store, commit):
    commit(store, 10)
    commit(store, 20)
    manifest = f"{names.step_dir(20)}/{names.MANIFEST_FILE}"
    store.put(manifest, store.read(manifest, 1 << 20)[:-9])
    assert not verify(store).ok and deepfreeze.latest(store).step == 10
    search = Fallback(store, unheard)
    assert search.next() == 10
    search.quarantine()
    assert Run.open(store).step_dirs() == [10] and Run.open(store).damaged() == [(20, None)]


@small
def test_events_are_read_from_where_they_were_read_to(store):
    file = store.append(f"{names.EVENTS_DIR}/{names.events_file(A)}")
    found = EventFiles(store)
    line = b'{"v":1,"t":%d,"m":0.5,"kind":"captured","step":%d,"nbytes":1}\n'
    file.write(line % (1, 10))
    assert [event["step"] for event in found.new()] == [10]
    file.write((line % (2, 20))[:-5])
    assert found.new() == []
    file.write((line % (2, 20))[-5:])
    assert [event["step"] for event in found.new()] == [20]
    file.close()


# --- the table


@pytest.fixture
def memory(monkeypatch):
    monkeypatch.setattr(stores, "STORES", {})
    monkeypatch.setattr(memory_store, "PLACES", {})
    stores.add("memory", memory_store.at)


def test_a_store_of_ones_own_is_named_like_a_url(memory):
    store = stores.at("memory://runs/nt3")
    WritableRun.open_or_make(store)
    made = sample()
    fill(store, 40, made)
    store.blobs["run.json"] = RunFile(files.RUN_ID, files.CREATED).to_bytes()
    store.publish(40, A)
    info = deepfreeze.latest("memory://runs/nt3")
    assert info.step == 40 and stores.at(info.run) is store, "also as pathlib writes it"
    with pytest.raises(OptionError, match="Train into a directory"):
        stores.directory("memory://runs/nt3")


def test_an_unknown_store_is_no_directory(memory):
    with pytest.raises(OptionError, match=r"a directory, or a store of 'memory'; found 's3://bucket/run'"):
        deepfreeze.latest("s3://bucket/run")
    with pytest.raises(NotFoundError):
        deepfreeze.latest("./s3:/bucket/run")
    for scheme, found in (("memory", "there already"), ("S3", "'S3'"), ("c", "'c'")):
        with pytest.raises(OptionError, match=found):
            stores.add(scheme, memory_store.at)
