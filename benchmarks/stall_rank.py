"""One rank of the ``stall`` benchmark's trainings. Imports TensorFlow and Keras."""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import deepfreeze
from benchmarks import jobs, workloads
from benchmarks.step_clock import StepClock
from deepfreeze.ranks import world as worlds

QUIET = 0.3  # seconds that the disk and the engine are left alone before plain steps are timed
_NEVER = 10**9
_NO_BUDGET = 1e-6  # of Auto: after its first decision it takes no checkpoint
_DECIDING = 60  # steps by which Auto has taken its first decision


class Between(keras.callbacks.Callback):
    """In the middle of every ``half``: what checkpoints are compared with, then a pause in which the engine ends its work. All
    ranks begin each task, and go on, together: a checkpoint is one on all of them at once."""

    def __init__(self, half: int, tasks: list[Callable[[], None]], together: Callable[[], None]) -> None:
        super().__init__()
        self._half, self._tasks, self._together = half, tasks, together

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Runs before the clock does."""
        if batch % self._half == self._half // 2:
            for task in self._tasks:
                self._together()
                task()
            os.sync()  # or what save_weights left in the page cache would go to the disk beside the next checkpoint
            self._together()
            time.sleep(QUIET)


def copier(nbytes: int) -> Callable[[], float]:
    """A function that copies ``nbytes`` onto touched memory, in one thread, and returns the seconds it took."""
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    np.copyto(target, source)

    def copy() -> float:
        begun = time.perf_counter()
        np.copyto(target, source)
        return time.perf_counter() - begun

    return copy


def repeated(x: Any, y: Any, steps: int) -> tf.data.Dataset:
    """The same batch again and again."""
    return tf.data.Dataset.from_tensors((x, y)).repeat(steps)


def measure_when(params: dict[str, Any]) -> dict[str, Any]:
    """Checkpoints captured at their own step's update and late, in turns of one training each: what ``measure_checkpoints`` returns for
    each of both, by name."""
    found: dict[str, Any] = {}
    made = workloads.model(params["workload"])
    for when in ("update", "late") * params["rounds"]:
        made[0].optimizer.iterations.assign(0)  # or the pauses would be at other steps
        capture = deepfreeze.Capture(when=when)
        one = measure_checkpoints({**params, "options": {**params["options"], "capture": capture}}, made)
        before = found.setdefault(when, one)
        if before is not one:
            before.update({name: before[name] + values for name, values in one.items() if isinstance(values, list)})
    return found


def measure_checkpoints(params: dict[str, Any], made: tuple[Any, Any, Any] | None = None) -> dict[str, Any]:
    """A training with a checkpoint every ``every`` steps: its steps, what the checkpoints cost, and, between them,
    save_weights and a copy of as many bytes as the shard has.

    The steps of a checkpoint are compared with those half-way to the one before and to the one after, which have no
    checkpoint and the same pauses before and behind them: where a step stands between pauses changes what it takes.

    ``made``: a model and its data, if they exist already."""
    import horovod.tensorflow as hvd

    every, samples = params["every"], params["samples"]
    half = every // 2
    folder, options = Path(params["folder"]), params["options"]
    model, x, y = made or workloads.model(params["workload"], distributed=params["distributed"])
    if params.get("between"):
        model.autotune_steps_per_execution = True  # the callback then captures so; Keras 3 has no use for it
    timer = StepClock()
    checkpoint = deepfreeze.Checkpoint(folder / "run", every=every, final=False, resume="off", **options)
    saves: list[float] = []
    copies: list[float] = []
    copy: list[Callable[[], float]] = []

    def save() -> None:
        begun = time.perf_counter()
        model.save_weights(folder / f"save-{len(saves) % 2}.weights.h5")
        saves.append(time.perf_counter() - begun)

    def memcpy() -> None:
        if not copy and checkpoint.stats.nbytes:
            copy.append(copier(checkpoint.stats.nbytes))
        copies.extend(fn() for fn in copy)

    def nothing() -> None:
        """Rank 0 saves; the others wait for it."""

    tasks = [memcpy, *([save if hvd.rank() == 0 else nothing] if params["save_weights"] else [])]

    def together() -> None:
        """Returns when all ranks are here."""
        worlds.current().gather(None)

    callbacks = [Between(half, tasks, together), timer, deepfreeze.BroadcastState(), checkpoint]
    # Two checkpoints at the beginning are not counted: they meet memory that was never touched.
    batches = repeated(x, y, every * (samples + 2) + half + half // 2)
    model.fit(batches, verbose=0, shuffle=False, callbacks=callbacks)
    checkpoint.close()
    took, stats = timer.seconds, checkpoint.stats
    counted = stats.steps[2:]
    report = {
        "nbytes": stats.nbytes,
        "blocking": stats.blocking[2:],
        "local": [stats.local[step] for step in counted if step in stats.local],
        "committed": [stats.committed[step] for step in counted if step in stats.committed],
        "save_weights": saves[1:],
        "memcpy": copies[1:],
        "plain": [],
        "stall": [],
        "after": [],
    }

    def two(step: int) -> float:
        """Seconds of ``step`` and of the next one; took[step - 1] is step's."""
        return took[step - 1] + took[step]

    def later(step: int) -> float:
        """Of those that follow, until the pause."""
        return sum(took[step + 1 : step + half // 2])

    for step, blocked in zip(counted, stats.blocking[2:], strict=True):
        plain = [step - half, step + half]
        report["plain"].append(statistics.fmean(map(two, plain)) / 2)
        report["stall"].append(blocked + two(step) - statistics.fmean(map(two, plain)))
        report["after"].append(later(step) - statistics.fmean(map(later, plain)))
    shutil.rmtree(folder / "run", ignore_errors=True)
    return report


def measure_installed(params: dict[str, Any]) -> dict[str, Any]:
    """Two equal trainings take turns, step by step, one of them with the callback and nothing to capture. Their batch is one
    picture: the callback costs as much, and steps that take less time vary by less.

    ``policy``: "never", whose callback has nothing to capture at all, or "auto": of its training the steps count that come after its
    first decision, because its budget is so small that it takes no further checkpoint."""
    turns = [threading.Semaphore(1), threading.Semaphore(0)]
    took: tuple[list[float], list[float]] = ([], [])

    class First(keras.callbacks.Callback):
        """Waits for this training's turn, then starts the clock."""

        def __init__(self, which: int, begun: list[float]) -> None:
            super().__init__()
            self._which, self._begun = which, begun

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            turns[self._which].acquire()
            self._begun[:] = [time.perf_counter()]

    class Last(First):
        """Reads the clock when all callbacks are done, and gives the turn to the other one."""

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            pass

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            took[self._which].append(time.perf_counter() - self._begun[0])
            turns[1 - self._which].release()

    auto = params["policy"] == "auto"
    steps = params["steps"] + (_DECIDING if auto else 0)
    every = deepfreeze.plan.Auto(_NO_BUDGET) if auto else _NEVER
    checkpoint = deepfreeze.Checkpoint(
        Path(params["folder"]) / "run", every=every, final=False, resume="off", verbose=0
    )
    errors: list[BaseException] = []

    def train(which: int) -> None:
        begun: list[float] = []
        own = [checkpoint] if which else []
        model, x, y = models[which]
        try:
            model.fit(
                repeated(x, y, steps + 3),
                verbose=0,
                shuffle=False,
                callbacks=[First(which, begun), *own, Last(which, begun)],
            )
        except BaseException as error:
            errors.append(error)
        finally:
            turns[1 - which].release()

    models = [workloads.model(params["workload"], batch=1) for _ in range(2)]
    threads = [threading.Thread(target=train, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    if auto and len(checkpoint.stats.intervals) != 1:
        raise RuntimeError(
            f"Auto was to decide once within {_DECIDING} steps, and has decided: {checkpoint.stats.intervals}"
        )
    begin = checkpoint.stats.intervals[0].step + 2 if auto else 3
    return {"without": took[0][begin:], "with": took[1][begin:]}


def measure_seam(params: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the callback's own work after each step of a model whose steps cost next to nothing, with a fixed interval and with
    ``Auto``, after its first decision: trainings that take turns."""
    from deepfreeze.training.training import Training

    found: dict[str, list[float]] = {"never": [], "auto": []}
    executed, took = Training.executed, []

    def timed(training: Training) -> bool:
        begun = time.perf_counter()
        answer = executed(training)
        took.append(time.perf_counter() - begun)
        return answer

    layers = [keras.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(), "mse")
    x, y = np.zeros((16, 8), np.float32), np.zeros((16, 1), np.float32)
    Training.executed = timed  # type: ignore[method-assign]
    try:
        for number in range(params["rounds"] * 2):
            policy = ("never", "auto")[number % 2]
            took.clear()
            every = deepfreeze.plan.Auto(_NO_BUDGET) if policy == "auto" else _NEVER
            run = Path(params["folder"]) / f"run-{number}"
            checkpoint = deepfreeze.Checkpoint(run, every=every, final=False, resume="off", verbose=0)
            model.optimizer.iterations.assign(0)
            model.fit(repeated(x, y, _DECIDING + params["steps"]), verbose=0, shuffle=False, callbacks=[checkpoint])
            checkpoint.close()
            shutil.rmtree(run)
            found[policy].append(statistics.median(took[_DECIDING:]))
    finally:
        Training.executed = executed  # type: ignore[method-assign]
    return found


def measure_added(params: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds that the added ops take in a step that captures nothing, alone in a graph, more than a graph that is handed the same
    variables; and how many they are."""
    from deepfreeze.frameworks.tensorflow.capture import Range, TensorFlowCapture
    from deepfreeze.frameworks.tensorflow.engine_buffers import EngineBuffers, reason_against
    from deepfreeze.frameworks.tensorflow.graph_buffers import GraphBuffers
    from deepfreeze.plan.placement import per_layer
    from deepfreeze.state.training_state import TrainingState

    model, _, _ = workloads.model(params["workload"])
    model.optimizer.build(model.trainable_variables)
    buffers = GraphBuffers() if reason_against() else EngineBuffers()
    state = TrainingState.of(model)
    placed = state.placed()
    ranges = [Range(placed[one.tensor], one.start, one.stop) for one in per_layer([one.spec for one in placed], 1)[0]]
    capture = TensorFlowCapture(state, ranges, 0, buffers, lambda: None)

    @tf.function(autograph=False)
    def added(step: tf.Tensor) -> None:
        # What the two hooks on optimizer and model add to a train function.
        capture._after_update(step)
        capture._after_step(step)

    @tf.function(autograph=False)
    def nothing(step: tf.Tensor) -> None:
        # A train function is handed its variables in any case.
        graph = tf.compat.v1.get_default_graph()
        for group in capture.groups:
            for variable in group.variables:
                graph.capture(variable.handle)

    step = tf.constant(1, tf.int64)
    # Many rounds: a time slice given to somebody else is a millisecond in the mean of one.
    calls, rounds, seconds = 100, 4 * params["samples"], []
    for call in (added, nothing):
        call(step)
    for _ in range(rounds + 1):
        pair = []
        for call in (added, nothing):
            begun = time.perf_counter()
            for _ in range(calls):
                call(step)
            pair.append((time.perf_counter() - begun) / calls)
        seconds.append(pair[0] - pair[1])
    operations = added.get_concrete_function(step).graph.get_operations()
    counts = [sum(op.type == "If" for op in operations), len(operations)]
    capture.close()
    return {"added_ops": seconds[1:], "added_counts": [float(count) for count in counts]}


MEASURES = {
    "when": measure_when,
    "checkpoints": measure_checkpoints,
    "installed": measure_installed,
    "added": measure_added,
    "seam": measure_seam,
}


def measure(params: dict[str, Any]) -> Any:
    """What ``params`` asks for."""
    return MEASURES[params["measure"]](params)


if __name__ == "__main__":
    np.random.seed(0)
    jobs.serve(measure)
