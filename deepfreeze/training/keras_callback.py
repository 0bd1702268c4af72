"""The Keras callback. It turns the calls of Keras's hooks into calls of ``Training``, which does the work."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from deepfreeze.candle import translated
from deepfreeze.engine.options import Engine
from deepfreeze.errors import OptionError
from deepfreeze.events.keras_logs import KerasLogs
from deepfreeze.events.stats import Stats
from deepfreeze.frameworks import table
from deepfreeze.frameworks.framework import TraceWait
from deepfreeze.frameworks.keras_hooks import Hooks
from deepfreeze.freeze.settings import Replicas
from deepfreeze.plan.chosen_policy import chosen_policy
from deepfreeze.plan.epochs import Fit
from deepfreeze.plan.fit_position import FitPosition
from deepfreeze.plan.policy import PlannedPolicy, Policy, parts
from deepfreeze.state.private_api import fits_initial_epoch, steps_per_execution, variables_of_fit
from deepfreeze.store.retention import Wants
from deepfreeze.training.fit_beginning import FitBeginning
from deepfreeze.training.options import Capture, Options
from deepfreeze.training.run_path import RunPath
from deepfreeze.training.training import Training


class Checkpoint(Hooks):
    """Saves the training state every ``every`` steps into ``run``, and resumes from the newest checkpoint there.

    Args:
        run: directory of this training job on storage that all ranks share. It is made if it is missing, with the directories above it,
            unless the nearest that exists is ``/`` or an empty mount point: its file system is probably not mounted then. Or a function of
            no arguments that returns it, for a callback of which a tool makes copies (``copy.deepcopy``), one for each trial: rank 0
            calls it when a copy's first training begins.
        every: steps between checkpoints; "auto" for as many as make training 3.5 % longer, by measurement (``deepfreeze.plan.Auto``);
            "epoch" for a checkpoint at the end of each epoch; or another policy from ``deepfreeze.plan``.
        resume: "auto" restores the newest checkpoint if there is one, "required" raises ``NotFoundError`` if there is none, "off" starts
            from the model as it is. A damaged checkpoint is moved to ``damaged/`` in the run, with a warning, and the next older one
            is restored.
        keep: which committed checkpoints stay: so many of the newest, or rules of ``deepfreeze.store`` joined by "|", such as
            ``Latest(2) | Best("val_loss", "min") | Tagged()``. The newest one stays in any case, so does the newest at which the ranks
            agreed, and the one from which training has resumed until there are two newer ones.
        keep_pending: how many checkpoints wait at most for metrics that a rule asks for.
        storage: how many bytes checkpoints of the run may take on the external store: a number, or text such as "20 GB" or "800 MiB".
            Training waits while there is no room for another one. Where the checkpoints that ``keep`` wants leave no room, no
            checkpoint is saved, with a warning. None: no bound.
        memory: how many bytes captures may hold on each rank, in the engine's memory, in slots that are memory and in the writers' blocks:
            a number, or text. As many whole captures as fit are held at once. One is enough: the next capture takes the memory part by
            part, as soon as the parts are written. Checkpoints wait in slots that are memory only if two captures fit. None:
            ``Engine(in_flight=)`` and ``Engine(slots=)`` count captures.
        wait_for: the level that training waits for at each checkpoint: "captured" (no wait), "local" (this rank's shards are on
            node-local storage), "external" (the checkpoint is committed: the synchronous mode).
        local: node-local storage: "auto" (memory-backed or disk, by free space), a directory, or None for none.
        on_error: "raise" or "warn", after the next batch, when a checkpoint has failed.
        final: True: also save the last step, if it has no checkpoint when training ends.
        state: "full" (weights, optimizer, seeds) or "weights".
        extra: a mapping of names to Keras's own callbacks (``EarlyStopping``, ``ReduceLROnPlateau``, ``LearningRateScheduler``,
            ``ModelCheckpoint``, ``CSVLogger``, ``TensorBoard``), and to objects with ``state_dict()`` (or ``state_at(step)``) and
            ``load_state_dict()``. Each rank saves them for itself. A ``load_state_dict(states_of_all_ranks, rank, world)`` gets the
            states of all ranks.
        rng: "all": also save the states of Python's, numpy's, TensorFlow's and Keras's global random number generators, and
            TensorFlow's seed (``tf.random.set_seed``). They are restored by ``open``, or when ``fit`` begins if you don't call
            ``open``. The order of ``fit(shuffle=True)`` follows from TensorFlow's seed: call ``open`` before ``fit`` then.
        data: the training data, if they know which of their samples were trained: a ``deepfreeze.data.Resumable`` that is given to
            ``fit`` too. ``fit`` goes on inside of the interrupted epoch then, after a call of ``open`` too, with the next batch of the
            epoch's order, the batch number, the running means and the history of the epochs before. Another ``initial_epoch`` than
            the interrupted one prevents it.
        resume_epochs: True: a ``fit`` that goes on from a checkpoint does not repeat the epochs that are finished, and trains as many
            batches in all as it was asked for. False, after a call of ``open``, with ``initial_epoch``, and where the batches per epoch
            are unknown or not those of the checkpoint: it trains all epochs, from the restored step on.
        metadata: facts of your own, such as ``{"git": "3f2c1ab", "note": "a lower rate"}``, stored with each checkpoint (rank 0's): a
            mapping of names to JSON values. Keras's logs of the last epoch that has ended are stored without being asked for.
        optimizer: the optimizer whose updates are the steps, for a model with several; by default the one given to ``compile``.
        save_config: True: the model's configuration (some kB) is stored with the run before the first checkpoint, so that ``export`` can
            write a ``.keras`` file. A model that Keras can't describe as JSON is trained and saved all the same. False: it is not stored.
        signals: a list of signals, by name or by number. One of them to any rank makes all ranks commit the current step and ends ``fit``,
            and ``stats.stopped`` is its name then. When it comes again it does what it did before. []: no signal does.
        ends_at: the time at which the job will be ended, in Unix seconds (float). Before it all ranks commit the current step and ``fit``
            ends: so early that one and a half times the longest commit so far and two steps still fit. ``stats.stopped`` is "ends_at" then.
            "auto": what the variable DEEPFREEZE_ENDS_AT says, else SLURM (SLURM_JOB_END_TIME) or Flux (``flux job timeleft``); rank 0
            asks. None: no end is known.
        verbose: 1: rank 0 says in one line where training begins and in one what was saved, and shows a progress line while the end of
            training waits for the last commit; all on standard error. ``Capture(profile=True)`` adds a line about the step's plan. 0: says
            nothing.
        logs: True: each epoch's ``logs``, and so Keras's progress bar and ``history``, have three more figures:
            ``deepfreeze_checkpoints`` (captured in the epoch), ``deepfreeze_blocking`` (seconds that they held up training in the
            callback) and ``deepfreeze_committed`` (the newest committed step, 0 if there is none); and ``deepfreeze_interval`` with a
            policy that learns an interval. False: ``logs`` stay as Keras makes them.
        timeout: a wait ends when nothing has moved for so many seconds, on this rank and on each rank that it waits for.
        engine: how each rank's engine works: ``deepfreeze.Engine``.
        replicas: how the ranks' weights are compared: ``deepfreeze.Replicas``.
        capture: how the state is captured: ``deepfreeze.Capture``.
        listeners: functions that are called with each event of the training (``deepfreeze.events``), or objects with a method
            ``on(event)``. Each has a thread of its own, which is not training's; an exception of theirs is one warning.
        world: an mpi4py communicator in place of Horovod's ranks; "alone": this process trains a model of its own, whatever launched it.

    Raises ``OptionError`` here. ``RunError``, ``LockedError``, ``NotFoundError``, ``UnsupportedError``, ``StructureError``,
    ``CorruptError`` or ``WorldError`` when training begins. While it goes on: ``EngineError`` or ``WaitError``; ``UnsupportedError`` if a
    callback has the model trained by another optimizer, or has changed the variables that are trained; ``RunError`` if a callback sets the
    count of steps back, or if another training of this process has taken the run. After any of them every committed checkpoint is still
    there.
    """

    def __init__(
        self,
        run: str | os.PathLike | Callable[[], str | os.PathLike],
        every: int | str | Policy = 15,
        *,
        resume: str = "auto",
        keep: int | Wants = 2,
        keep_pending: int = 4,
        storage: int | str | None = None,
        memory: int | str | None = None,
        wait_for: str = "captured",
        local: str | os.PathLike | None = "auto",
        on_error: str = "raise",
        final: bool = True,
        state: str = "full",
        extra: Mapping[str, Any] | None = None,
        rng: str | None = None,
        data: Any = None,
        resume_epochs: bool = True,
        metadata: Mapping[str, Any] | None = None,
        optimizer: Any = None,
        save_config: bool = True,
        signals: Sequence[Any] = ("SIGTERM",),
        ends_at: float | str | None = "auto",
        verbose: int = 1,
        logs: bool = False,
        timeout: float = 600.0,
        engine: Engine = Engine(),
        replicas: Replicas = Replicas(),
        capture: Capture = Capture(),
        listeners: Sequence[Any] = (),
        world: Any = None,
        **unknown: NoReturn,
    ) -> None:
        options = Options.of(
            resume=resume,
            keep=keep,
            keep_pending=keep_pending,
            storage=storage,
            memory=memory,
            wait_for=wait_for,
            local=local,
            on_error=on_error,
            final=final,
            state=state,
            extra=extra,
            rng=rng,
            data=data,
            resume_epochs=resume_epochs,
            metadata=metadata,
            optimizer=optimizer,
            save_config=save_config,
            signals=signals,
            ends_at=ends_at,
            verbose=verbose,
            logs=logs,
            timeout=timeout,
            engine=engine,
            replicas=replicas,
            capture=capture,
            listeners=listeners,
            world=world,
            **unknown,
        )
        super().__init__()
        self._run = RunPath.of(run)
        self._every, self._options = every, options
        self._used = False  # a ``fit``, or ``open``, has begun
        self._first_trace: TraceWait | None = None
        policy = chosen_policy(every, options.signals)
        self._logs: KerasLogs | None = None
        if options.logs:
            self._logs = KerasLogs(learns=any(isinstance(part, PlannedPolicy) for part in parts(policy)))
        self._position: FitPosition | None = None
        self._epoch: int | None = None  # which has begun in this ``fit``
        self._beginning: FitBeginning | None = None
        self._training = Training(self._run, policy, options, listener=self._logs)
        self._training.hold.by_callback(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Checkpoint:
        """A callback with the same options, for a training of its own, as tools make one for each of their trials. ``every``, ``extra`` and
        ``data`` are copied, each object once in all that is copied together; the other options are the same objects. A function as ``run``
        is asked anew when the copy begins. ``OptionError`` at the second copy of a callback whose ``run`` is a path, and after ``open``
        or ``fit``."""
        if self._used:
            raise OptionError(
                where="copy.deepcopy(Checkpoint)",
                expected="a Checkpoint that has trained nothing yet",
                found="one that has opened its run",
                todo="copy it before fit() and open(), or make a new deepfreeze.Checkpoint(...) for the other training",
            )
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        every, extra, data = (
            copy.deepcopy(one, memo) for one in (self._every, self._options.extra, self._options.data)
        )
        options = {**vars(self._options), "extra": extra, "data": data}
        Checkpoint.__init__(made, self._run.copy(), every, **options)  # type: ignore[arg-type]  # a run is taken as it is
        made._training.warn_at_begin(self._training.warning)
        for name in vars(self).keys() - vars(made).keys():  # a subclass's own
            vars(made)[name] = copy.deepcopy(vars(self)[name], memo)
        return made

    @classmethod
    def from_candle(
        cls,
        params: Mapping[str, Any],
        run: str | os.PathLike | Callable[[], str | os.PathLike] | None = None,
        steps_per_epoch: int | None = None,
        **more: Any,
    ) -> Checkpoint:
        """The callback that CANDLE's checkpoint parameters describe: ``Checkpoint.from_candle(gParameters)``. Parameters whose names begin
        with ``ckpt_`` and that have no counterpart are named in one warning, when training begins. The guide's page "Coming from ..." has
        all of them.

        Args:
            params: the mapping of names to values that a CANDLE program has, with ``ckpt_restart_mode``, ``ckpt_save_interval`` and so
                on. A missing one, or None, has CANDLE's default: each epoch is saved, all checkpoints stay.
            run: the run directory; by default ``ckpt_directory``, in ``output_dir`` if that is given.
            steps_per_epoch: the optimizer steps of one epoch, for a program whose ``fit`` has other epochs than those of the parameters,
                or data of unknown size. By default ``fit`` says where epochs end.
            more: options of ``Checkpoint``. They take the place of those that follow from ``params``.

        Raises ``OptionError`` for a value that a parameter can't have, and as the class does."""
        found = translated(params, steps_per_epoch)
        given: dict[str, Any] = {"run": found.run if run is None else run, **found.options, **more}
        checkpoint = cls(**given)
        if found.left_out:
            checkpoint._training.warn_at_begin(
                f"parameters of CANDLE that change nothing, because DeepFreeze has no counterpart: {', '.join(found.left_out)}. "
                'The guide\'s page "Coming from ..." has those that do'
            )
        return checkpoint

    @property
    def stats(self) -> Stats:
        """Figures of what the callback has done so far on this rank."""
        return self._training.stats

    def open(self, model: Any) -> int:
        """Takes the run's lock, commits or clears the checkpoints that a dead job left unfinished, and restores ``model``. Returns the
        step to go on from (0 in a fresh run). To be called by every rank. ``fit`` calls it if you don't. Call it yourself to begin the
        input at the right batch. A model that is not compiled yet gets its weights now, and the rest when ``fit`` begins; so
        does a model whose own ``train_step`` builds its optimizers then.

        A model that this callback has trained before keeps its values. ``RunError`` if another job has committed a newer checkpoint
        meanwhile. Raises what the class raises when training begins."""
        self._used = True
        return self._training.open(model)

    def set_model(self, model: Any) -> None:
        """Prepares a ``fit``. Keras calls ``on_train_begin`` of all callbacks later. It calls this method for ``evaluate`` and ``predict``
        too, which need nothing."""
        super().set_model(model)
        if variables_of_fit(model):
            self._used = True
            self._training.fit_is_prepared()

    def on_train_begin(self, logs: Any = None) -> None:
        """Opens the run, and puts the captures into the train function before Keras traces it. For a model that is not built yet both are
        done while Keras traces its first batch, before the first step. So they are for a model whose own ``train_step`` builds its
        optimizers."""
        model, framework = self.model, table.of(self.model, "deepfreeze.Checkpoint")
        against = framework.against_graph(model)
        self._beginning = FitBeginning(model)
        self._first_trace = self._position = self._epoch = None
        fit = self._fit()
        self._training.prepare_input(model, fit.batches)
        if framework.begins_with_trace(model):
            first = self._training.prepare(model, fit)
            if fit.begun is None:
                if first > 0:
                    self._beginning.choose(first)
                fit = replace(fit, begun=first, late=True)
            self._first_trace = framework.first_trace(model)
            self._first_trace.then(self, lambda: self._begin(against, fit))
        else:
            self._begin(against, fit)
            if self._position is not None and self._position.going_on is not None:
                self._beginning.choose(self._position.going_on.epoch, self._position.going_on.batch)

    def _begin(self, against: str, fit: Fit) -> None:
        self._position = self._training.begin(self.model, against, steps_per_execution(self.model), fit)
        if self._position is not None and self._epoch is not None:
            self._begin_epoch(self._epoch, first=True)  # it has begun before
        if self._first_trace is not None and self._finished:
            self._first_trace.leave_steps_out()

    @property
    def _finished(self) -> bool:
        """Whether nothing is left to train. Keras calls the hooks of one epoch all the same if the model was not built before."""
        return self._position is not None and self._position.finished

    def _fit(self) -> Fit:
        """The arguments of the ``fit`` that begins."""
        batches = self.params.get("steps")
        beginning = self._beginning
        assert beginning is not None
        return Fit(
            epochs=int(self.params.get("epochs") or 0),
            batches=None if batches is None else int(batches),
            begins_at=fits_initial_epoch(self.model),
            begun=None if beginning.movable else 0,
            inside=beginning.inside,
        )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Counts the epoch. All callbacks have seen the end of the epoch before, so its last step is handed over now if it was held."""
        self._put_back()
        first, self._epoch = self._epoch is None, epoch
        if self._position is not None:
            self._begin_epoch(epoch, first)

    def _begin_epoch(self, epoch: int, first: bool) -> None:
        assert self._position is not None
        if not self._finished:
            self._training.epoch_begins(epoch, first)
        self._position.epoch_begin(epoch)
        self._training.put_epoch_back()

    def _put_back(self) -> None:
        """Keras has read the epoch to begin with. The next ``fit`` must not."""
        beginning, self._beginning = self._beginning, None
        if beginning is not None:
            beginning.put_back()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Hands the capture of the last execution to the engine, if there is one. Ends ``fit`` after a signal, and a ``fit`` that goes on
        from a checkpoint when it has trained as many batches as it was asked for."""
        if self._first_trace is not None:
            self._first_trace.executed()
        if self._finished:
            return
        position = self._position
        if position is not None:
            position.train_batch_end(batch)
        if not self._training.executed() or (position is not None and position.is_over):
            self.model.stop_training = True

    def on_test_begin(self, logs: Any = None) -> None:
        """Called by Keras."""
        self._training.pauses()  # a validation may take minutes

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves the last step after the last epoch: other callbacks may then replace the weights, by averages or by the best
        ones of the training."""
        if self._finished:
            return
        self._training.epoch_ended()
        self._training.measured(logs or {}, epoch=epoch + 1)
        if self._logs is not None and isinstance(logs, dict):
            self._training.flush_events()
            self._logs.enter(logs)
        if epoch + 1 == self.params.get("epochs") or self.model.stop_training:
            self._training.save_last()

    def on_train_end(self, logs: Any = None) -> None:
        """Saves the last step if it is not saved yet, waits until every checkpoint is committed or failed, and gives the run's lock and the
        engine's memory back. The captures stay in the model's train function for its next ``fit``; ``close`` takes them out."""
        self._forget_first_trace()
        self._put_back()
        if self._finished:
            self._training.put_epoch_back()
        self._training.fit_ends(self._position)
        self._training.end()

    def close(self) -> None:
        """Stops the engine, gives the run's lock back and takes the captures out of the model. Checkpoints in flight get some seconds to be
        committed. Safe to call twice."""
        self._forget_first_trace()
        self._put_back()
        self._training.close()

    def _forget_first_trace(self) -> None:
        """After a ``fit`` that has ended before its first batch."""
        first_trace, self._first_trace = self._first_trace, None
        if first_trace is not None:
            first_trace.forget(self)
