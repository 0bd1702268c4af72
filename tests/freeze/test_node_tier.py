"""Which tier a training's slots are on, and who says that there is none."""

import tempfile
from pathlib import Path

from deepfreeze.freeze import node_tier
from deepfreeze.ranks.nodes import Node, Nodes
from tests.support import threads


def test_one_rank_of_each_node_says_that_no_tier_has_room(monkeypatch):
    asked, said = [], []
    monkeypatch.setattr(node_tier.tiers, "choose", lambda *given: asked.append(given))

    def rank(world, local="auto", in_memory=30):
        nodes = Nodes.gather(world, Node(f"node{world.rank // 2}", ""))
        return node_tier.choose(
            local, 20, in_memory, "/run", world, nodes, lambda *heard: said.append((world.rank, *heard))
        )

    assert threads.run(4, rank) == [None] * 4 and asked == [("auto", 40, 60)] * 4
    text = "no room for 40 bytes on a local tier of {}: writing to /run directly"
    assert said == [(0, "warning", text.format("node0")), (2, "warning", text.format("node1"))]
    assert threads.run(2, lambda world: rank(world, None)) == [None] * 2 and len(said) == 2, "the user wants none"
    assert threads.run(1, lambda world: rank(world, in_memory=0)) == [None]
    assert said[2:] == [
        (0, "warning", "memory= holds one capture, so no checkpoint waits in memory of node0: writing to /run directly")
    ]


def test_what_is_mounted_and_not_the_path_says_what_the_tier_is(tmp_path, monkeypatch):
    """A directory elsewhere that is memory, as another tmpfs is; and a name below /dev/shm of a directory on a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        (tmp_path / "job").symlink_to(memory)
        assert node_tier.kind(tmp_path / "job") == node_tier.kind(Path(memory)) == "memory"
    monkeypatch.setattr(node_tier.node_memory, "is_memory", lambda base: base == tmp_path)
    assert (node_tier.kind(tmp_path), node_tier.kind(Path("/dev/shm")), node_tier.kind(None)) == (
        "memory",
        "disk",
        "none",
    )
