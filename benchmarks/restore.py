"""How long until a model has its values back? python -m benchmarks.restore --help

A built and compiled model, and ``deepfreeze.restore`` (or ``Checkpoint.open``, where a checkpoint must be finished first). The
checkpoint is on the external store and in the page cache; there and not in it; written by two ranks; or on the local tier
alone, as a job leaves it that dies before its transfer. Everything is checked against its checksums before the first variable
changes. In turns with it: the file read into touched memory (from the page cache, by one thread) and from the disk
(O_DIRECT), a plain loop that reads, checks and assigns every tensor, ``tf.train.Checkpoint`` of the same variables, Keras's
``load_weights`` of the same file, and ``numpy.fromfile``, which knows nothing of models and checks nothing.
Then one layer out of the whole: seconds, and bytes that were asked for. NT3's tensors under next to no computation ("light": 620 MB
in 10 tensors), and ResNet-50 with momentum (205 MB in 536 tensors). Nothing is written to a new place while it is measured, except by
the commit of the local tier's.
"""

from __future__ import annotations

import argparse
import mmap
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import jobs, report, workloads
from benchmarks.report import Report, say, span, table
from benchmarks.restore_job import STEP, link
from deepfreeze.format import crc32c
from deepfreeze.format.structure import Placed

PIECE = 4 << 20
WORKLOADS = {"nt3": "light", "resnet50": "resnet50"}
CACHED, DISK = "page cache, pread onto touched memory", "disk, O_DIRECT"
WARM, COLD, OTHER, LOCAL = (
    "external, cached",
    "external, not cached",
    "of 2 ranks, cached",
    "local tier: commit, restore",
)
PLAIN = "each tensor read, checked, assigned; cached"
TENSORFLOW = "tf.train.Checkpoint, cached"
KERAS, NUMPY = "keras load_weights, cached", "numpy.fromfile, cached"
OURS = (WARM, OTHER, COLD, LOCAL)
PROBE, STEP_BEHIND, ANY_STEP = "of it, asking Keras for its layout", "the step behind it", "any other step"
LAYER = "one layer"


class Files:
    """What the jobs left: ``alone`` is a run of one rank, ``pair`` (NT3 alone) one of two, ``dead`` a run with slots alone."""

    def __init__(self, workload: str, disk: Path, memory: Path) -> None:
        self.alone, self.pair = disk / "alone", disk / "pair" if workload == "nt3" else None
        self._dead, self._disk, self._memory = memory / "dead", disk, memory
        for run, ranks in ((self.alone, 1), (self.pair, 2)):
            if run is None:
                continue
            say(f"{workload}: a checkpoint of {ranks} rank{'s' * (ranks > 1)} ...")
            slots = jobs.empty(memory, "slots")
            dead = str(self._dead) if ranks == 1 else None
            params = {"workload": WORKLOADS[workload], "run": str(run), "slots": str(slots), "dead": dead}
            jobs.gather("restore_job", params, ranks, disk)

    def dead_job(self) -> tuple[Path, Path]:
        """A run without a checkpoint, and the local tier that has one."""
        run, slots = self._disk / "again", self._memory / "again"
        for path in (run, slots):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self._dead / "run", run)
        link(self._dead / "slots", slots)
        return run, slots


def measure(args: argparse.Namespace) -> Report:
    """All of it; ``--quick``: ResNet-50 alone."""
    found = Report("restore", "How long until a model has its values back?")
    for workload in ("resnet50",) if args.quick else args.workloads:
        with jobs.places(args.folder) as (disk, memory):
            _measure(found, workload, Files(workload, disk, memory), args.samples)
    return found


