"""The Keras callback. It turns the calls of Keras's hooks into calls of ``Training``, which does the work. Imports TensorFlow."""

from __future__ import annotations

import logging
import os
from typing import Any

from deepfreeze.frameworks.keras_hooks import Hooks
from deepfreeze.frameworks.tensorflow.refusals import is_compiled_by_xla
from deepfreeze.plan.policy import Policy, as_policy
from deepfreeze.state.private_api import steps_per_execution
from deepfreeze.training.options import Options
from deepfreeze.training.stats import Stats
from deepfreeze.training.training import Training, absolute

log = logging.getLogger("deepfreeze")


class Checkpoint(Hooks):
    """Saves the training state every ``every`` steps into ``run``, and resumes from the newest checkpoint there.

    Args:
        run: directory of this training job on storage that all ranks share; made if its parent exists.
        every: steps between checkpoints, or a policy from ``deepfreeze.plan``.
        local: node-local storage: "auto" (memory-backed or disk, by free space), a directory, or None for none.
        keep: how many of the newest committed checkpoints to keep. The newest checkpoint at which the ranks agreed is kept too,
            however old it is.
        resume: "auto" restores the newest checkpoint if there is one, "required" raises ``NotFoundError`` if there is none, "off" starts
            from the model as it is. A damaged checkpoint is moved to ``damaged/`` in the run, with a warning, and the next older one
            is restored.
        wait_for: the level that training waits for at each checkpoint: "captured" (no wait), "local" (this rank's shards are on
            node-local storage), "external" (the checkpoint is committed: the synchronous mode).
        in_flight: how many checkpoints may have shards in this rank's memory at once; when another one is due, training waits.
        on_error: "raise" or "warn", after the next batch, when a checkpoint has failed.
        final: True: also save the last step, if it has no checkpoint when training ends.
        on_sigterm: "checkpoint": a SIGTERM to any rank makes all ranks commit the current step and ends ``fit``, and ``stats.stopped`` is
            "SIGTERM" then. "ignore": SIGTERM does what it did before.
        when_full: "wait": training waits while there is no memory for another checkpoint. "skip": if some rank has no memory for a
            checkpoint, all ranks skip it.
        check_replicas: the ranks' whole weights are compared at the first two checkpoints; k: also at every k-th one; None: never.
        on_divergence: what to do when the ranks' weights differ: "warn" commits the checkpoint marked as diverged, and those after it
            until the ranks agree again; "raise" commits none of them and ends training; "auto" raises at the first two
            comparisons, where an optimizer that is not wrapped or a missing broadcast shows, and warns of a difference that comes
            later.
        state: "full" (weights, optimizer, seeds) or "weights".
        slots: how many checkpoints of each rank may lie on the local tier (2).
        writers: how many threads of each rank write (8); a quarter of them, at least 2, may copy or checksum at a time.
        chunk_bytes: how many bytes are copied and written at a time (4 MiB); a multiple of 4096.
        nice: the niceness of the engine's threads, 0 to 19 (10): with a higher one they leave more of the processor to training.
        placement: "per_layer": each layer is divided among the ranks; "contiguous": each rank writes one range of the file.
        capture: "auto": captures are copied into the engine's memory if TensorFlow lets the engine register its op; "graph":
            TensorFlow's own ops copy them into TensorFlow's memory.
        save_config: True: the model's configuration is stored with the run, so that ``export`` can write a ``.keras`` file.
        optimizer: the optimizer whose updates are the steps, for a model with several; by default the one given to ``compile``.
        extra: a mapping of names to objects with ``state_dict()`` and ``load_state_dict()``, which each rank saves for itself.
        rng: "all": also save the states of Python's, numpy's, TensorFlow's and Keras's global random number generators, and
            TensorFlow's seed (``tf.random.set_seed``). They are restored by ``open``, or when ``fit`` begins if you don't call
            ``open``. The order of ``fit(shuffle=True)`` follows from TensorFlow's seed: call ``open`` before ``fit`` then.
        timeout: a wait ends when nothing has moved for so many seconds, on this rank and on each rank that it waits for (600).
        world: an mpi4py communicator in place of Horovod's ranks.
        verbose: 1: shows a progress line while the end of training waits for the last commit; 0: shows none.

    Raises ``OptionError`` here. ``RunError``, ``LockedError``, ``NotFoundError``, ``UnsupportedError``, ``StructureError``,
    ``CorruptError`` or ``WorldError`` when training begins; ``EngineError`` or ``WaitError`` while it goes on. After any of them every
    committed checkpoint is still there.
    """

    def __init__(
        self,
        run: str | os.PathLike,
        every: int | Policy = 15,
        *,
        local: str | os.PathLike | None = "auto",
        keep: int = 2,
        resume: str = "auto",
        wait_for: str = "captured",
        in_flight: int = 2,
        on_error: str = "raise",
        final: bool = True,
        state: str = "full",
        on_sigterm: str = "checkpoint",
        when_full: str = "wait",
        check_replicas: int | None = 0,
        on_divergence: str = "auto",
        **more: Any,
    ) -> None:
        super().__init__()
        self._options = Options.of(
            local=local,
            keep=keep,
            resume=resume,
            wait_for=wait_for,
            in_flight=in_flight,
            on_error=on_error,
            final=final,
            state=state,
            on_sigterm=on_sigterm,
            when_full=when_full,
            check_replicas=check_replicas,
            on_divergence=on_divergence,
            **more,
        )
        self._training = Training(absolute(run), as_policy(every), self._options)

    @property
    def stats(self) -> Stats:
        """Figures of what the callback has done so far on this rank."""
        return self._training.stats

    def open(self, model: Any) -> int:
        """Takes the run's lock, commits or clears the checkpoints that a dead job left unfinished, and restores ``model``. Returns the
        step to go on from (0 in a fresh run). To be called by every rank. ``fit`` calls it if you don't. Call it yourself to begin the
        input at the right batch.

        A model that this callback has trained before keeps its values. ``RunError`` if another job has committed a newer checkpoint
        meanwhile. Raises what the class raises when training begins."""
        return self._training.open(model)

    def on_train_begin(self, logs: Any = None) -> None:
        """Opens the run, and puts the captures into the train function before Keras traces it."""
        model = self.model
        compiled, tuned = is_compiled_by_xla(model), getattr(model, "autotune_steps_per_execution", False)
        if compiled or tuned:
            why = "it is compiled by XLA (jit_compile)" if compiled else "Keras tunes its steps_per_execution"
            log.info("captures are taken between two executions of the training: %s", why)
        self._training.begin(model, not (compiled or tuned), steps_per_execution(model))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Hands the capture of the last execution to the engine, if there is one. Ends ``fit`` after a SIGTERM."""
        if not self._training.executed():
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keeps the state of the last step after the last epoch: other callbacks may then replace the weights, by averages or by the best
        ones of the training."""
        self._training.epoch_ended()
        if epoch + 1 == self.params.get("epochs") or self.model.stop_training:
            self._training.keep()

    def on_train_end(self, logs: Any = None) -> None:
        """Saves the last step, waits until every checkpoint is committed or failed, and gives the run's lock and the engine's memory back.
        The captures stay in the model's train function for its next ``fit``; ``close`` takes them out."""
        self._training.end()

    def close(self) -> None:
        """Stops the engine, gives the run's lock back and takes the captures out of the model. Checkpoints in flight get some seconds to be
        committed. Safe to call twice."""
        self._training.close()
