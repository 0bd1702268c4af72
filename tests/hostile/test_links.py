"""Links that somebody has put into a run before a job starts: nothing outside of the run is written, renamed or deleted through them.

``WRITTEN`` is the table of every path that is written in a run. The engine's have their test in native/testing/links_test.cc.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from deepfreeze.errors import Error, RunError
from deepfreeze.format import names
from deepfreeze.format.marks import MarksFile
from deepfreeze.format.model_config import ModelConfig
from deepfreeze.format.run_file import Parent
from deepfreeze.format.structure import Structure
from deepfreeze.store import marks, step_plans
from deepfreeze.store.failures import refused
from deepfreeze.store.lock import Lock
from deepfreeze.store.plan import put_section
from deepfreeze.store.tags import tag
from deepfreeze.store.writable_run import WritableRun
from tests.support import configs, files, plans
from tests.support.refusals import assert_four_parts

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = files.sample()
ENGINE = None  # who writes a file or folder of the engine's
ABANDONED, DAMAGED = (
    f"{folder}/step-00000000{step}-{files.ATTEMPT}" for folder, step in (("abandoned", 10), ("damaged", 20))
)
PLAN = f"{'5a' * 16}.json"


def append(run: WritableRun, rank: int) -> None:
    with contextlib.closing(run.store.append(f"events/{names.events_file(files.ATTEMPT, rank)}")) as file:
        file.write(b"{}\n")


@dataclass(frozen=True)
class Written:
    """``name``: a path in the run that is written, as docs/format.md has it; ``path``: such a path; ``write``: writes it, ENGINE for the
    engine. ``replaced``: the file is written beside its place and renamed to it."""

    name: str
    path: str
    write: Callable[[WritableRun], object] | None
    replaced: bool = True


_STEP, _PARTIAL, _ASIDE = "step-0000000040/", "step-0000000040.partial-ATTEMPT/", "step-0000000040-ATTEMPT/"
WRITTEN = (
    Written("run.json", "run.json", lambda run: run.set_parent(Parent.at("other", files.RUN_ID, 1, files.ATTEMPT))),
    Written("lock", "lock", lambda run: Lock.acquire(run.path).release(), replaced=False),
    Written("owner", "owner", lambda run: run.claim(files.ATTEMPT)),
    Written("marks.json", "marks.json", lambda run: marks.write(run, MarksFile(run.run_id).to_bytes())),
    Written("plan.json", "plan.json", lambda run: put_section(run, "auto", plans.section_json())),
    Written("plans/PLAN.json", f"plans/{PLAN}", lambda run: step_plans.put(run, PLAN, b"{}")),
    Written("tags/NAME", "tags/paper", lambda run: tag(run, 20, "paper"), replaced=False),
    Written("tags/NAME", "tags/paper", lambda run: run.store.remove("tags/paper"), replaced=False),
    Written(
        "structures/HASH.json",
        f"structures/{SAMPLE.hash}.json",
        lambda run: run.store_structure(Structure.from_bytes(SAMPLE.structure, "here")),
    ),
    Written(
        "configs/ATTEMPT.json",
        f"configs/{files.ATTEMPT}.json",
        lambda run: run.store_config(ModelConfig(run.run_id, files.ATTEMPT, configs.SEQUENTIAL)),
    ),
    Written("events/ATTEMPT.jsonl", f"events/{files.ATTEMPT}.jsonl", lambda run: append(run, 0), replaced=False),
    Written(
        "events/ATTEMPT.rank-00003.jsonl",
        f"events/{names.events_file(files.ATTEMPT, 3)}",
        lambda run: append(run, 3),
        replaced=False,
    ),
    Written(f"abandoned/{_ASIDE}", ABANDONED, lambda run: run.abandon(10, files.ATTEMPT), replaced=False),
    Written(f"abandoned/{_ASIDE}", ABANDONED, lambda run: run.discard(ABANDONED, 10), replaced=False),
    Written(f"damaged/{_ASIDE}", DAMAGED, lambda run: run.quarantine(20), replaced=False),
    Written(f"damaged/{_ASIDE}", DAMAGED, lambda run: run.discard(DAMAGED, 20), replaced=False),
    Written(
        f".trash-{_ASIDE}", f".trash-step-0000000010-{files.ATTEMPT}", lambda run: run.clear_trash(), replaced=False
    ),
    *(Written(name, name, ENGINE) for name in (_PARTIAL, "step-0000000040.failed-ATTEMPT", _STEP)),
    *(Written(f"{_STEP}{name}", name, ENGINE) for name in ("model.weights.h5", "records", "manifest.json")),
    *(Written(f"{_STEP}{name}", name, ENGINE) for name in ("rank-00003.record", "ranks-00001-00007-2.record")),
    *(Written(f"{_STEP}{name}", name, ENGINE) for name in ("rank-00003.failed", "rank-00003-7.alive")),
)
PYTHON = [written for written in WRITTEN if written.write is not ENGINE]


class Outside:
    """A folder that is no run: with a file, and with what a run's folders have, so that a link to it can do the most harm."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("thesis.tex", "paper", *(f"{Path(one).name}/model.weights.h5" for one in (ABANDONED, DAMAGED))):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(b"years of work")
        self.before = self.now()

    def now(self) -> dict[str, tuple]:
        found = {}
        for path in (self.path, *self.path.rglob("*")):
            status = path.lstat()
            data = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            found[str(path)] = (status.st_mode, status.st_ino, status.st_mtime_ns, data)
        return found


