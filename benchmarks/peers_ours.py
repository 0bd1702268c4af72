"""DeepFreeze in the comparison: its public callback in one long model.fit, which stands still between rounds."""

from __future__ import annotations

import importlib.metadata
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import deepfreeze
from benchmarks.peers_child import Channel, check, warm
from benchmarks.peers_tensorflow import Model, model, sample

EVERY = 8
# Steps of a round, counted from the captured one: 0 and 1 are what a checkpoint costs; in 2 to 4 the callback hears that it is
# committed; 5 pays for what a restore may have left; 6 and 7 are the plain steps to compare with.
NEXT, HEARD, LAST, PLAIN = 1, 2, 4, (6, 7)
_PATIENCE = 120.0


class Timer(keras.callbacks.Callback):
    """How long each step took; it stands before the checkpoint's callback, so that this one's time is not in it."""

    def __init__(self) -> None:
        super().__init__()
        self.took: dict[int, float] = {}
        self.step = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Starts the clock."""
        self.begun = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Stops it."""
        self.step += 1
        self.took[self.step] = time.perf_counter() - self.begun


class Conductor(keras.callbacks.Callback):
    """Waits for the parent's requests, and answers with what the round's checkpoint took. Stands last."""

    def __init__(self, name: str, run: Path, checkpoint: deepfreeze.Checkpoint, timer: Timer, channel: Channel) -> None:
        super().__init__()
        self._name, self._run, self._channel = name, run, channel
        self._checkpoint, self._timer = checkpoint, timer
        self._saved: list[np.ndarray] | None = None
        self._answered = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Does what is due after this step."""
        step = self._timer.step
        place = step % EVERY
        if step < EVERY:
            if step == LAST:
                self._await_request()
        elif place == 0 and not self._answered:
            self._saved = sample(self.model)
        elif place == NEXT:
            self._await_commit(step - NEXT)
        elif HEARD <= place <= LAST and self._answered < step - place:
            captured = step - place
            if captured in self._checkpoint.stats.committed:
                self._answer(captured)
                self._await_request()
            elif place == LAST:
                raise SystemExit(f"{self._name}: step {captured} is committed, and the callback did not hear of it")
            else:
                time.sleep(0.02)

    def _await_request(self) -> None:
        if not self._channel.hear():
            self.model.stop_training = True

    def _await_commit(self, captured: int) -> None:
        """Returns when the checkpoint is there for any reader; training stands still until then, the engine has the machine."""
        deadline = time.monotonic() + _PATIENCE
        while (newest := deepfreeze.latest(self._run)) is None or newest.step < captured:
            if time.monotonic() > deadline:
                raise SystemExit(f"{self._name}: step {captured} was not committed in {_PATIENCE:.0f} s")
            time.sleep(0.01)

    def _answer(self, captured: int) -> None:
        stats, took = self._checkpoint.stats, self._timer.took
        blocking = stats.blocking[stats.steps.index(captured)]
        plain = [took[captured - EVERY + place] for place in PLAIN]
        extra = took[captured] + took[captured + NEXT] - sum(plain)
        # The engine counts from the hand-over, which ends the blocking time, unless that includes waiting for the engine.
        committed = stats.committed[captured]
        durable = blocking + committed if self._name == NAMES["captured"] else max(blocking, committed)
        newest = deepfreeze.latest(self._run)
        assert newest is not None
        nbytes = warm(Path(newest.path))
        begin = time.perf_counter()
        deepfreeze.restore(self.model, self._run, captured)
        restore = time.perf_counter() - begin
        if self._saved is not None:
            check(self._name, self._saved, sample(self.model))
            self._saved = None
        self._answered = captured
        values = {"blocking": blocking, "extra": extra, "stall": blocking + extra, "done": durable, "durable": durable}
        self._channel.say({**values, "bytes": nbytes, "restore": restore, "update": sum(plain) / len(plain)})


NAMES = {
    "captured": "DeepFreeze",
    "local": 'DeepFreeze, wait_for="local"',
    "external": 'DeepFreeze, wait_for="external"',
}


def start(side: str, arrays: dict[str, np.ndarray], channel: Channel, folder: Path) -> None:
    """Trains until the parent has no more requests."""
    trained: Model = model(arrays)
    arrays.clear()
    name, run, timer = NAMES[side], folder / "run", Timer()
    checkpoint = deepfreeze.Checkpoint(run, every=EVERY, wait_for=side, state="weights", final=False, verbose=0)
    callbacks = [timer, checkpoint, Conductor(name, run, checkpoint, timer, channel)]
    channel.say(
        {"approaches": {name: {"fsync": "yes"}}, "versions": {"deepfreeze": importlib.metadata.version("deepfreeze")}}
    )
    # tf.data's tuning thread sleeps for up to a minute at a time, and a process that ends waits for it.
    untuned = tf.data.Options()
    untuned.autotune.enabled = False
    batches = tf.data.Dataset.from_tensors(np.zeros((1, 1), np.float32)).repeat().with_options(untuned)
    trained.fit(batches, steps_per_epoch=10**9, epochs=1, verbose=0, shuffle=False, callbacks=callbacks)
