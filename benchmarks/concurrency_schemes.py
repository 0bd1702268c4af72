"""The part of ``benchmarks.concurrency`` that tells what memory and storage N checkpoints take, as in Table 1 of PCcheck (ASPLOS 2025).

By formula, and as sampled in a training of `light` that saves every 2nd step to the disk, without a local tier, and keeps one checkpoint:
the most bytes of captures, and the most bytes of files in the run's checkpoints, of all samples.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.concurrency_trainings import checkpoints, trained
from benchmarks.report import Row, table

EVERY, KEPT = 2, 1
MANY, QUICK = (1, 2, 3), (1,)
SHARDS = 1.25  # of memory, in the training that bounds it
PERIODS, FILLING = 8, 2
# As the paper's Table 1 has them, m being the bytes of a checkpoint: scheme, memory, storage.
PUBLISHED = (
    ("CheckFreq", "GPU: m, CPU: m", "2 m"),
    ("GPM", "-", "2 m"),
    ("Gemini", "CPU: m", "-"),
    ("PCcheck", "CPU: m to 2 m", "(N + 1) m"),
)

TEXT = f"""**What it takes** (Table 1), m being the bytes of a rank's checkpoint. Measured are the greatest samples of what captures held,
with the writers' blocks, and of the files of all checkpoints in the run, while `light` saves every {EVERY}nd step and keeps one
checkpoint (`keep={KEPT}`). A checkpoint that is being removed lies beside these, because nothing bounds the storage here (`storage=`
does). Without `memory=` the first capture may lie beside the engine's own memory for a moment. The last lines are the formulas of the
paper's Table 1."""


def measure(quick: bool, disk: Path) -> list[Row]:
    """A row for each N, and one for a training whose memory is bounded."""
    kinds = [(many, None) for many in (QUICK if quick else MANY)] + [(2, SHARDS)]
    settings = []
    for many, shards in kinds:
        engine = checkpoints(many) if shards is None else {"uncommitted": many, "io": "direct"}
        steps = EVERY * (2 if quick else PERIODS)
        settings.append(
            {
                "every": EVERY,
                "skip": EVERY * FILLING,
                "steps": steps,
                "sampled": steps,
                "engine": engine,
                "shards": shards,
            }
        )
    found = trained("schemes", "light", settings, 0, disk)
    rows = []
    for (many, shards), one in zip(kinds, found, strict=True):
        row = Row({"checkpoints": many, "memory": shards, "nbytes": one["shard"], "kept": KEPT})
        row.labels |= {"samples": one["samples"], "looks": one["looks"]}
        rows.append(row.add("peak", "B", [one["peak"]]).add("stored", "B", [one["stored"]]))
    return rows


def tables(rows: list[Row]) -> str:
    """A line for each training, and for each of the paper's schemes."""
    lines: list[list[Any]] = []
    for row in rows:
        many, shards, nbytes = (row.labels[name] for name in ("checkpoints", "memory", "nbytes"))
        what = f"DeepFreeze, N = {many}" + (f", `memory=` of {shards:g} m" if shards else "")
        holds, stores = 1 if shards else many, row.labels["kept"] + many
        measured = [f"{row.median(name) / nbytes:.2f} m" for name in ("peak", "stored")]
        lines.append([what, f"{holds} m", measured[0], f"({row.labels['kept']} + {many}) m = {stores} m", measured[1]])
    lines += [[scheme, memory, "-", storage, "-"] for scheme, memory, storage in PUBLISHED]
    return f"{TEXT}\n\n" + table(["scheme", "memory", "measured", "storage", "measured"], lines)
