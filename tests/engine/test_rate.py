"""``Engine(rate=)``: how many bytes per second a rank's engine may write to the external store."""

import pytest

from deepfreeze.engine.backend import Opening
from deepfreeze.engine.backends.embedded.backend import EmbeddedBackend
from deepfreeze.engine.options import Engine
from deepfreeze.engine.target import Target


@pytest.mark.parametrize(
    ("rate", "node", "of_rank"),
    [(100 << 20, (4, 5, 6, 7), 25 << 20), (100 << 20, (), 100 << 20), (1 << 20, (0, 1, 2), 349525), (None, (0, 1), 0)],
)
def test_the_ranks_of_a_node_share_its_rate(monkeypatch, rate, node, of_rank):
    given = {}
    monkeypatch.setattr(EmbeddedBackend, "__init__", lambda self, in_memory, **options: given.update(options))
    target = Target("/run", "1" * 32, "2" * 32)
    EmbeddedBackend.of(
        Opening(target=target, structure=b"3" * 32, file_size=1, rank=4, world=8, node=node, engine=Engine(rate=rate))
    )
    assert given["rate"] == of_rank