def _measure(found: Report, workload: str, files: Files, samples: int) -> None:
    import deepfreeze
    from deepfreeze.state.dataset_paths import locate
    from deepfreeze.state.training_state import TrainingState

    say(f"{workload}: restoring it ...")
    model, x, y = workloads.model(WORKLOADS[workload])
    file = deepfreeze.latest(files.alone).path / "model.weights.h5"
    other = file if files.pair is None else deepfreeze.latest(files.pair).path / "model.weights.h5"
    nbytes = file.stat().st_size
    # As large as the file: a small buffer would stay in the processor's cache, which no model does.
    memory = touched(max(nbytes, other.stat().st_size))
    deepfreeze.restore(model, files.alone)  # an optimizer has its variables from here on
    by_tensorflow, places = tensorflow(model, files.alone.parent), placed(model, files.alone)
    seconds: dict[str, list[float]] = {}
    layer: dict[str, list[float]] = {}
    for number in range(samples + 1):
        # The first round warms up, and checks what came of it.
        into = seconds if number else {}
        drop(file)
        before = io("read_bytes")
        timed(into, COLD, lambda: deepfreeze.restore(model, files.alone))
        if io("read_bytes") - before < 0.9 * nbytes:
            say(f"note: only {io('read_bytes') - before} of {nbytes} bytes came from the disk: {COLD} may be too fast")
        drop(file)
        timed(into, DISK, lambda: pour(file, memory, os.O_DIRECT))
        pour(file, memory)
        timed(into, CACHED, lambda: pour(file, memory))
        timed(into, WARM, lambda: deepfreeze.restore(model, files.alone))
        timed(into, PROBE, lambda: locate(TrainingState.of(model)))
        if number == 0:
            check(model, files.alone)
        elif workload == "nt3":
            # Nothing is put off: the step behind it takes what any step takes.
            timed(into, STEP_BEHIND, lambda: model.train_on_batch(x, y))
            timed(into, ANY_STEP, lambda: model.train_on_batch(x, y))
        timed(into, TENSORFLOW, by_tensorflow)
        timed(into, PLAIN, lambda: plain(file, places))
        timed(into, KERAS, lambda: model.load_weights(file))
        timed(into, NUMPY, lambda: np.fromfile(file, np.uint8))
        if files.pair is not None:
            pour(other, memory)
            timed(into, OTHER, lambda: deepfreeze.restore(model, files.pair))
        _local(into, model, files)
        name, size = _layer(layer if number else {}, files.alone, file)
    for what, values in seconds.items():
        row = found.row(workload=workload, what=what, bytes=nbytes).add("seconds", "s", values)
        if what not in (PROBE, STEP_BEHIND, ANY_STEP):
            row.add("rate", "B/s", [nbytes / value for value in values])
    row = found.row(workload=workload, what=LAYER, tensor=name, bytes=size, of=nbytes)
    for key, values in layer.items():
        row.add(key, "s" if key.startswith("seconds") else "B", values)


def _local(into: dict[str, list[float]], model: Any, files: Files) -> None:
    """A new start of the job whose last checkpoint is on the local tier alone."""
    import deepfreeze

    run, slots = files.dead_job()
    checkpoint = deepfreeze.Checkpoint(run, every=STEP, local=slots, resume="required", verbose=0)
    # What was measured before may have left pages that a sync would have to write.
    os.sync()
    # A model that goes on as it is would not be restored.
    timed(into, LOCAL, lambda: checkpoint.open(model))
    if checkpoint.stats.resumed != STEP:
        raise SystemExit(f"step {STEP} on the local tier was not finished: went on from {checkpoint.stats.resumed}")
    checkpoint.close()


def _layer(into: dict[str, list[float]], run: Path, file: Path) -> tuple[str, int]:
    """The largest tensor but one, read out of the whole: its name and size."""
    import deepfreeze

    with deepfreeze.read(run) as tensors:
        sizes = sorted(((placed.nbytes, name) for name, placed in tensors.structure.by_name.items()), reverse=True)
    size, name = next(entry for entry in sizes if entry[0] < sizes[0][0])

    def fetch() -> None:
        with deepfreeze.read(run) as tensors:
            tensors[name]

    drop(file)
    before = io("read_bytes")
    timed(into, "seconds, not cached", fetch)
    into.setdefault("from disk", []).append(io("read_bytes") - before)
    before = io("rchar")
    timed(into, "seconds, cached", fetch)
    into.setdefault("asked for", []).append(io("rchar") - before)
    return name, size


