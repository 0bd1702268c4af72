"""Which tier a training's slots are on, and who says that there is none."""

from types import SimpleNamespace

from deepfreeze.freeze import saver
from deepfreeze.freeze.settings import Engine
from deepfreeze.ranks.nodes import Node, Nodes
from deepfreeze.store.target import Target
from tests.support import threads


def test_one_rank_of_each_node_says_that_no_tier_has_room(monkeypatch):
    asked, said = [], []
    monkeypatch.setattr(saver.tiers, "choose", lambda local, nbytes: asked.append((local, nbytes)))

    def rank(world, local="auto"):
        nodes = Nodes.gather(world, Node(f"node{world.rank // 2}", ""))
        settings = SimpleNamespace(local=local, engine=Engine(slots=2))
        own = SimpleNamespace(
            nbytes=10, _settings=settings, _notify=lambda level, text: said.append((world.rank, level, text))
        )
        return saver.Saver._local_tier(own, Target("/run", "1" * 32, "2" * 32), world, nodes)

    assert threads.run(4, rank) == [None] * 4 and asked == [("auto", 40)] * 4
    text = "no room for 40 bytes on a local tier of {}: writing to /run directly"
    assert said == [(0, "warning", text.format("node0")), (2, "warning", text.format("node1"))]
    assert threads.run(2, lambda world: rank(world, None)) == [None] * 2 and len(said) == 2, "the user wants none"
