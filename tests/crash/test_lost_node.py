"""What a lost node, and a clock that jumps, do to the checkpoints of a run."""

from __future__ import annotations

import shutil
from datetime import datetime

import pytest

import deepfreeze
import veloc_bindings as vb
from deepfreeze.notices import unheard
from deepfreeze.store.run import Run
from deepfreeze.tiers import leftovers
from tests.support import restart
from tests.support.ranks import check_checkpoint, options, ranks

pytestmark = pytest.mark.crash
DAY = 86400


def test_a_node_that_is_lost_takes_what_was_not_committed_and_nothing_else(tmp_path, library):
    """Step 10 is committed; of step 20 every rank has a whole slot, when both die and one of the two nodes is gone."""
    restart.make_run(tmp_path / "run")
    fault = "kill-before:rename:step-0000000020.partial:1"
    with ranks(library, fault, fault) as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(tmp_path, number, 2))
            rank.ask("submit", step=10)
        for rank in group:
            rank.ask("drain")
        for rank in group:
            rank.send("submit", step=20).send("wait", step=20, level=vb.LOCAL)
        for rank in group:
            rank.process.wait(120)  # each dies when its slot is whole and its record about to get its name
    shutil.rmtree(tmp_path / "local-1")
    (place, gone) = restart.local_tiers(tmp_path, 2)
    assert [slot.step for slot in leftovers.leftover_slots(place, unheard)] == [20], (
        "the node that is left still has its part"
    )
    assert leftovers.leftover_slots(gone, unheard) == []
    restart.reopen(tmp_path, 2)
    run = Run.open(tmp_path / "run")
    assert run.committed() == [10] and not run.partials()
    assert check_checkpoint(run.step_path(10)) == (10, 1)


@pytest.mark.parametrize("jump", [-DAY, DAY, -1000 * DAY, 1000 * DAY])
def test_a_clock_that_jumps_changes_neither_newest_nor_kept(tmp_path, library, jump):
    """A clock that jumps changes neither which checkpoint is the newest nor which ones are kept."""
    restart.make_run(tmp_path / "run")
    with ranks(library, f"jump={jump}:clock::2+") as (rank,):
        rank.ask("open", **options(tmp_path, keep=2))
        for step in (10, 20, 30):
            rank.ask("submit", step=step)
            rank.ask("drain")
        rank.ask("close")
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [20, 30]
    newest = deepfreeze.latest(tmp_path / "run")
    assert newest.step == 30
    ahead = datetime.fromisoformat(newest.created.replace("Z", "+00:00")) - datetime.now().astimezone()
    assert abs(ahead.total_seconds() - jump) < DAY / 2, "the clock has jumped"
