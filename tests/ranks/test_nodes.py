"""Which ranks share a node."""

import socket

from deepfreeze.ranks.nodes import Node, Nodes
from deepfreeze.ranks.world import OneRank
from tests.support import threads


def gathered(*nodes):
    """By rank: what each rank has gathered, of which every rank is on the node at its place."""
    return threads.run(len(nodes), lambda world: Nodes.gather(world, nodes[world.rank]))


def test_a_node_is_a_host_name_and_a_boot_id(tmp_path):
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("a1b2-c3\n")
    assert Node.here(boot_id) == Node(socket.gethostname(), "a1b2-c3")
    assert Node.here(tmp_path / "none") == Node(socket.gethostname(), "")
    assert Node.here() == Node.here()
    assert Nodes.gather(OneRank()) == Nodes(0, (Node.here(),)) and Nodes.gather(OneRank()).leads


def test_every_rank_knows_the_ranks_of_its_node_and_the_lowest():
    a, b = Node("a", "1"), Node("b", "1")
    found = gathered(a, b, a, b, b)
    assert [nodes.here for nodes in found] == [a, b, a, b, b]
    assert [nodes.ranks for nodes in found] == [(0, 2), (1, 3, 4), (0, 2), (1, 3, 4), (1, 3, 4)]
    assert [nodes.lowest for nodes in found] == [0, 1, 0, 1, 1]
    assert [nodes.leads for nodes in found] == [True, True, False, False, False]


def test_machines_of_one_name_and_containers_on_one_machine_are_nodes():
    """Cloned machines are booted apart; containers on a machine share its kernel, and no files."""
    cloned = gathered(Node("worker", "1"), Node("worker", "2"))
    contained = gathered(Node("job-0", "1"), Node("job-1", "1"))
    assert [nodes.ranks for nodes in (*cloned, *contained)] == [(0,), (1,)] * 2
    assert cloned[0].here.name != cloned[1].here.name
