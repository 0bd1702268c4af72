"""All ranks of one attempt in one process: recorded.py FOLDER WORLD ATTEMPT RUN_ID PLAN TRANSFERS CACHED. Their file operations are
recorded, in the order in which they really happened, and with them the moments at which the engine promised something.

FOLDER/run is the run, FOLDER/local-R rank R's local tier. PLAN is a JSON list of steps, or of lists of steps that are submitted
together. TRANSFERS of them are written to the store at once, through the page cache if CACHED is 1. The last one of a list is waited for.
Steps may fail only if DEEPFREEZE_FAULT says that calls do.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import veloc_bindings as vb
from tests.support import content
from tests.support.page_cache import append_mark

FILE_SIZE = 12 * 4096 + 17
KEEP = 2


def main(folder: Path, world: int, attempt: int, run_id: str, plan: list, transfers: int, cached: bool) -> None:
    log = os.open(os.environ["DEEPFREEZE_RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    engines = [
        vb.EmbeddedEngine.open(
            run_id=bytes.fromhex(run_id),
            attempt=content.attempt_id(attempt),
            structure=content.STRUCTURE,
            run_dir=str(folder / "run"),
            local_dir=str(folder / f"local-{rank}"),
            rank=rank,
            world=world,
            file_size=FILE_SIZE,
            chunk_bytes=16384,
            in_flight=3,
            slots=3,
            uncommitted=3,
            transfers=transfers,
            cached=cached,
            commit_timeout=60.0,
        )
        for rank in range(world)
    ]
    held = []
    for steps in plan:
        for step in (together := steps if isinstance(steps, list) else [steps]):
            for rank, engine in enumerate(engines):
                data = memoryview(content.model_bytes(attempt, step, FILE_SIZE))
                held.append(data)
                regions = [(data[a:b], b - a, a) for a, b in content.pieces(rank, world, FILE_SIZE)]
                engine.submit(step, regions, content.private_bytes(attempt, step, rank), 60)
        for level, name in ((vb.LOCAL, "local"), (vb.EXTERNAL, "external")):
            if all(reached(engine, together[-1], level) for engine in engines):
                append_mark(log, f"{name} {together[-1]}")
        there = sorted(
            int(name[5:]) for name in os.listdir(folder / "run") if name.startswith("step-") and name[5:].isdigit()
        )
        engines[0].remove(there[:-KEEP])
    for engine in engines:
        engine.drain(60)
    for engine in engines:
        engine.close()


def reached(engine: vb.EmbeddedEngine, step: int, level: int) -> bool:
    """Whether the engine promises that level; not where it says that a committed step's name may go with the power."""
    try:
        engine.wait(step, level, 60)
    except vb.EngineFault:
        if "fail=" not in os.environ.get("DEEPFREEZE_FAULT", ""):
            raise
        return False
    if level != vb.EXTERNAL:
        return True
    return not any("not known to be durable" in report.message for report in engine.poll())


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        sys.argv[4],
        json.loads(sys.argv[5]),
        int(sys.argv[6]),
        sys.argv[7] == "1",
    )