@pytest.fixture
def outside(tmp_path):
    return Outside(tmp_path / "outside")


def make_run(path: Path) -> Path:
    files.write_run(path, signed=True)
    for step in (10, 20):
        files.write_checkpoint(path, step, SAMPLE)
    return path


def refusals(run: Path, *wanted: Written) -> list[Error]:
    """Writes all that is wanted, each whether the others were refused or not. Returns the refusals."""
    found = []
    for written in wanted:
        assert written.write is not None
        try:
            written.write(WritableRun.open(run))
        except Error as error:
            found.append(error)
        except OSError as error:  # as a store says it
            found.append(refused(run, error))
    return found


def put_link(kind: str, place: Path, outside: Outside) -> None:
    """Puts a link in the place of a file or folder."""
    place.parent.mkdir(exist_ok=True)
    if place.is_dir():
        place.rename(outside.path.parent / f"was-{place.name}")
    place.unlink(missing_ok=True)
    thesis = outside.path / "thesis.tex"
    if kind == "a hard link":
        os.link(thesis, place)
    else:
        leads_to = {"a link": thesis, "a link to a folder": outside.path, "a link to nothing": outside.path / "x"}
        place.symlink_to(leads_to[kind])


KINDS = ("a link", "a hard link", "a link to a folder", "a link to nothing")


def test_the_table_has_every_path_that_the_format_has():
    text = (ROOT / "docs" / "format.md").read_text()
    block = text[text.index("\n## Names\n") : text.index("\n## Identity block\n")]
    found, folder = [], ""
    for line in block.splitlines():
        if match := re.match(r"    RUN/(\S+)  ", line):
            folder = match[1]
            found.append(folder)
        elif match := re.match(r"        (\S+)  ", line):
            found.append(folder + match[1])
    assert set(found) == {written.name for written in WRITTEN}
    assert {written.name.partition("/")[0] for written in PYTHON if "/" in written.name} >= set(names.RUN_DIRS)


def test_all_is_written_in_a_run_without_links_also_behind_a_link(tmp_path):
    run = make_run(tmp_path / "run")
    assert refusals(run, *PYTHON) == []
    (tmp_path / "link").symlink_to(make_run(tmp_path / "other"))
    assert refusals(WritableRun.open_or_make(tmp_path / "link").path, *PYTHON) == []


@pytest.mark.parametrize("written", PYTHON, ids=lambda written: written.path[:20])
def test_no_file_is_written_through_a_link(tmp_path, outside, written):
    """Nor through one in the place of the file that is renamed to it. That one has no other use, and goes."""
    for number, (kind, end) in enumerate(itertools.product(KINDS, ("", ".tmp") if written.replaced else ("",))):
        run = make_run(tmp_path / f"run-{number}")
        place = run / f"{written.path}{end}"
        (run / "structures" / f"{SAMPLE.hash}.json").unlink()  # it would be left as it is
        put_link(kind, place, outside)
        found = refusals(run, written)
        assert outside.now() == outside.before, f"{kind} at {place}"
        if end:
            assert found == [] and not os.path.lexists(place), f"{kind} at {place}"
            assert (run / written.path).lstat().st_nlink == 1
        if written.replaced:
            assert found or not place.is_symlink(), f"{kind} at {place} is still there, and nobody says so"


@pytest.mark.parametrize("folder", names.RUN_DIRS)
@pytest.mark.parametrize("kind", ["a link to a folder", "a link to nothing"])
def test_no_folder_that_is_a_link_is_written_in_and_a_start_refuses_it(tmp_path, outside, folder, kind):
    link = make_run(tmp_path / "run") / folder
    put_link(kind, link, outside)
    with pytest.raises(RunError) as caught:
        WritableRun.open_or_make(link.parent)
    assert_four_parts(caught.value, where=str(link), expected="a folder", found="a symbolic link", todo="remove")
    there = [written for written in PYTHON if written.path.startswith(f"{folder}/")]
    assert [error.where for error in refusals(link.parent, *there)] == [str(link)] * len(there)
    assert outside.now() == outside.before and link.is_symlink()