def placed(model: Any, run: Path) -> list[tuple[Placed, Any]]:
    """The tensors that have bytes in the newest checkpoint's file, each with the model's variable."""
    import deepfreeze
    from deepfreeze.state.dataset_paths import locate
    from deepfreeze.state.training_state import TrainingState

    with deepfreeze.read(run) as tensors:
        by_path = {one.path: one for one in tensors.structure.tensors if one.nbytes}
    return [(by_path[one.path], one.variable) for one in locate(TrainingState.of(model)).tensors if one.path in by_path]


def tensorflow(model: Any, folder: Path) -> Callable[[], object]:
    """Writes a ``tf.train.Checkpoint`` of the model and its optimizer below ``folder``; the function that restores it."""
    import tensorflow as tf

    checkpoint, path = tf.train.Checkpoint(model=model), str(folder / "tensorflow" / "checkpoint")
    checkpoint.write(path)
    os.sync()
    return lambda: checkpoint.read(path).assert_consumed()


def plain(file: Path, places: Sequence[tuple[Placed, Any]]) -> None:
    """Restores as a script would by hand: each tensor's bytes into an array of its own, its CRC32C taken; once all are there, each
    array is assigned to its variable. One thread."""
    arrays = []
    with file.open("rb", buffering=0) as source:
        for place, _ in places:
            array = np.empty(place.spec.shape, place.spec.dtype)
            data = array.reshape(-1).view(np.uint8)
            source.seek(place.offset)
            source.readinto(data)
            crc32c.value(data)
            arrays.append(array)
    for (_, variable), array in zip(places, arrays, strict=True):
        variable.assign(array)


def check(model: Any, run: Path) -> None:
    """The model's values are the checkpoint's, bit for bit."""
    import deepfreeze
    from deepfreeze.frameworks.tensorflow.variables import tf_variable

    with deepfreeze.read(run) as tensors:
        for one, variable in placed(model, run):
            if tf_variable(variable).numpy().tobytes() != tensors[one.spec.name].tobytes():
                raise SystemExit(f"{one.path} was not restored")


def timed(into: dict[str, list[float]], what: str, action: Callable[[], object]) -> None:
    """Adds the seconds that ``action`` takes; what it returns is gone before the next."""
    begin = time.perf_counter()
    action()
    into.setdefault(what, []).append(time.perf_counter() - begin)


