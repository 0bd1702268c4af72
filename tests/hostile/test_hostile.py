"""Files made to do harm, by hand: every one is refused with an error of ours, at once, and without a large allocation.

What each case puts in place is right in all other respects, checksums included, so that nothing but the check it aims at can
refuse it. ``cases.py`` holds the files, this module what must become of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import resource
import signal
import stat
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pytest

import deepfreeze
import veloc_bindings
from deepfreeze.cli.main import main
from deepfreeze.errors import NewerError, StructureError
from deepfreeze.format.manifest import MAX_MANIFEST, Manifest
from deepfreeze.format.plan_file import MAX_PLAN, PlanFile
from deepfreeze.format.structure import MAX_STRUCTURE, Structure
from deepfreeze.inspect.verify import verify
from deepfreeze.notices import unheard
from deepfreeze.plan.auto_section import AutoSection
from deepfreeze.plan.budget_section import BudgetSection
from deepfreeze.store.lock import Lock
from deepfreeze.store.plan import put_section, read_plan, read_section
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.tiers import leftovers, rescue
from tests.hostile import cases
from tests.support import configs, files, plans, processes, products
from tests.support.private import read_private

SECONDS = 10
MEMORY = 32 << 20  # of any reader for any of these; the largest of them has a quarter of a MiB
ROOM = 2 << 30
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(tmp_path):
    return files.write_run(tmp_path / "run")


@pytest.fixture(autouse=True)
def bounded():
    """No case may take long, hang, allocate much, or have long integers multiplied."""

    def hangs(number, frame):
        raise AssertionError(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, hangs)
    # A reader that follows a link to /dev/zero must not take the machine's memory with it.
    space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (space + ROOM, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    tracemalloc.start()
    with products.counted() as multiplied:
        yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert peak < MEMORY, f"{peak} bytes were allocated"
    multiplied.check()


def read_all(run):
    with deepfreeze.read(run, 40) as tensors:
        return {name: tensors[name] for name in tensors}


def everything(run):
    """{name: what it is and holds} of all that is in a run; nothing is followed."""
    found = {}
    for folder, folders, names in os.walk(run):
        for name in (*folders, *names):
            path = Path(folder, name)
            status = path.lstat()
            what = os.readlink(path) if path.is_symlink() else b""
            if stat.S_ISREG(status.st_mode) and status.st_size < 1 << 22:
                what = path.read_bytes()
            found[str(path)] = (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, what)
    return found


def refused(run, *places):
    """Every reader of the checkpoint refuses it, with an error that names one of the places and has its other three parts; those
    of the whole run raise nothing else; and nothing in the run is changed."""
    before = everything(run)
    with pytest.raises(deepfreeze.Error) as caught:
        read_all(run)
    error = caught.value
    assert error.where in map(str, places), error
    assert all(part.strip() for part in (error.expected, error.found, error.todo)), error
    assert len(str(error)) < 4000
    str(error).encode()
    with contextlib.suppress(deepfreeze.Error):
        assert not verify(run, 40).ok
    for survey in (deepfreeze.checkpoints, deepfreeze.latest, read_private):
        with contextlib.suppress(deepfreeze.Error):
            survey(run)
    assert everything(run) == before


def test_the_cases_are_right_but_for_what_they_aim_at(run):
    made = files.write_checkpoint(run, 40, cases.sample())[1]
    assert verify(run, 40).ok and set(read_all(run)) == set(made.values)
    cases.put_manifest(run, cases.manifest())
    cases.put_record(run, 1, cases.record())
    cases.put_structure(run, made.structure)
    assert verify(run, 40).ok and set(read_all(run)) == set(made.values)


def tried(names):
    """All of them in `make test-all`. Of those that cross a place with a value of ``NUMBERS``, `make check` tries every fourth: each place
    and each value several times."""
    crossed = [name for name in names if name.rpartition(" ")[2] in cases.NUMBERS]
    rest = set(crossed).difference(crossed[::4])
    return [pytest.param(name, marks=pytest.mark.full) if name in rest else name for name in names]


@pytest.mark.parametrize("name", tried(cases.MANIFESTS))
def test_a_hostile_manifest_is_refused(run, name):
    files.write_checkpoint(run, 40, cases.sample())
    cases.put_manifest(run, cases.MANIFESTS[name]())
    refused(run, run / cases.STEP / "manifest.json")
    assert deepfreeze.checkpoints(run) == [] and deepfreeze.latest(run) is None


@pytest.mark.parametrize("name", tried(cases.STRUCTURES))
def test_a_hostile_structure_is_refused_and_the_checkpoint_listed(run, name):
    files.write_checkpoint(run, 40, cases.sample())
    data = cases.STRUCTURES[name]()
    cases.put_structure(run, data)
    refused(run, run / "structures" / f"{hashlib.sha256(data).hexdigest()}.json")
    assert [(info.step, info.state) for info in deepfreeze.checkpoints(run)] == [(40, "unknown")]


@pytest.mark.parametrize("name", cases.RECORDS)
def test_a_hostile_record_is_refused_and_never_committed(run, library, name):
    data = cases.RECORDS[name]()
    folder, _ = files.write_checkpoint(run, 40, cases.sample())
    cases.put_record(run, 1, data)
    # Records that are right one by one may still not add up to the model file.
    refused(run, folder / "rank-00001.record", folder / "model.weights.h5")
    partial = folder.rename(run / f"step-0000000040.partial-{files.ATTEMPT}")
    (partial / "manifest.json").unlink()
    with pytest.raises(veloc_bindings.EngineFault) as caught:
        veloc_bindings.commit(run, 40, bytes.fromhex(files.ATTEMPT))
    assert caught.value.code in (veloc_bindings.CORRUPT, veloc_bindings.INCOMPLETE)
    assert deepfreeze.checkpoints(run) == []
    with contextlib.suppress(deepfreeze.CorruptError):  # a newer version's is not understood, and not cleared
        assert rescue.plan(WritableRun.open(run), []).finish in ([], [(40, files.ATTEMPT)])


@pytest.mark.parametrize("name", tried(cases.RUNS))
def test_a_hostile_run_file_is_refused(run, name):
    files.write_checkpoint(run, 40, cases.sample())
    (run / "run.json").write_bytes(cases.RUNS[name]())
    refused(run, run / "run.json")
    with pytest.raises(deepfreeze.Error):
        WritableRun.open_or_make(run)


@pytest.mark.parametrize("name", cases.SLOTS)
def test_a_hostile_slot_is_never_brought_in(run, tmp_path, library, name):
    folder = tmp_path / "deepfreeze-0" / files.RUN_ID
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    path = folder / "rank-00001-0.slot"
    cases.SLOTS[name](path)
    for use in (lambda: veloc_bindings.slot_inspect(path), lambda: veloc_bindings.slot_transfer(path, run)):
        with pytest.raises(veloc_bindings.EngineFault) as caught:
            use()
        assert caught.value.code == veloc_bindings.CORRUPT
    with contextlib.suppress(deepfreeze.CorruptError):  # a newer version's is not understood, and not cleared
        assert leftovers.leftover_slots(folder, unheard) == []
    assert os.listdir(run) == ["run.json"]


@pytest.mark.parametrize("name", cases.CONFIGS)
def test_a_hostile_configuration_is_never_exported(run, tmp_path, name):
    files.write_checkpoint(run, 40, cases.sample())
    file = configs.write_config(run, cases.CONFIGS[name]())
    with pytest.raises(deepfreeze.CorruptError) as caught:
        deepfreeze.export(run, tmp_path / "a.keras")
    error = caught.value
    assert error.where == str(file) and error.expected and error.found and error.todo
    assert len(str(error)) < 4000 and not (tmp_path / "a.keras").exists()
    assert [problem.file for problem in verify(run, 40).problems] == [file.name]
    assert len(read_all(run)) == 5 and deepfreeze.latest(run).step == 40  # it is in the way of nothing else


@pytest.mark.parametrize("kind", cases.KINDS)
def test_what_is_no_file_is_no_configuration(run, tmp_path, kind):
    files.write_checkpoint(run, 40, cases.sample())
    cases.replace(configs.write_config(run), kind)
    with pytest.raises(deepfreeze.Error):
        deepfreeze.export(run, tmp_path / "a.keras")
    assert not (tmp_path / "a.keras").exists()


def test_a_configuration_names_code_and_nothing_is_run(run, tmp_path):
    """Whoever opens the archive decides whether to trust it; Keras refuses such a layer unless told otherwise."""
    files.write_checkpoint(run, 40, cases.sample())
    layer = {"class_name": "__lambda__", "config": {"value": "4wAAAA=="}, "module": "os", "registered_name": "system"}
    configs.write_config(run, configs.config_bytes({"class_name": "Lambda", "config": {"function": layer}}))
    deepfreeze.export(run, tmp_path / "a.keras")
    with zipfile.ZipFile(tmp_path / "a.keras") as archive:
        assert json.loads(archive.read("config.json"))["config"]["function"] == layer


@pytest.mark.parametrize(
    "name", [*cases.PLANS, *(pytest.param(name, marks=pytest.mark.full) for name in cases.MORE_PLANS)]
)
def test_a_hostile_plan_is_refused_and_replaced(run, name):
    """A newer version's is not replaced."""
    file = plans.write_plan(run, (cases.PLANS | cases.MORE_PLANS)[name]())
    opened_run = WritableRun.open(run)
    with pytest.raises(deepfreeze.CorruptError) as caught:
        AutoSection.from_json(read_section(opened_run, "auto"), file)
    error = caught.value
    assert error.where == str(file) and error.expected and error.found and error.todo and len(str(error)) < 4000
    with pytest.raises(NewerError) if name == "another version" else contextlib.nullcontext():
        put_section(opened_run, "auto", plans.section_json())
        assert AutoSection.from_json(read_section(opened_run, "auto")) == plans.SECTION


