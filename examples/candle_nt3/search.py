"""A search over hyper-parameters in the manner of CANDLE: models that start from one ancestor's checkpoint, in parallel processes.

The ancestor is trained first, if its run has no checkpoint yet. Then each trial is a process with a run of its own. It builds NT3 with its
hyper-parameters, takes those weights of the ancestor that fit, and trains on. (A wider last hidden layer does not fit, nor does the
output layer behind it: both start with random weights.) One trial in four starts with random weights only, for comparison. A third of
the training tumours are held back from training. Trials are ranked by these; the test tumours show how good the ranking is.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np

import data
import deepfreeze

HELD_BACK = 21  # of the 63 training rows, which come shuffled


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", default="runs/nt3-search", help="directory for the runs: ancestor, trial-0, trial-1, ..."
    )
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--ancestor-steps", type=int, default=60)
    parser.add_argument("--steps", type=int, default=20, help="of each trial")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--genes", type=int, default=data.GENES, help="pad to so many inputs (published: 60483)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="write the table there")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # what one process is to do, as JSON
    return parser.parse_args()


def drawn(args):
    """The trials' hyper-parameters, drawn at random, the same for the same seed."""
    rng = np.random.default_rng(args.seed)
    return [
        {
            "name": f"trial-{n}",
            "lr": float(f"{10 ** rng.uniform(-4, -3):.1e}"),
            "dropout": float(rng.choice([0.1, 0.3])),
            "width": int(rng.choice([20, 40])),
            "seeded": n % 4 != 3,
            "seed": args.seed + 1 + n,
            "steps": args.steps,
        }
        for n in range(args.trials)
    ]


def train(args, what):
    """Trains one model in a run of its own and prints its result as JSON. Each process of the search calls this once."""
    import keras

    from model import nt3

    keras.utils.set_random_seed(what["seed"])
    x, y, test_x, test_y = data.load(args.genes)
    held_x, held_y = x[:HELD_BACK], y[:HELD_BACK]
    x, y = x[HELD_BACK:], y[HELD_BACK:]
    model = nt3(args.genes, data.CLASSES, what["width"], what["dropout"])
    report = None
    if what["seeded"]:
        ancestor = os.path.join(args.out, "ancestor")
        report = deepfreeze.transfer(model, ancestor, on_mismatch="skip", verbose=0)
    model.compile(
        keras.optimizers.Adam(what["lr"]), "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False
    )

    begun = time.perf_counter()
    checkpoint = deepfreeze.Checkpoint(os.path.join(args.out, what["name"]), every=max(1, what["steps"]), verbose=0)
    start = checkpoint.open(model)
    if start < what["steps"]:
        batches = data.batches(x, y, args.batch, start, what["seed"])
        model.fit(batches, steps_per_epoch=what["steps"] - start, shuffle=False, verbose=0, callbacks=[checkpoint])
        if checkpoint.stats.stopped:
            raise SystemExit(
                f"{what['name']}: {checkpoint.stats.stopped} ended the training early; start again to go on"
            )
    checkpoint.close()
    result = {**what, "seconds": time.perf_counter() - begun, "loaded": len(report.loaded) if report else 0}
    result["fresh"] = [one.target for one in report.mismatched] if report else None
    for name, inputs, labels in (("held_back", held_x, held_y), ("test", test_x, test_y)):
        probabilities = model.predict(inputs, batch_size=len(inputs), verbose=0)
        result[f"{name}_accuracy"] = float(np.mean(probabilities.argmax(axis=1) == labels))
        result[f"{name}_loss"] = float(-np.mean(np.log(probabilities[np.arange(len(labels)), labels])))
    print(json.dumps(result), flush=True)


def in_processes(args, trials):
    """Runs ``train`` for each trial in a process of its own, ``--jobs`` at a time; yields the results as they come."""
    threads = str(max(1, len(os.sched_getaffinity(0)) // min(args.jobs, len(trials))))
    env = dict(os.environ, TF_NUM_INTRAOP_THREADS=threads, OMP_NUM_THREADS=threads)
    ahead, running = list(trials), []
    try:
        while ahead or running:
            while ahead and len(running) < args.jobs:
                command = [sys.executable, __file__, *sys.argv[1:], "--one", json.dumps(ahead.pop(0))]
                running.append(
                    subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
                )
            time.sleep(0.1)
            for process in [process for process in running if process.poll() is not None]:
                running.remove(process)
                output = process.stdout.read()
                if process.returncode:
                    raise SystemExit(f"a trial ended with exit code {process.returncode}")
                yield json.loads(output.splitlines()[-1])
    finally:
        for process in running:
            process.terminate()
            process.wait()


def told(result):
    kind = "seeded" if result["seeded"] else "from nothing"
    print(f"{result['name']} ({kind}): {result['steps']} steps in {result['seconds']:.1f} s", flush=True)


def table(args, results):
    """One line per trial, the best first by the loss on the tumours held back, each with the parent that its run has recorded."""
    lines = [("trial", "lr", "dropout", "width", "taken", "held back", "loss", "test", "parent")]
    for result in sorted(results, key=lambda one: one["held_back_loss"]):
        parent = deepfreeze.latest(os.path.join(args.out, result["name"])).parent
        result["parent"] = None if parent is None else str(parent)
        where = "none" if parent is None else f"{os.path.relpath(parent.path)}@{parent.step}"
        lines.append((
            result["name"], f"{result['lr']:g}", f"{result['dropout']:g}", str(result["width"]), f"{result['loaded']} of 10",
            f"{result['held_back_accuracy']:.2f}", f"{result['held_back_loss']:.3f}", f"{result['test_accuracy']:.2f}", where,
        ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def main():
    args = options()
    if args.one:
        train(args, json.loads(args.one))
        return
    # So that the trials are ended too: each commits the step at hand, and goes on from there when all is started again.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    os.makedirs(args.out, exist_ok=True)
    ancestor = {
        "name": "ancestor",
        "lr": 3e-4,
        "dropout": 0.1,
        "width": 20,
        "seeded": False,
        "seed": args.seed,
        "steps": args.ancestor_steps,
    }
    found = None
    with contextlib.suppress(deepfreeze.NotFoundError):
        found = deepfreeze.latest(os.path.join(args.out, "ancestor"))
    if found is None or found.step < args.ancestor_steps:
        for result in in_processes(args, [ancestor]):
            told(result)
    results = []
    for result in in_processes(args, drawn(args)):
        told(result)
        results.append(result)
    print(table(args, results))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
