"""One rank of a training that alternates: without any checkpointing, and with a checkpoint every so many steps. Imports
TensorFlow."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

import deepfreeze
from benchmarks import jobs, workloads
from benchmarks.capture_memory import sampled
from deepfreeze.engine.options import Engine
from deepfreeze.frameworks.tensorflow.variables import tf_variable

TRACED, TOUCHED = (
    3,
    4,
)  # steps before what counts: without checkpoints; with two, which touch every buffer for the first time
PATIENCE = 120.0  # seconds for any wait
# A training whose captures have a bound, in shards: steps between its checkpoints, and how many there are.
MEMORY, EVERY, SAMPLED = 2.5, 2, 8
_THREADS_CLOCK = 6  # of Linux's clocks by number: the CPU time of one thread, in ns


class Due:
    """A policy: a checkpoint at each of some steps, which are in order."""

    def __init__(self, steps: Sequence[int]) -> None:
        self._steps = list(steps)

    def next_step(self, step: int) -> int:
        """See ``deepfreeze.plan.policy.Policy``."""
        return next((due for due in self._steps if due > step), 2**62)

    def last(self, step: int) -> int:
        """The newest that is due up to ``step``."""
        return max(due for due in self._steps if due <= step)


class Blocks(Due):
    """A checkpoint at the end of every period of each block, and two at first."""

    def __init__(self, begin: int, blocks: Sequence[tuple[int, int]]) -> None:
        """``blocks``: (steps between checkpoints, periods)."""
        self.touched = begin + TOUCHED
        self.ends: list[int] = []  # of each block
        due = [begin + TOUCHED - 2, begin + TOUCHED - 1]
        step = self.touched
        for every, periods in blocks:
            due += [step + every * (n + 1) for n in range(periods)]
            step += every * periods
            self.ends.append(step)
        super().__init__(due)


class Clock(keras.callbacks.Callback):
    """Seconds of each iteration, callbacks included (its end is with ``End``, which comes last), and the CPU seconds that all threads of
    the process took meanwhile.

    Where a block begins all wait until the engine has nothing left to do; that is in no iteration's time. The CPU time that the
    engine's threads have taken is noted there.
    """

    def __init__(self, run: Path | None = None, blocks: Blocks | None = None) -> None:
        super().__init__()
        self._run, self._blocks = run, blocks
        self.seconds: list[float] = []
        self.process: list[float] = []
        self.cpu: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begins an iteration."""
        if self._blocks is not None and self._step() in (self._blocks.touched, *self._blocks.ends):
            self._settle(self._blocks)
        if len(self.seconds) == TRACED:
            reset_peak()
        self._begun = time.perf_counter(), time.process_time()

    def end(self) -> None:
        """Ends the iteration."""
        seconds, cpu = self._begun
        self.seconds.append(time.perf_counter() - seconds)
        self.process.append(time.process_time() - cpu)

    def _settle(self, blocks: Blocks) -> None:
        assert self._run is not None
        wait_for_commit(self._run, blocks.last(self._step()))
        self.cpu.append(engine_seconds())
        hvd.allreduce(tf.constant(0.0), name="settled")

    def _step(self) -> int:
        return int(tf_variable(self.model.optimizer.iterations).numpy())


