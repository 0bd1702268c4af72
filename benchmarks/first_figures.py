"""What does a checkpoint cost training? python -m benchmarks.first_figures --help

NT3 at its published size (60483 genes, batch 1) and ResNet-50, real training under Horovod, with full state. For every
checkpoint, in one run: how long the callback holds up training; what the captured step and the one after it take more than
two plain steps; when the shard is on the local tier; when the checkpoint is committed (assembled, fsynced). Then
model.save_weights() to the same directory, which writes in place and does not fsync. Medians, with min..max.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EVERY, WARM_UP, SAMPLES = 8, 1, 5


def workload(name: str):
    """(model, x, y) of a batch: published size, real network, values that don't matter to the cost."""
    import keras
    import numpy as np

    import deepfreeze

    rng = np.random.default_rng(0)
    if name == "nt3":
        sys.path.insert(0, str(ROOT / "examples" / "candle_nt3"))
        from model import nt3

        model, loss = nt3(60483, 2), "sparse_categorical_crossentropy"
        x, y = rng.random((1, 60483, 1), np.float32), np.zeros(1, np.int64)
        optimizer = keras.optimizers.SGD(1e-3)
    else:
        model = keras.applications.ResNet50(weights=None, classes=10, input_shape=(64, 64, 3))
        loss, optimizer = "sparse_categorical_crossentropy", keras.optimizers.SGD(1e-2, momentum=0.9)
        x, y = rng.random((16, 64, 64, 3), np.float32), rng.integers(0, 10, 16)
    model.compile(deepfreeze.DistributedOptimizer(optimizer), loss, jit_compile=False)
    return model, x, y


def rank_main(name: str, folder: str, out: str) -> None:
    """One rank: trains, measures, and writes OUT/rank-R.json."""
    import horovod.tensorflow as hvd
    import keras
    import tensorflow as tf

    import deepfreeze

    hvd.init()
    model, x, y = workload(name)
    total = EVERY * (WARM_UP + SAMPLES) + 2
    took: list[float] = []

    class Timer(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.begun = time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):
            took.append(time.perf_counter() - self.begun)

    checkpoint = deepfreeze.Checkpoint(f"{folder}/run", every=EVERY, final=False)
    batches = tf.data.Dataset.from_tensors((x, y)).repeat(total)
    # The timer comes first, so a step's time ends before the callback begins.
    model.fit(batches, verbose=0, shuffle=False, callbacks=[Timer(), deepfreeze.BroadcastState(), checkpoint])

    saves = []
    for n in range(SAMPLES if hvd.rank() == 0 else 0):
        begin = time.perf_counter()
        model.save_weights(f"{folder}/save-{n % 2}.weights.h5")
        saves.append(time.perf_counter() - begin)
    hvd.allreduce(tf.constant(0.0))
    stats, kept = checkpoint.stats, slice(WARM_UP, None)
    captured = stats.steps[kept]
    # Step s is took[s - 1]. The two plain steps are the last ones before the next capture, when the engine is idle.
    report = {
        "blocking": stats.blocking[kept],
        "armed_and_next": [took[s - 1] + took[s] for s in captured],
        "two_plain": [took[s - 3] + took[s - 2] for s in captured],
        "local": [stats.local[s] for s in captured if s in stats.local],
        "committed": [stats.committed[s] for s in captured],
        "save_weights": saves,
        "bytes": stats.nbytes,
    }
    Path(out, f"rank-{hvd.rank()}.json").write_text(json.dumps(report))


def measure(name: str, ranks: int, folder: Path) -> dict:
    """Runs one job and gathers what its ranks measured."""
    out = folder / f"{name}-{ranks}"
    out.mkdir()
    env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", PYTHONWARNINGS="ignore")
    if os.getuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    own = [sys.executable, "-m", "benchmarks.first_figures", "--rank-of", name, "--folder", str(out)]
    command = own if ranks == 1 else ["mpirun", "--oversubscribe", "-np", str(ranks), *own]
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{name} on {ranks} ranks failed:\n{done.stdout[-3000:]}")
    found = [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(ranks)]
    shutil.rmtree(out)
    # A step is over when the slowest rank is done with it.
    slowest = {key: [max(values) for values in zip(*(f[key] for f in found), strict=True)] for key in _TIMES}
    return {
        "workload": name,
        "ranks": ranks,
        "bytes": [f["bytes"] for f in found],
        **slowest,
        "save_weights": found[0]["save_weights"],
    }


_TIMES = ("blocking", "armed_and_next", "two_plain", "local", "committed")


def row(result: dict) -> list[str]:
    """One line of the table; milliseconds, median (min..max)."""

    def ms(values: list[float]) -> str:
        return (
            "-"
            if not values
            else f"{statistics.median(values) * 1e3:.1f} ({min(values) * 1e3:.1f}..{max(values) * 1e3:.1f})"
        )

    plain = statistics.median(result["two_plain"])
    extra = [armed - plain for armed in result["armed_and_next"]]
    ratio = statistics.median(result["save_weights"]) / statistics.median(result["blocking"])
    return [
        result["workload"],
        str(result["ranks"]),
        f"{max(result['bytes']) / 1e6:.0f}",
        f"{plain / 2 * 1e3:.0f}",
        ms(result["blocking"]),
        ms(extra),
        ms(result["local"]),
        ms(result["committed"]),
        ms(result["save_weights"]),
        f"{ratio:.0f}x",
    ]


HEADER = [
    "workload",
    "ranks",
    "MB per rank",
    "step",
    "blocking",
    "armed + next step, extra",
    "to local",
    "to commit",
    "save_weights",
    "save_weights / blocking",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=["nt3", "resnet50"], choices=["nt3", "resnet50"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument(
        "--folder", type=Path, help="on the disk to measure (default: the system's temporary directory)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write raw samples there")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_of:
        rank_main(args.rank_of, str(args.folder), str(args.folder))
        return
    results = []
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="deepfreeze-") as folder:
        for name in args.workloads:
            for ranks in args.ranks:
                print(f"{name} on {ranks} rank{'s' * (ranks > 1)} ...", file=sys.stderr, flush=True)
                results.append(measure(name, ranks, Path(folder)))
    lines = [HEADER, ["---"] * len(HEADER), *map(row, results)]
    print("\n".join("| " + " | ".join(line) + " |" for line in lines))
    if args.json:
        machine = {"cores": os.cpu_count(), "processor": platform.processor(), "python": platform.python_version()}
        args.json.write_text(json.dumps({"machine": machine, "results": results}, indent=1))


if __name__ == "__main__":
    main()
