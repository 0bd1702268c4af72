"""Starts a job in the directories that a dead job left, and lets it write checkpoints; without TensorFlow. THERE is a folder with the
run (THERE/run) and a local tier for each rank (THERE/local-R)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import veloc_bindings as vb
from deepfreeze.format.run_file import Parent
from deepfreeze.notices import unheard
from deepfreeze.ranks.nodes import Node
from deepfreeze.ranks.world import OneRank, World
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.tiers import rescue
from deepfreeze.training.start import Start, Values
from tests.support import content, threads


def make_run(run: Path) -> None:
    """Makes a run directory with the run id that the rank processes use (tests/support/ranks.py)."""
    run.mkdir()
    value = {"format": 1, "run_id": content.RUN_ID.hex(), "created": "2026-11-21T03:35:58Z"}
    (run / "run.json").write_text(json.dumps(value))


def local_tiers(there: Path, world: int) -> list[Path]:
    """By rank: the directory of the run's slots in the local tier THERE/local-R."""
    run_id = WritableRun.open(there / "run").run_id
    return [there / f"local-{rank}" / f"deepfreeze-{os.geteuid()}" / run_id for rank in range(world)]


class Newest:
    """``deepfreeze.training.start.Values`` that read nothing: a start with them takes the newest checkpoint with a valid manifest."""

    def table(self, step: int) -> None:
        """The ranks need nothing."""

    def read(self, step: int, table: None) -> None:
        """Reads nothing."""

    def assign(self, step: int) -> None:
        """Changes nothing."""

    def require_going_on(self, run_id: str) -> None:
        """No training of this process was in the run before."""

    def now(self) -> int:
        """Training begins at step 0."""
        return 0

    def parent(self) -> Parent | None:
        """There is none."""
        return None


def begin(there: Path, world: int, values: Callable[[int], Values] = lambda rank: Newest(), **options) -> list[Start]:
    """Starts a job of ``world`` ranks in THERE/run; each rank is on a node of its own with the local tier THERE/local-R. Returns the
    ranks' starts, which the caller closes."""

    def rank(here: World) -> Start:
        local = there / f"local-{here.rank}"
        if "local" not in options and not local.is_dir():
            local.mkdir()
        own = {"local": local, "node": Node(f"node-{here.rank}", ""), **options}
        return Start.begin(str(there / "run"), values(here.rank), here, unheard, **own)

    found = [rank(OneRank())] if world == 1 else threads.run(world, rank)
    for result in found:
        if isinstance(result, Exception):
            raise result
    return found


def reopen(there: Path, world: int, **options) -> rescue.Finished:
    """Starts a job and ends it at once; returns what the start did with a dead attempt's checkpoints."""
    starts = begin(there, world, **options)
    for start in starts:
        start.close()
    return starts[0].finished


def claim(there: Path, attempt: int) -> None:
    """Writes RUN/owner as a start does, so that engines of attempt number ``attempt`` may commit."""
    WritableRun.open(there / "run").claim(content.attempt_id(attempt).hex())


def phase(run: Path) -> str:
    """Which phase of a checkpoint the kill hit, by what is in the run directory."""
    if any(name.startswith(".trash") for name in os.listdir(run)):
        return "retention"
    partials = list(run.glob("*.partial-*"))
    if any((partial / "manifest.json").exists() for partial in partials):
        return "commit"
    if any(list(partial.glob("*.record")) for partial in partials):
        return "transfer, some ranks done"
    return "transfer" if partials else "training, capture or local write"


def leftovers(run: Path) -> list[str]:
    """The names in the run directory that a start must not leave there: partial directories, word of failed steps, and trash."""
    return [name for name in os.listdir(run) if ".partial-" in name or ".failed-" in name or name.startswith(".trash")]


def go_on(there: Path, steps: tuple[int, ...], file_size: int, keep: int, world: int = 1, attempt: int = 9) -> None:
    """Runs a new job of ``world`` ranks in THERE/run, all in this process, which saves these steps and has all but the newest ``keep``
    removed."""
    run = WritableRun.open(there / "run")
    claim(there, attempt)
    fixed = {"run_id": bytes.fromhex(run.run_id), "attempt": content.attempt_id(attempt)}
    fixed |= {"structure": content.STRUCTURE, "run_dir": str(run.path), "file_size": file_size, "world": world}
    engines: list[vb.EmbeddedEngine] = []
    try:
        for rank in range(world):
            (there / f"local-{rank}").mkdir(exist_ok=True)
            engines.append(vb.EmbeddedEngine.open(rank=rank, local_dir=str(there / f"local-{rank}"), **fixed))
        for step in steps:
            data = memoryview(content.model_bytes(attempt, step, file_size))
            for rank, engine in enumerate(engines):
                regions = [(data[a:b], b - a, a) for a, b in content.pieces(rank, world, file_size)]
                engine.submit(step, regions, content.private_bytes(attempt, step, rank), 60)
            for engine in engines:
                engine.wait(step, vb.EXTERNAL, 60)
            engines[0].remove(steps_in(run.path)[:-keep])
    finally:
        for engine in engines:
            engine.close()


def steps_in(run: Path) -> list[int]:
    """The steps that have a directory with a final name; does not look into the directories."""
    return sorted(int(match[1]) for name in os.listdir(run) if (match := re.fullmatch(r"step-(\d{10,})", name)))