@pytest.mark.parametrize("name", ["empty", "another version", "an interval that is text", "many windows"])
def test_a_hostile_plan_is_in_the_way_of_nothing(run, name, capsys):
    files.write_checkpoint(run, 40, cases.sample())
    file = plans.write_plan(run, cases.PLANS[name]())
    assert verify(run).ok and deepfreeze.latest(run).step == 40
    assert main(["plan", str(run)]) == 1
    assert capsys.readouterr().err.startswith(f"deepfreeze: {file}: expected ")


@pytest.mark.parametrize(
    "name", [*cases.BUDGETS, *(pytest.param(name, marks=pytest.mark.full) for name in cases.MORE_BUDGETS)]
)
def test_a_hostile_budget_in_a_plan_is_refused(run, name):
    file = plans.write_plan(run, (cases.BUDGETS | cases.MORE_BUDGETS)[name]())
    with pytest.raises(deepfreeze.CorruptError) as caught:
        BudgetSection.from_json(read_section(WritableRun.open(run), "budget"), file)
    assert caught.value.where == str(file) and len(str(caught.value)) < 4000


@pytest.mark.parametrize("kind", cases.KINDS)
def test_what_is_no_file_is_no_plan(run, kind):
    cases.replace(plans.write_plan(run), kind)
    with pytest.raises(deepfreeze.Error):
        read_plan(WritableRun.open(run))


