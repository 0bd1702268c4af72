"""A start that is itself killed, at every change that it makes: the next one finds all that the first one would have found."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import veloc_bindings as vb
from deepfreeze.core.lineage import Parent
from deepfreeze.core.run import Run
from tests.crash.test_every_operation import SCENARIOS, counted, folder, record, roots
from tests.support import files, killed, page_cache, restart

pytestmark = pytest.mark.crash
__all__ = ["folder"]
CHANGES = [(os, name) for name in ("rename", "replace", "unlink", "rmdir", "mkdir", "link")]
CHANGES += [(vb, "slot_transfer"), (vb, "commit")]
STATES = 30  # of the dead job, evenly over its operations


class Killed(BaseException):
    """In place of SIGKILL."""


def killed_at(monkeypatch, number: int, action: Callable[[], None]) -> bool:
    """Runs ``action`` up to its change of that number, and not further; whether it came that far."""
    done = 0

    def counting(change: Callable) -> Callable:
        def call(*args, **kwargs):
            nonlocal done
            if done == number:
                raise Killed
            result = change(*args, **kwargs)
            done += 1
            return result

        return call

    with monkeypatch.context() as patch:
        for owner, name in CHANGES:
            patch.setattr(owner, name, counting(getattr(owner, name)))
        try:
            action()
        except Killed:
            return True
    return False


@pytest.mark.parametrize("name", ["three ranks", "a second attempt at the same steps"])
def test_a_start_that_is_killed_at_any_change_loses_nothing(
    folder, testing_library, monkeypatch, record_property, name
):
    world, attempts = SCENARIOS[name]
    disk, ops = record(folder, testing_library, world, attempts)
    points = 0
    for at, op in enumerate(ops):
        disk.apply(op)
        if at % max(1, len(ops) // STATES):
            continue
        state, number, wanted = disk.killed(), 0, None
        reached = True
        while reached:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                there = Path(place)
                moves = {str(a): str(b) for a, b in zip(roots(folder, world), roots(there, world), strict=True)}
                page_cache.write_out(state, moves)
                if wanted is None:  # what a start finds that nobody kills
                    restart.reopen(there, world)
                    wanted = counted(there / "run")
                    continue
                reached = killed_at(monkeypatch, number, lambda there=there: restart.reopen(there, world))
                restart.reopen(there, world)
                where = f"{name}, after operation {at}: {op}; the start killed at its change {number}"
                assert counted(there / "run") == wanted, where
                left = restart.leftovers(there / "run")
                assert not left, f"{where}: left behind {left}"
                number += 1
                points += reached
    record_property("points", f"crash sweep of a start, {name}: {points} of {points} kills")
    assert points > STATES


def test_a_start_that_is_killed_while_it_writes_the_runs_parent_leaves_the_old_one_or_the_new_one(tmp_path):
    run = Run.open_for_writing(tmp_path / "run")
    files.write_checkpoint(run.path, 40)
    old, new = (Parent(f"/runs/{name}", "a" * 32, 40, "b" * 32) for name in ("old", "new"))
    seeded, met = dataclasses.replace(run, parent=old), []

    def anew():
        Run.open(run.path).set_parent(old)

    def change():
        Run.open(run.path).set_parent(new)

    for call in killed.before_each_call(change, anew):
        found = Run.open_for_writing(run.path)
        assert found in (seeded, dataclasses.replace(run, parent=new)), call
        met.append((found.parent == new, (run.path / "run.json.tmp").exists()))
        # What is left beside it is in nobody's way.
        assert found.set_parent(None) == Run.open(run.path) == run and not (run.path / "run.json.tmp").exists(), call
    assert met[0] == (False, False) and met[-1] == (True, False)
    assert (False, True) in met and met.count((True, False)) >= 2, "killed before, and after, the new one has the name"
