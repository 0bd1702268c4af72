"""What the ranks of tests/jobs/resumable.py have trained, and whether each sample was trained once in each epoch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path


def lines(folder: Path) -> list[tuple[int, int, int, list[int]]]:
    """(epoch, batch, step, samples) of every rank's steps that count: those before the kill that no later job has trained again."""
    found = []
    for file in sorted(folder.glob("rank-*")):
        kept: list[tuple[int, int, int, list[int]]] = []
        for line in file.read_text().splitlines():
            epoch, batch, step, samples = json.loads(line)
            kept = [one for one in kept if one[2] < step]
            kept.append((epoch, batch, step, samples))
        found += kept
    return found


def assert_each_once(folder: Path, items: int, epochs: int) -> None:
    """Each of the samples 0 to ``items - 1`` was trained exactly once in each epoch, by all ranks together."""
    found = [Counter() for _ in range(epochs)]
    for epoch, _, _, samples in lines(folder):
        found[epoch].update(samples)
    for epoch, counted in enumerate(found):
        twice = {sample: times for sample, times in counted.items() if times != 1}
        assert not twice and len(counted) == items, f"epoch {epoch}: {len(counted)} of {items}, more than once: {twice}"