@pytest.mark.parametrize("kind", cases.KINDS)
@pytest.mark.parametrize(
    "place", ["run.json", "structure", "step", "manifest.json", "model.weights.h5", "rank-00001.record"]
)
def test_what_is_no_file_is_neither_followed_nor_waited_for(run, kind, place):
    folder, made = files.write_checkpoint(run, 40, cases.sample())
    places = {"run.json": run / "run.json", "structure": run / "structures" / f"{made.hash}.json", "step": folder}
    replaced = places.get(place, folder / place)
    cases.replace(replaced, kind)
    refused(run, replaced, folder / "manifest.json" if place == "step" else replaced)


@pytest.mark.parametrize("kind", cases.KINDS)
def test_a_job_takes_no_lock_that_is_no_file(run, tmp_path, kind):
    (tmp_path / "precious").write_bytes(b"precious")
    (run / "lock").write_bytes(b"")
    cases.replace(run / "lock", kind)
    with pytest.raises(deepfreeze.Error):
        Lock.acquire(run)
    assert (tmp_path / "precious").read_bytes() == b"precious"


ENGINE = """
import resource, sys
import veloc_bindings
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
kind, *arguments = sys.argv[1:]
use = {
    "inspect": lambda path: veloc_bindings.slot_inspect(path),
    "transfer": lambda path, run: veloc_bindings.slot_transfer(path, run),
    "commit": lambda run: veloc_bindings.commit(run, 40, bytes.fromhex("0123456789abcdef0123456789abcdef")),
}[kind]
try:
    use(*arguments)
except veloc_bindings.EngineFault as fault:
    assert fault.code in (veloc_bindings.CORRUPT, veloc_bindings.IO) and fault.message, fault
    print("refused")
"""


