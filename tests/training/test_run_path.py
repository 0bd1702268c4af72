"""Where a training's run is: a path, or a function that rank 0 asks when training begins. And how other ranks find a run that was made."""

import os
from pathlib import Path

import pytest

from deepfreeze.errors import NotFoundError, OptionError, RunError, WorldError
from deepfreeze.store.run import Run
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.training.run_path import RunPath
from deepfreeze.training.start import _require_same_run
from tests.support import files, memory_store, threads


def test_rank_0_alone_is_asked_once_and_all_ranks_know(tmp_path):
    asked = []

    def rank(world):
        path = RunPath(lambda: (asked.append(world.rank), tmp_path / f"run-{world.rank}")[1], lambda own: f"{own}.tune")
        assert path.text == "a function"
        found = [path.agree(world) for _ in range(2)]  # two fits
        return found, path.own()

    assert threads.run(3, rank) == [([f"{tmp_path}/run-0.tune"] * 2, f"{tmp_path}/run-0")] * 3 and asked == [0]


def test_an_error_of_the_function_reaches_every_rank(tmp_path):
    def rank(world):
        with pytest.raises(OptionError if world.rank == 0 else WorldError) as caught:
            RunPath(lambda: 5).agree(world)
        return str(caught.value)

    first, second = threads.run(2, rank)
    assert first.startswith("run=: expected a directory; found 5") and "rank 0 failed" in second


def test_a_path_is_absolute_at_once_and_a_functions_when_it_is_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, function = RunPath("runs/nt3"), RunPath(lambda: "runs/nt3")
    assert path.text == path.own() == f"{tmp_path}/runs/nt3"
    (tmp_path / "later").mkdir()
    os.chdir(tmp_path / "later")
    assert (path.own(), function.own()) == (f"{tmp_path}/runs/nt3", f"{tmp_path}/later/runs/nt3")


def test_a_store_is_no_function_also_if_it_can_be_called():
    class Callable(memory_store.MemoryStore):
        def __call__(self):
            raise AssertionError("it was called")

    with pytest.raises(OptionError, match="can be read, and not written by the engine"):
        RunPath(Callable(Path("memory:/x")))


def test_a_rank_looks_anew_for_a_run_that_was_made_in_this_moment(tmp_path, monkeypatch):
    """As an NFS client: it has looked for ``a`` before, and says that there is none until the directory above is opened."""
    run = WritableRun.open_or_make(tmp_path / "a" / "run")
    opened, open_run, real = set(), Run.open, os.open
    monkeypatch.setattr(os, "open", lambda path, *more, **named: (opened.add(str(path)), real(path, *more, **named))[1])

    def cached(path):
        if str(tmp_path) not in opened:
            raise NotFoundError(where=path, expected="a run", found="none", todo="look anew")
        return open_run(path)

    monkeypatch.setattr(Run, "open", cached)
    _require_same_run(str(run.path), run.run_id)
    with pytest.raises(RunError, match="which rank 0 has there"):
        _require_same_run(str(run.path), files.RUN_ID)
    monkeypatch.setattr(Run, "open", open_run)
    with pytest.raises(NotFoundError):
        _require_same_run(str(tmp_path / "gone"), run.run_id)
