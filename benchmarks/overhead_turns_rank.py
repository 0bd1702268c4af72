"""One rank of a training in which groups of steps without a checkpoint and groups with one take turns. Both groups have the same number of
steps. The checkpoint captures the first step of its group. This module imports TensorFlow.

Two trainings of one model, one after the other, differ by several percent on a machine that changes its speed from minute to minute, and by
the luck of where their memory lies. So the model is traced twice, without checkpoints and with them, and one training calls both functions
in turns. The weights are the same ones.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

import deepfreeze
from benchmarks import jobs, workloads
from benchmarks.overhead_rank import TOUCHED, TRACED, Due, engine_seconds, wait_for_commit
from deepfreeze.frameworks.tensorflow.variables import tf_variable


class Turns(Due):
    """Two checkpoints that touch every buffer for the first time, then one at the first step of every second turn.

    ``turn(batch)`` numbers the turns from 0; the even ones have no checkpoints. It is negative before the first turn.
    """

    def __init__(self, begin: int, every: int, periods: int) -> None:
        """``begin``: the step before the training's first one."""
        self.every, self.turns = every, 2 * periods + 1
        self.batches = TOUCHED + every * self.turns
        first = [TOUCHED + every * turn + 1 for turn in range(1, self.turns, 2)]
        super().__init__([begin + step for step in (TOUCHED - 1, TOUCHED, *first)])

    def turn(self, batch: int) -> int:
        """The turn that a batch, counted from 0, belongs to."""
        return (batch - TOUCHED) // self.every

    def ends(self, batch: int) -> bool:
        """True for the last batch of a turn, and for the last one before the first turn."""
        return (batch + 1 - TOUCHED) % self.every == 0 and batch + 1 >= TOUCHED


class Clock(keras.callbacks.Callback):
    """Wall and CPU seconds of each step, by turn. Comes first, and gives each turn its train function.

    A captured turn ends when its checkpoint is committed: if that is not so after the last step, the wait counts. The look at the run that
    tells does not: no training needs it.
    """

    def __init__(self, run: Path, turns: Turns, plain: Any) -> None:
        super().__init__()
        self._run, self._turns, self._plain, self._saving = run, turns, plain, None
        self.steps: list[list[tuple[float, float]]] = [[] for _ in range(turns.turns)]
        self.engine = 0.0  # CPU seconds of the engine's threads in the captured turns
        self._engine_before = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begins a step."""
        turn = self._turns.turn(batch)
        if batch == TOUCHED:
            self._saving = self.model.train_function
        if turn >= 0:
            self.model.train_function = self._saving if turn % 2 else self._plain
        if self._turns.turn(batch - 1) != turn:
            hvd.allreduce(tf.constant(0.0), name="turn")
            self._engine_before = engine_seconds()
        self._begun = time.perf_counter(), time.process_time()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Ends a step without checkpoints, before the callback of ``Checkpoint``."""
        if self._turns.turn(batch) % 2 == 0:
            self._note(batch)

    def end(self, batch: int) -> None:
        """Ends any other step, behind all callbacks."""
        turn = self._turns.turn(batch)
        if turn % 2 == 0:
            return
        self._note(batch)
        if not self._turns.ends(batch):
            return
        waited = self._settle()
        if turn > 0:
            wall, cpu = self.steps[turn].pop()
            self.steps[turn].append((wall + waited[0], cpu + waited[1]))
            self.engine += engine_seconds() - self._engine_before

    def _note(self, batch: int) -> None:
        seconds, cpu = self._begun
        if self._turns.turn(batch) >= 0:
            self.steps[self._turns.turn(batch)].append((time.perf_counter() - seconds, time.process_time() - cpu))

    def _settle(self) -> tuple[float, float]:
        step = int(tf_variable(self.model.optimizer.iterations).numpy())
        return wait_for_commit(self._run, self._turns.last(step))


class End(keras.callbacks.Callback):
    """Comes last."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Ends the step."""
        self._clock.end(batch)


def measure(params: dict[str, Any]) -> dict[str, Any]:
    """(turns, every) wall and CPU seconds; see ``jobs.serve``."""
    model, x, y = workloads.model(params["workload"], distributed=True)

    def train(steps: int, *callbacks: Any) -> None:
        model.make_train_function(force=True)
        batches = tf.data.Dataset.from_tensors((x, y)).repeat(steps)
        model.fit(batches, verbose=0, shuffle=False, callbacks=list(callbacks))

    train(TRACED, deepfreeze.BroadcastState())
    plain = model.train_function
    begin = int(tf_variable(model.optimizer.iterations).numpy())
    turns = Turns(begin, params["every"], params["periods"])
    run = Path(params["folder"]) / "run"
    checkpoint = deepfreeze.Checkpoint(run, turns, local=params["slots"], final=False, resume="off")
    clock = Clock(run, turns, plain)
    train(turns.batches, clock, deepfreeze.BroadcastState(), checkpoint, End(clock))
    return {
        "seconds": [[wall for wall, _ in turn] for turn in clock.steps],
        "process": [[cpu for _, cpu in turn] for turn in clock.steps],
        "cpu": clock.engine,
        "nbytes": checkpoint.stats.nbytes,
    }


if __name__ == "__main__":
    jobs.serve(measure)