def engine(*arguments):
    """One call of the engine in a process with 1 GiB of address space, which is ended if it hangs."""
    command = [sys.executable, "-c", ENGINE, *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return processes.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.parametrize("kind", cases.KINDS)
def test_the_engine_neither_follows_nor_waits_for_what_is_no_file(run, tmp_path, library, kind):
    folder, _ = files.write_checkpoint(run, 40, cases.sample())
    partial = folder.rename(run / f"step-0000000040.partial-{files.ATTEMPT}")
    (partial / "manifest.json").unlink()
    slot = tmp_path / "rank-00001-0.slot"
    cases.SLOTS["not whole"](slot)
    cases.replace(slot, kind)
    whole = partial / "rank-00001.record"
    data = whole.read_bytes()
    cases.replace(whole, kind)
    done = [engine("inspect", slot), engine("transfer", slot, run), engine("commit", run)]
    os.rename(whole, tmp_path / "aside") if not whole.is_dir() else whole.rmdir()
    whole.write_bytes(data)
    cases.replace(partial / "model.weights.h5", kind)
    done.append(engine("commit", run))
    assert [(d.stdout, d.stderr) for d in done] == [("refused\n", "")] * 4


def test_a_link_in_the_trash_is_removed_and_not_what_it_leads_to(run, tmp_path, library):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_bytes(b"years of work")
    files.write_checkpoint(run, 10)
    os.rename(run / "step-0000000010", tmp_path / "step")
    (run / "step-0000000010").symlink_to(tmp_path / "step")
    (run / f".trash-step-0000000001-{files.ATTEMPT}").symlink_to(precious)
    made = files.sample(world=1)
    with veloc_bindings.EmbeddedEngine.open(
        rank=0, world=1, in_flight=1, slots=1, writers=1, chunk_bytes=8192, file_size=len(made.content),
        commit_timeout=30, run_id=bytes.fromhex(files.RUN_ID), attempt=bytes.fromhex("f" * 32),
        structure=bytes.fromhex(made.hash), run_dir=str(run), local_dir=None,
    ) as made_engine:  # fmt: skip
        for step in (40, 50):
            made_engine.submit(step, [(made.content, len(made.content), 0)], b"", 30)
            made_engine.drain(30)
    assert (precious / "thesis.tex").read_bytes() == b"years of work"
    assert (tmp_path / "step" / "manifest.json").exists()
    assert not [name for name in os.listdir(run) if name.startswith(".trash")]


@pytest.mark.parametrize("size", [MAX_MANIFEST + 1, 1 << 40])
@pytest.mark.parametrize("name", ["manifest.json", "structure", "run.json", "rank-00001.record"])
def test_a_file_that_is_larger_than_any_of_its_kind_is_not_read(run, name, size):
    folder, made = files.write_checkpoint(run, 40, cases.sample())
    places = {"run.json": run / "run.json", "structure": run / "structures" / f"{made.hash}.json"}
    os.truncate(places.get(name, folder / name), size)
    refused(run, places.get(name, folder / name))


def test_bytes_that_are_too_many_are_not_parsed():
    for reader, most in ((Manifest, MAX_MANIFEST), (Structure, MAX_STRUCTURE), (PlanFile, MAX_PLAN)):
        data = b" " * (most + 1)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        with pytest.raises(deepfreeze.CorruptError, match=f"at most {most} bytes"):
            reader.from_bytes(data, "x")
        assert tracemalloc.get_traced_memory()[1] - before < most // 2, (
            "the bytes were decoded: a text takes as much memory as its bytes"
        )
        del data
        tracemalloc.clear_traces()


@pytest.mark.parametrize("where", ["name", "path"])
@pytest.mark.parametrize("text", ["a\nb", "a\0b", "a\x1b[31mb", "a\ud800b", "a\u202eb", "a\x7fb", ""])
def test_a_name_that_could_not_be_read_back_is_not_written(where, text):
    made = Structure.from_bytes(cases.sample().structure, "x")
    first = made.tensors[1]
    changed = (
        dataclasses.replace(first, path=text)
        if where == "path"
        else dataclasses.replace(first, spec=dataclasses.replace(first.spec, name=text))
    )
    with pytest.raises(StructureError) as caught:
        dataclasses.replace(made, tensors=(changed,))
    str(caught.value).encode()


@pytest.mark.parametrize("depth", [10, 500, 900, 940, 960, 980, 990, 1000, 5000, 100000])
def test_nesting_of_any_depth_is_refused_with_an_error_of_ours(depth):
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        nested = opening * depth + ("1" if opening != "[" else "") + closing * depth
        for key in ("file", "file_size", "format", "framework", "layout", "state", "tensors"):
            value = cases.sample().structure.decode()
            at = value.index(f'"{key}":') + len(key) + 3
            data = (value[:at] + nested + ',"rest":0,"more":' + value[at:]).encode()
            with pytest.raises(deepfreeze.CorruptError):
                Structure.from_bytes(data, "x")
            with pytest.raises(deepfreeze.CorruptError):
                Structure.from_bytes(f'{{"format":1,"{key}":{nested}}}'.encode(), "x")


@pytest.mark.parametrize(
    "name",
    [
        "step-40", "step-99999999999999999999", "step-9223372036854775808", "step-+000000040", "step-000000004 ", "step--000000040",
        "step-0000000041\n", "step-" + "\u0660" * 8 + "\u0664\u0660", "step-00000000041", "STEP-0000000041", "step-0x00000029",
    ],
)  # fmt: skip
def test_a_directory_that_only_looks_like_a_step_is_no_checkpoint(run, name):
    folder, _ = files.write_checkpoint(run, 40, cases.sample())
    (run / name).mkdir()
    (run / name / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())
    assert [info.step for info in deepfreeze.checkpoints(run)] == [40]
    assert verify(run).ok
