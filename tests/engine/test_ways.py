"""Which way to the external store a training chooses: past the page cache or through it."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

import veloc_bindings as vb
from deepfreeze.engine import ways
from deepfreeze.engine.backends import table
from deepfreeze.engine.options import Engine
from deepfreeze.errors import OptionError
from deepfreeze.process_state import PROCESS
from deepfreeze.tiers.node_memory import is_memory

LARGE = 64 << 20


class Probes:
    """Answers probes, and counts them."""

    def __init__(self, monkeypatch, direct, cached):
        self.asked = 0
        self._answer = direct, cached
        can = replace(table.chosen().can, probe=self)
        monkeypatch.setitem(table.TABLE, table.DEFAULT, replace(table.chosen(), can=can))
        monkeypatch.setattr(PROCESS, "ways", {})

    def __call__(self, run, writers, nbytes, chunk_bytes, seconds):
        self.asked += 1
        assert nbytes <= 64 << 20 and seconds <= 1
        if self._answer[0] is None:
            raise vb.EngineFault(vb.NO_SPACE, "no space")
        return self._answer


@pytest.mark.parametrize(
    ("direct", "cached", "chosen"),
    [(2e9, 2.1e9, "direct"), (2e9, 2.3e9, "buffered"), (0.0, 1e9, "direct"), (None, None, "direct")],
)
def test_the_page_cache_is_chosen_if_it_is_clearly_faster(monkeypatch, direct, cached, chosen):
    """Where the store takes no direct writes, the engine goes through the page cache anyhow, and says why."""
    probes, said = Probes(monkeypatch, direct, cached), []
    for _ in range(3):
        assert ways.choose(Engine(), "run", LARGE, lambda *told: said.append(told)) == chosen
    assert probes.asked == 1, "once for each run"
    assert [level for level, _ in said] == (["info"] if chosen == "buffered" else [])
    assert all("2300 MB/s, and past it 2000 MB/s" in message for _, message in said)


@pytest.mark.parametrize("io", ["direct", "buffered"])
def test_a_path_that_is_named_is_taken(monkeypatch, io):
    probes = Probes(monkeypatch, 1e9, 5e9)
    assert ways.choose(Engine(io=io), "run", LARGE, print) == io and probes.asked == 0


def test_small_checkpoints_are_worth_no_probe(monkeypatch):
    probes = Probes(monkeypatch, 1e9, 5e9)
    assert ways.choose(Engine(), "run", LARGE - 1, print) == "direct"
    assert ways.choose(Engine(chunk_bytes=32 << 20), "run", LARGE, print) == "direct" and probes.asked == 0


def test_a_probe_leaves_nothing_and_keeps_to_its_time(tmp_path):
    if is_memory(tmp_path):
        pytest.skip("the folder for tests is memory")
    for seconds in (1.0, 0.0):
        direct, cached = vb.probe(tmp_path, 4, 1 << 20, 4096, seconds)
        assert (direct >= 0 < cached) or seconds == 0
        assert os.listdir(tmp_path) == []
    assert (direct, cached) == (0.0, 0.0), "there was no time for any chunk"
    with pytest.raises(vb.EngineFault, match="No such file"):
        vb.probe(tmp_path / "none", 1, 1 << 20, 4096, 1)
    with pytest.raises(vb.EngineFault, match="six times"):
        vb.probe(tmp_path, 1, 4096, 4096, 1)


def test_a_training_with_a_rate_is_not_probed(monkeypatch):
    """The probe would take more of the store than the training may."""
    probes = Probes(monkeypatch, 1e9, 5e9)
    assert ways.choose(Engine(rate=10**7), "run", LARGE, print) == "direct" and probes.asked == 0


def test_memory_is_not_probed():
    assert vb.probe("/dev/shm", 1, 1 << 20, 4096, 1) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"transfers": 3, "uncommitted": 2}, "transfers="),
        ({"when_full": "replace", "uncommitted": 1}, "when_full="),
        ({"when_full": "replace", "uncommitted": 2, "transfers": 2}, "when_full="),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(options, where):
    with pytest.raises(OptionError, match=where) as caught:
        Engine(**options)
    assert f"uncommitted={options['uncommitted']}" in str(caught.value)
