"""The faults of VELOC, and the defence of a backend against each of them; without TensorFlow."""

import os
import sys
import zlib

import numpy as np
import pytest

from deepfreeze.engine.backend import Opening
from deepfreeze.engine.open_engine import OpenEngine
from deepfreeze.engine.target import Target
from deepfreeze.errors import EngineError
from deepfreeze.format.levels import Level
from deepfreeze.notices import unheard
from tests.support import processes, veloc
from tests.support.refusals import assert_four_parts
from veloc_bindings import CORRUPT, EngineFault

SIZE, ATTEMPT = 4096, 32 * "c"


@pytest.fixture
def configured(tmp_path):
    return veloc.write_configuration(tmp_path)


@pytest.fixture
def opening(tmp_path):
    target = Target(str(tmp_path / "run"), 32 * "0", ATTEMPT)
    return Opening(target=target, structure=bytes(32), file_size=SIZE, timeout=30.0)


def content(step):
    return np.random.default_rng(step).integers(0, 256, SIZE, np.uint8)


def save(stub, configured, opening, *steps):
    """Saves these steps; returns the last report of each."""
    backend, last = veloc.kind(stub, configured).open(opening), {}
    for step in steps:
        data = content(step)
        backend.submit(step, np.array([[data.ctypes.data, SIZE, 0]], np.uint64), b"", 30.0, b"")
        backend.drain(30.0)
        last |= {report.step: report for report in backend.poll()}
    backend.close()
    return last


def restored(stub, configured, world=1):
    """The newest step that is restored, its bytes, and the torn steps that were passed by."""
    images, torn = veloc.restore(stub, configured, ATTEMPT, world)
    return (images[0].header["step"], images[0].regions[0][1].tobytes(), torn) if images else (None, b"", torn)


def wrong(name, configured):
    if name == "no file":
        configured.unlink()
    elif name == "a folder that is missing":
        (configured.parent / "scratch").rmdir()
    elif name == "a setting that is missing":
        configured.write_text(f"scratch = {configured.parent / 'scratch'}\n")
    else:
        configured.write_text(configured.read_text() + "mode = slow\n")


WRONG = ["no file", "a folder that is missing", "a setting that is missing", "a mode that VELOC hangs at"]


@pytest.mark.parametrize("name", WRONG, ids=["no-file", "no-folder", "no-setting", "hangs"])
def test_a_configuration_that_would_end_the_process_is_refused(stub, configured, opening, name):
    wrong(name, configured)
    with pytest.raises(EngineError) as caught:
        OpenEngine(veloc.kind(stub, configured), opening, unheard)
    assert_four_parts(caught.value, where=opening.target.run, expected="an engine", found=str(configured))


@pytest.mark.parametrize("name", WRONG[:3], ids=["no-file", "no-folder", "no-setting"])
def test_the_library_itself_ends_the_process_at_such_a_configuration(stub, configured, name):
    wrong(name, configured)
    code = (
        f"import ctypes; ctypes.CDLL({str(stub)!r}).VELOC_Init_single(0, {os.fsencode(configured)!r}); print('alive')"
    )
    done = processes.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (255, "")


def test_a_library_that_is_missing_is_an_error_before_a_run_is_touched(tmp_path, configured):
    with pytest.raises(EngineError, match="VELOC's client"):
        veloc.kind(tmp_path / "none.so", configured).load()


def test_a_copy_that_stops_half_way_is_reported_and_never_restored(stub, configured, opening, monkeypatch):
    """The library says that all is well."""
    monkeypatch.setenv("VELOC_STUB_TEAR", "2")
    last = save(stub, configured, opening, 1, 2)
    assert last[1].level == Level.EXTERNAL and last[2].code == CORRUPT and last[2].released
    assert "is not as VELOC was given it" in last[2].message
    assert restored(stub, configured) == (1, content(1).tobytes(), [])


def tear(file):
    """Writes other bytes into the second half of a file."""
    half = file.stat().st_size // 2
    file.write_bytes(file.read_bytes()[:half] + bytes(file.stat().st_size - half))


def test_a_torn_file_is_refused_and_the_older_checkpoint_taken(stub, configured, opening):
    save(stub, configured, opening, 1, 2)
    for folder in ("scratch", "persistent"):
        tear(configured.parent / folder / f"deepfreeze_{ATTEMPT}-0-2.dat")
    assert restored(stub, configured) == (1, content(1).tobytes(), [2])


def test_the_persistent_file_is_taken_where_the_one_on_scratch_is_torn(stub, configured, opening):
    save(stub, configured, opening, 1, 2)
    tear(configured.parent / "scratch" / f"deepfreeze_{ATTEMPT}-0-2.dat")
    assert restored(stub, configured) == (2, content(2).tobytes(), [])


def test_what_is_on_scratch_alone_does_not_count(stub, configured, opening):
    """The machine may lose it: a checkpoint counts when its marker is durable."""
    save(stub, configured, opening, 1, 2)
    (configured.parent / "persistent" / f"deepfreeze_{ATTEMPT}-0-2.durable").unlink()
    assert restored(stub, configured) == (1, content(1).tobytes(), [])


def test_a_step_that_one_rank_lacks_is_not_restored(stub, configured, opening):
    """VELOC's ranks take the greatest version that any of them has, and fail."""
    both = [Opening(**{**vars(opening), "rank": rank, "world": 2}) for rank in range(2)]
    backend = veloc.kind(stub, configured)
    for steps in ([1], [1, 2]):
        rank = len(steps) - 1
        one = backend.open(both[rank])
        for step in steps:
            data = content(step)
            one.submit(step, np.array([[data.ctypes.data, SIZE, 0]], np.uint64), b"", 30.0, b"")
            one.wait(step, Level.LOCAL, 30.0)
        marker = configured.parent / "persistent" / f"deepfreeze_{ATTEMPT}-{rank}-1.durable"
        while not marker.exists():
            one.poll()
        one.close()
    assert restored(stub, configured, 2)[0] == 1


def test_all_is_synced_before_a_checkpoint_is_external(stub, configured, opening, monkeypatch):
    synced, really = [], os.fsync

    def fsync(descriptor):
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    save(stub, configured, opening, 1)
    name = f"deepfreeze_{ATTEMPT}-0-1"
    assert synced == [f"{name}.dat", f"{name}.durable", "persistent"]


def test_the_file_is_laid_out_as_velocs(stub, configured, opening):
    """One region: u64 the number of regions, i32 id, u64 size, then its bytes."""
    save(stub, configured, opening, 1)
    data = (configured.parent / "persistent" / f"deepfreeze_{ATTEMPT}-0-1.dat").read_bytes()
    image = data[20:]
    assert data[:20] == (1).to_bytes(8, "little") + bytes(4) + len(image).to_bytes(8, "little")
    assert image[-4:] == zlib.crc32(image[:-4]).to_bytes(4, "little")


def test_a_failed_checkpoint_raises_in_a_wait_for_it(stub, configured, opening, monkeypatch):
    monkeypatch.setenv("VELOC_STUB_TEAR", "1")
    backend, data = veloc.kind(stub, configured).open(opening), content(1)
    backend.submit(1, np.array([[data.ctypes.data, SIZE, 0]], np.uint64), b"", 30.0, b"")
    with pytest.raises(EngineFault) as caught:
        backend.wait(1, Level.EXTERNAL, 30.0)
    assert caught.value.code == CORRUPT
    backend.close()
