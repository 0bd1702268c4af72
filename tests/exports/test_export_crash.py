"""An export that is killed at any of its calls, or whose machine loses power: a whole file under the name, or what was there."""

from __future__ import annotations

import errno
import os
import re
import stat

import pytest

from deepfreeze.exports import draft
from deepfreeze.exports.export import export
from deepfreeze.inspect.verify import verify
from tests.support import files, killed

pytestmark = pytest.mark.crash
NAME = "a.weights.h5"
HIDDEN = re.compile(r"\.a\.weights\.h5\.[0-9a-f]{8}\.tmp")


@pytest.fixture
def run(tmp_path):
    path = files.write_run(tmp_path / "run")
    files.write_checkpoint(path, 40)
    return path


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture(params=["unnamed", "named", "unlinked"])
def needs_a_name(request, monkeypatch, out):
    """Whether the target's file system has no files without a name. Some have no second names either."""
    if request.param != "unnamed":
        monkeypatch.setattr(draft, "_OWN_FILES", "/proc/none")
    if request.param == "unlinked":

        def refuse(*arguments, **options):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", refuse)
    try:
        os.close(os.open(out, os.O_RDWR | os.O_TMPFILE))
    except OSError:
        return True
    return request.param != "unnamed"


@pytest.fixture(params=[False, True], ids=["new", "overwrite"])
def overwrite(request, out):
    if request.param:
        (out / NAME).write_bytes(b"before")
    return request.param


def test_an_export_killed_at_any_call_leaves_a_whole_file_or_the_old(run, out, needs_a_name, overwrite):
    """An export that is killed at any call leaves a whole file, or the file that was there before."""
    target, content, met = out / NAME, files.sample().content, []

    def anew():
        for name in os.listdir(out):
            (out / name).unlink()
        if overwrite:
            target.write_bytes(b"before")

    for call in killed.before_each_call(lambda: export(run, target, overwrite=overwrite), anew):
        there = target.read_bytes() if target.exists() else None
        assert there in (content, b"before" if overwrite else None), call
        left = sorted(set(os.listdir(out)) - {NAME})
        assert all(map(HIDDEN.fullmatch, left)) and len(left) <= 1, call
        assert needs_a_name or overwrite or not left, call
        met.append((there == content, bool(left)))
        assert verify(run, 40).ok
        export(run, target, overwrite=target.exists())
        assert target.read_bytes() == content and sorted(set(os.listdir(out)) - {NAME}) == left, "it is in nobody's way"
    assert len(met) >= 5 and met[0] == (False, False) and met[-1] == (True, False)
    assert ((False, True) in met) == (needs_a_name or overwrite), "a kill may leave the hidden name"


def test_an_export_is_durable_before_it_has_its_name_and_returns(run, out, needs_a_name, overwrite, monkeypatch):
    """The bytes are on the disk before they have the name and the name before it returns."""
    content, calls = files.sample().content, []

    def noted(name, call):
        def note(*arguments, **options):
            result = call(*arguments, **options)
            if name != "fsync":
                calls.append(f"{name} {HIDDEN.sub('HIDDEN', str(arguments[1]))}")
            elif stat.S_ISDIR(os.fstat(arguments[0]).st_mode):
                assert os.path.samestat(os.fstat(arguments[0]), os.stat(out))
                calls.append("sync the folder")
            else:
                assert os.pread(arguments[0], len(content) + 1, 0) == content, "all of it"
                synced.append(os.fstat(arguments[0]).st_ino)
                calls.append("sync the file")
            return result

        return note

    synced: list[int] = []
    for name in ("fsync", "link", "replace"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    export(run, out / NAME, overwrite=overwrite)
    naming = {"sync the file": 1, f"link {NAME}": 2, "link HIDDEN": 2, f"replace {NAME}": 3, "sync the folder": 4}
    order = [naming[call] for call in calls]
    assert order == sorted(set(order)) and order[0] == 1 and order[-1] == 4 and len(order) >= 3, calls
    assert (calls[-2] == f"replace {NAME}") if overwrite else calls[-2].endswith(NAME)
    assert synced == [(out / NAME).stat().st_ino] and (out / NAME).read_bytes() == content