class End(keras.callbacks.Callback):
    """Comes last."""

    def __init__(self, clock: Clock, steps: int, slots: Path) -> None:
        super().__init__()
        self._clock, self._steps, self._slots = clock, steps, slots
        self.memory = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Ends the iteration; after the last one, while the slots are there, looks at the memory."""
        self._clock.end()
        if batch + 1 == self._steps:
            self.memory = peak_memory() + unmapped(self._slots)


def wait_for_commit(run: Path, step: int) -> tuple[float, float]:
    """Waits until the step, or a newer one, is committed. Returns the wall and CPU seconds waited after the first look, which takes some
    milliseconds itself: 0 if the first look found the commit. TimeoutError after ``PATIENCE`` seconds."""
    begun: tuple[float, float] | None = None
    while (newest := deepfreeze.latest(run)) is None or newest.step < step:
        begun = begun or (time.perf_counter(), time.process_time())
        if time.perf_counter() - begun[0] > PATIENCE:
            raise TimeoutError(f"step {step} was not committed")
        time.sleep(0.002)
    return (0.0, 0.0) if begun is None else (time.perf_counter() - begun[0], time.process_time() - begun[1])


def engine_seconds() -> float:
    """CPU seconds of this process's threads that are the engine's. By each thread's own clock: /proc counts whole ticks of 10 ms for each
    thread, and a checkpoint takes most of them less."""
    seconds = 0.0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # one of TensorFlow's that has just ended
            if (task / "comm").read_text().startswith("df-"):
                seconds += time.clock_gettime(~int(task.name) << 3 | _THREADS_CLOCK)
    return seconds


def reset_peak() -> None:
    """Lets ``peak_memory`` count from here."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """The most bytes that were resident since ``reset_peak``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def unmapped(slots: Path) -> int:
    """Bytes of this rank's share of the slots that are not mapped into the process: what is mapped counts as resident."""
    on_tmpfs = sum(path.stat().st_blocks * 512 for path in slots.rglob("*") if path.is_file())
    mapped, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("Rss:"):
            mapped += int(line.split()[1]) * 1024 if ours else 0
        elif "-" in line.split(maxsplit=1)[0]:
            ours = str(slots) in line
    return max(0, on_tmpfs // hvd.size() - mapped)


def measure(params: dict[str, Any]) -> list[dict[str, Any]]:
    """A training without, then in each round one with and one without; see ``jobs.serve``."""
    model, x, y = workloads.model(params["workload"], distributed=True)
    slots = Path(params["slots"])

    def train(steps: int, clock: Clock, callbacks: Sequence[Any]) -> End:
        batches = tf.data.Dataset.from_tensors((x, y)).repeat(steps)
        # Both trainings are traced anew, so both begin alike.
        model.make_train_function(force=True)
        gc.collect()
        end = End(clock, steps, slots)
        model.fit(batches, verbose=0, shuffle=False, callbacks=[clock, deepfreeze.BroadcastState(), *callbacks, end])
        return end

    def train_plain() -> tuple[list[float], list[float], int]:
        """Seconds of its steps, their CPU seconds, and its peak memory."""
        clock = Clock()
        memory = train(TRACED + params["plain"], clock, []).memory
        return clock.seconds[TRACED:], clock.process[TRACED:], memory

    found = []
    before, before_cpu, without = train_plain()
    for n in range(params["rounds"]):
        if hvd.rank() == 0:
            jobs.progress(f"round {n + 1} of {params['rounds']}")
        blocks = Blocks(int(tf_variable(model.optimizer.iterations).numpy()), params["blocks"])
        run = Path(params["folder"]) / f"run-{n}"
        checkpoint = deepfreeze.Checkpoint(run, blocks, local=slots, final=False, resume="off")
        # Behind the training: its first step after the last block settles that.
        total = TOUCHED + sum(every * periods for every, periods in params["blocks"]) + 1
        clock = Clock(run, blocks)
        saved = train(total, clock, [checkpoint])
        after, after_cpu, _ = train_plain()
        found.append(
            {
                "plain": before + after,
                "with": clock.seconds[TOUCHED:-1],
                "plain process": before_cpu + after_cpu,
                "with process": clock.process[TOUCHED:-1],
                "cpu": [later - earlier for earlier, later in zip(clock.cpu, clock.cpu[1:], strict=False)],
                "nbytes": checkpoint.stats.nbytes,
                "extra": saved.memory - without,
            }
        )
        before, before_cpu = after, after_cpu
    if not params.get("bounded"):
        return found
    # Of a training that is not timed: what captures hold where they have a bound.
    given = int(MEMORY * found[-1]["nbytes"]) + Engine().writers * Engine().chunk_bytes
    bounded = deepfreeze.Checkpoint(
        Path(params["folder"]) / "run-bounded", EVERY, local=slots, final=False, resume="off", memory=given
    )
    with sampled(slots) as samples:
        train(TRACED + EVERY * SAMPLED, Clock(), [bounded])
    found[-1] |= {"given": given, "captures": samples.most, "samples": samples.number}
    return found


if __name__ == "__main__":
    jobs.serve(measure)
