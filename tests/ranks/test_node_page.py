"""Ranks of one node that look at the store for each other, by a page of memory that they share."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from deepfreeze.store.run import Run
from deepfreeze.tiers import leftovers
from tests.support import processes, ranks, restart
from veloc_bindings import EngineFault


@pytest.fixture
def memory():
    """A directory in the node's memory, empty at the end."""
    folder = Path(f"/dev/shm/deepfreeze-test-{os.getpid()}")
    folder.mkdir()
    yield folder
    left = list(folder.iterdir())
    for path in left:
        path.unlink()
    folder.rmdir()
    assert not left


def test_nothing_depends_on_the_page_of_a_node(testing_library):
    """Dead ranks, no memory, no room, wrong bytes, other jobs: each rank learns what rank 0 has decided (node_meeting_test.cc)."""
    processes.run([Path(testing_library).with_name("node_meeting_test")], check=True, timeout=300)


@pytest.mark.slow
def test_calls_of_a_rank_do_not_grow_with_the_ranks(testing_library):
    """Those of a rank do not grow; names read in all grow as the ranks; looks of a node do not grow with its ranks (counts_test.cc)."""
    done = processes.run(
        [Path(testing_library).with_name("counts_test")], check=True, timeout=300, stdout=-1, text=True
    )
    print(done.stdout)
    assert '"ranks": 1024' in done.stdout


def opened(tmp_path, processes_of, memory, world):
    for rank, process in enumerate(processes_of):
        node = {"node": list(range(world)), "node_dir": str(memory), "commit_timeout": 2.0}
        process.send("open", **ranks.options(tmp_path, rank, world, local=False, **node))
    for process in processes_of:
        process.answer()


@pytest.mark.slow
def test_the_page_has_no_name_left_when_a_rank_is_killed(testing_library, tmp_path, memory):
    """Two ranks of a node commit, rank 1 is killed, and rank 0 is told so. The killed job leaves nothing in memory."""
    with ranks.ranks(testing_library, "", "") as both:
        opened(tmp_path, both, memory, 2)
        assert [path.name.endswith("-00000.looks") for path in memory.iterdir()] == [True]
        for process in both:
            process.send("submit", step=10)
        for process in both:
            process.answer()
            process.ask("wait", step=10, level=3)
        assert list(memory.iterdir()) == []
        both[1].kill()
        both[0].ask("submit", step=20)
        with pytest.raises(EngineFault, match="rank 1's record is missing"):
            both[0].ask("wait", step=20, level=3)
    assert ranks.committed(tmp_path / "run").keys() == {10}


@pytest.mark.slow
def test_one_file_has_the_records_of_a_node(testing_library):
    """The last rank writes it. A late or dead rank, an error of the store or a damaged file commits nothing wrong (node_records_test)."""
    processes.run([Path(testing_library).with_name("node_records_test")], check=True, timeout=300)


def records_of(tmp_path):
    (partial,) = (tmp_path / "run").glob("step-*.partial-*")
    return sorted(path.name for path in partial.glob("*.record"))


def test_a_start_finishes_what_a_killed_node_left(testing_library, tmp_path, memory):
    """Three ranks on two nodes have written all, two of them into one file, and die before the commit."""
    restart.make_run(tmp_path / "run")
    nodes = [[0, 2], [1], [0, 2]]
    with ranks.ranks(testing_library, "kill-before:open:records.tmp:1", "", "") as all_ranks:
        for rank, process in enumerate(all_ranks):
            node = {"node": nodes[rank], "node_dir": str(memory)}
            process.send("open", **ranks.options(tmp_path, rank, 3, local=False, **node))
        for process in all_ranks:
            process.answer()
        for process in all_ranks:
            process.send("submit", step=10)
        with suppress(EOFError):
            all_ranks[0].answer()
        all_ranks[0].process.wait(ranks.LIMIT)
    assert records_of(tmp_path) == ["rank-00001.record", "ranks-00000-00002-2.record"]
    (state,) = leftovers.partial_states(Run.open(tmp_path / "run"))
    assert state.ranks == {0, 1, 2}
    assert [step for step, _ in restart.reopen(tmp_path, 1, local=None).committed] == [10]
    assert ranks.committed(tmp_path / "run").keys() == {10}
    (step,) = (tmp_path / "run").glob("step-*")
    assert sorted(path.name for path in step.iterdir()) == ["manifest.json", "model.weights.h5", "records"]


@pytest.mark.parametrize("damage", ["cut", "more"])
def test_a_damaged_file_of_a_node_s_records_counts_as_none(testing_library, tmp_path, memory, damage):
    restart.make_run(tmp_path / "run")
    with ranks.ranks(testing_library, "kill-before:open:records.tmp:1", "") as both:
        opened(tmp_path, both, memory, 2)
        for process in both:
            process.send("submit", step=10)
        with suppress(EOFError):
            both[0].answer()
        both[0].process.wait(ranks.LIMIT)
    (partial,) = (tmp_path / "run").glob("step-*.partial-*")
    (path,) = partial.glob("ranks-*")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] if damage == "cut" else whole + whole)
    (state,) = leftovers.partial_states(Run.open(tmp_path / "run"))
    assert state.ranks == ({0} if damage == "cut" else frozenset())
    assert restart.reopen(tmp_path, 1, local=None).committed == []


def test_ranks_without_shared_memory_commit_as_well(testing_library, tmp_path):
    with ranks.ranks(testing_library, "", "") as both:
        opened(tmp_path, both, tmp_path / "nowhere", 2)
        for process in both:
            process.send("submit", step=10)
        for process in both:
            process.answer()
            process.ask("wait", step=10, level=3)
    assert ranks.committed(tmp_path / "run").keys() == {10}
