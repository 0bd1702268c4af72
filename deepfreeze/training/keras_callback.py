"""The Keras callback: saves the training state as it trains, and resumes it. Imports TensorFlow.

Keras's hooks, and nothing else: ``training`` does all of it.
"""

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
        resume: "auto" restores the newest checkpoint if there is one, "required" insists on one, "off" starts from the model
            as it is. One that is damaged is moved to ``damaged/`` in the run, with a warning, and the next older one taken.
        wait_for: the level that training waits for at each checkpoint: "captured" (not at all), "local" (on node-local
            storage), "external" (committed: the synchronous mode).
        in_flight: checkpoints whose shards may be in memory at once; when more are due, training waits.
        on_error: "raise" or "warn", at the next batch, when a checkpoint failed.
        final: also save the last step, if it has no checkpoint when training ends.
        on_sigterm: "checkpoint": a SIGTERM to any rank commits the step at hand, on all of them, and ends ``fit``;
            ``stats.stopped`` then says so. "ignore" leaves the signal alone.
        when_full: "wait", or "skip" a checkpoint for which there is no room in memory on some rank: all ranks skip it.
        check_replicas: compare whole weights between the ranks at the first two checkpoints and at every k-th; 0: never.
        on_divergence: what to do when the ranks' weights differ: "warn" commits the checkpoint marked as diverged, and those after it
            until the ranks agree again; "raise" commits none of them and ends training; "auto" raises at the first two
            comparisons, where an optimizer that is not wrapped or a missing broadcast shows, and warns of a difference that comes
            later.
        state: "full" (weights, optimizer, seeds) or "weights".
        slots: checkpoints per rank on the local tier (2).
        writers: threads that write (8); a quarter of them, at least 2, may copy or checksum at a time.
        chunk_bytes: what is copied and written at a time (4 MiB); a multiple of 4096.
        nice: how far the engine's threads step back behind the training's (10), 0 to 19.
        placement: "per_layer": each layer cut over the ranks; "contiguous": one range of the file per rank.
        capture: "auto": into the engine's memory where TensorFlow lets the engine register its op; "graph": by TensorFlow's own
            ops alone.
        save_config: True: the model's configuration is stored with the run, so that ``export`` can write a ``.keras`` file.
        optimizer: the one whose updates are the steps, for a model with several; by default the one given to ``compile``.
        extra: a mapping of names to objects with ``state_dict()`` and ``load_state_dict()``, saved by each rank for itself.
        rng: "all": also the states of Python's, numpy's, TensorFlow's and Keras's global random number generators, and TensorFlow's
            seed (``tf.random.set_seed``). They are set where ``open`` restores, or else as ``fit`` begins. The order of
            ``fit(shuffle=True)`` follows from that seed: call ``open`` first.
        timeout: seconds after which a wait ends if nothing has moved meanwhile, here or on a rank that is waited for (600).
        world: an mpi4py communicator in place of Horovod's ranks.
        verbose: 1: a progress line while training's end waits for the last commit; 0: none.

    Raises ``OptionError`` here; ``RunError``, ``LockedError``, ``UnsupportedError``, ``StructureError``, ``CorruptError`` when
    training begins; ``EngineError``, ``WaitError`` while it goes on. After any of them nothing that was committed is lost.
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
        check_replicas: int = 100,
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
        """What it has done so far."""
        return self._training.stats

    def open(self, model: Any) -> int:
        """Takes the run's lock, finishes or clears what a dead job left, and restores ``model``. Returns the step to go on
        from (0 in a fresh run). ``fit`` does it if you don't; do it yourself to start the input at the right batch.

        A model that this callback has trained before goes on as it is. ``RunError`` if another job has committed a newer checkpoint
        meanwhile."""
        return self._training.open(model)

    def on_train_begin(self, logs: Any = None) -> None:
        """Opens the run and puts the capture into the graph, before it is traced."""
        model = self.model
        compiled, tuned = is_compiled_by_xla(model), getattr(model, "autotune_steps_per_execution", False)
        if compiled or tuned:
            why = "it is compiled by XLA (jit_compile)" if compiled else "Keras tunes its steps_per_execution"
            log.info("captures are taken between two executions of the training: %s", why)
        self._training.begin(model, not (compiled or tuned), steps_per_execution(model))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Hands over what the last execution captured, if it did."""
        if not self._training.executed():
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keeps the state of the last step: after the last epoch, Keras may replace weights by averages or by the best."""
        self._training.epoch_ended()
        if epoch + 1 == self.params.get("epochs") or self.model.stop_training:
            self._training.keep()

    def on_train_end(self, logs: Any = None) -> None:
        """Saves the last step, returns when everything in flight is committed, and gives the run back. The captures stay in the
        model's graph for its next ``fit``; ``close`` takes them out."""
        self._training.end()

    def close(self) -> None:
        """Stops the engine, takes the capture out of the model and gives the run's lock back. Safe to call twice."""
        self._training.close()