def touched(nbytes: int) -> mmap.mmap:
    """Memory whose pages are there already; whole pieces of it, which O_DIRECT asks for at the file's end too."""
    memory = mmap.mmap(-1, -(-nbytes // PIECE) * PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    np.frombuffer(memory, np.uint8)[:] = 1
    return memory


def pour(file: Path, memory: mmap.mmap, flags: int = 0) -> None:
    """Reads a whole file into memory by one thread, piece by piece."""
    fd = os.open(file, os.O_RDONLY | flags)
    try:
        offset, size = 0, os.fstat(fd).st_size
        with memoryview(memory) as view:
            while offset < size:
                offset += os.preadv(fd, [view[offset : offset + PIECE]], offset)
    finally:
        os.close(fd)


def drop(file: Path) -> None:
    """Takes a file out of the page cache."""
    fd = os.open(file, os.O_RDONLY)
    try:
        os.fsync(fd)  # dirty pages stay
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def io(key: str) -> int:
    """This process's count of bytes: "rchar" asked for, "read_bytes" that came from a disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def tables(found: Report) -> str:
    """Seconds, rates and ratios; then the layer."""
    parts = []
    for workload in by_workload(found):
        lines = []
        for row in found.rows:
            what = row.labels["what"]
            if row.labels["workload"] != workload or what == LAYER:
                continue
            limit = found.find(workload=workload, what=DISK if what == COLD else CACHED)
            ratio = f"{limit.median('seconds') / row.median('seconds'):.2f}" if what in OURS else ""
            rate = span(row, "rate", 1e-9, 2)
            lines.append([what, span(row, "seconds", 1e3, 0), rate, ratio])
        size = found.find(workload=workload, what=WARM).labels["bytes"] / 1e6
        head = ["", "ms", "GB/s", "of the limit's rate"]
        parts.append(f"{workload}, a file of {size:.0f} MB:\n\n{table(head, lines)}")
    lines = []
    for row in (row for row in found.rows if row.labels["what"] == LAYER):
        size = row.labels["bytes"]
        lines.append(
            [
                row.labels["workload"],
                row.labels["tensor"],
                f"{size / 1e6:.2f} of {row.labels['of'] / 1e6:.0f}",
                span(row, "asked for", 1e-6, 2),
                span(row, "from disk", 1e-6, 2),
                span(row, "seconds, cached", 1e3),
                span(row, "seconds, not cached", 1e3),
            ]
        )
    head = ["", "tensor", "MB", "MB read", "MB from disk, not cached", "ms, cached", "ms, not cached"]
    return "\n\n".join([*parts, f"One layer, `deepfreeze.read(run)[name]`:\n\n{table(head, lines)}"])


def draw(found: Report, path: Path) -> None:
    """Bars for each workload: the file's bytes by the time it took; lines: what page cache and disk give by themselves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = (*OURS, TENSORFLOW, PLAIN, KERAS, NUMPY)
    names = by_workload(found)
    figure, panels = pyplot.subplots(1, len(names), figsize=(4 * len(names) + 2, 3.6), sharey=True, squeeze=False)
    for axes, workload in zip(panels[0], names, strict=True):
        measured = {row.labels["what"]: row for row in found.rows if row.labels["workload"] == workload}
        for place, what in enumerate(shown):
            if what not in measured:
                continue
            row = measured[what]
            rate = {key: row.values["rate"][key] / 1e9 for key in ("median", "min", "max")}
            spread = [[rate["median"] - rate["min"]], [rate["max"] - rate["median"]]]
            colour = "#2f7ed8" if what in OURS else "#9a9a9a"
            axes.barh(place, rate["median"], xerr=spread, color=colour, height=0.65, error_kw={"lw": 1, "capsize": 2})
            text = f"{row.median('seconds') * 1e3:.0f} ms"
            axes.annotate(text, (rate["max"], place), (4, 0), textcoords="offset points", va="center", fontsize=9)
        for what, style in ((CACHED, ":"), (DISK, "--")):
            limit = measured[what].median("rate") / 1e9
            axes.axvline(
                limit, color="#c0392b", ls=style, lw=1.2, zorder=0, label=f"{what.split(',')[0]}, {limit:.1f} GB/s"
            )
        axes.set_yticks(range(len(shown)), shown)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.margins(x=0.15)
        axes.set_xlim(left=0)
        axes.set_xlabel("GB/s")
        size = measured[WARM].labels["bytes"] / 1e6
        axes.set_title(f"{workload}, {size:.0f} MB", fontsize=11)
        axes.legend(fontsize=8, loc="lower right", framealpha=0.9)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        "How fast a built model gets its values back (median, min to max; lines: reading alone)", fontsize=11
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def by_workload(found: Report) -> list[str]:
    """The workloads that were measured, in order."""
    return list(dict.fromkeys(row.labels["workload"] for row in found.rows))


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this benchmark has."""
    parser.add_argument(
        "--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS), help="(default: both)"
    )


if __name__ == "__main__":
    report.run("restore", __doc__ or "", measure, tables, draw, options)
