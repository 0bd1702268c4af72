"""The training of a model with checkpoints, as the Keras callback and the hand-written loop use it.

``Training`` calls three modules, in this order: ``start`` takes the run and restores the model, ``installation`` puts the captures
into the model, ``session`` saves.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from deepfreeze.errors import Error
from deepfreeze.events.events import Events, Listener
from deepfreeze.events.messages import Messages
from deepfreeze.events.stats import Newest, Stats
from deepfreeze.frameworks import table as frameworks
from deepfreeze.frameworks.framework import StepCounter
from deepfreeze.frameworks.generators import ModelGenerators
from deepfreeze.freeze.described import Described
from deepfreeze.notices import unheard
from deepfreeze.plan.epochs import Fit
from deepfreeze.plan.fit_position import FitPosition
from deepfreeze.plan.policy import Policy, signals
from deepfreeze.ranks import world as worlds
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.ranks.same_model import require_same_model, require_same_options
from deepfreeze.ranks.wait import Patience
from deepfreeze.ranks.world import World
from deepfreeze.retention.keeper import Keeper
from deepfreeze.retention.storage import Storage
from deepfreeze.state.attachments import Attachments
from deepfreeze.state.training_state import TrainingState
from deepfreeze.training import advice, attempt_events, other_models
from deepfreeze.training.begun import Begun, Fitting
from deepfreeze.training.counted_model import CountedModel
from deepfreeze.training.epoch_callbacks import EpochCallbacks
from deepfreeze.training.fits import Fits
from deepfreeze.training.hold import Hold
from deepfreeze.training.input_position import InputPosition
from deepfreeze.training.installation import Installation
from deepfreeze.training.installing import install
from deepfreeze.training.interrupted import InterruptedFit
from deepfreeze.training.job_ends import JobEnds
from deepfreeze.training.model_values import ModelValues
from deepfreeze.training.open_run import OpenRun
from deepfreeze.training.options import Options
from deepfreeze.training.parts import table
from deepfreeze.training.parts.rehearsal import rehearsed
from deepfreeze.training.parts.table import Lasting
from deepfreeze.training.prepared import prepared, waits_for_fit
from deepfreeze.training.replica_checks import LastChecks
from deepfreeze.training.run_path import RunPath
from deepfreeze.training.session import Session
from deepfreeze.training.start import Start


class Training:
    """The trainings of one callback, or of one loop. Every rank calls the methods in the same order, from the thread that trains.

    How it is used: ``open`` restores the model. Then come, for each ``fit`` or loop, ``begin``, ``executed`` after every execution of the
    train function, and ``end``. ``close`` may be called at any time; a later ``open`` or ``begin`` opens the run again.

    ``end`` gives back the run's lock, the engine and its memory. The captures stay in the model's train function until ``close``, so that
    another ``fit`` of the model is not traced again. If a method raises, the training is closed. ``stats``: what was done so far.
    """

    def __init__(
        self,
        run: RunPath,
        policy: Policy,
        options: Options,
        who: str = "deepfreeze.Checkpoint",
        listener: Listener | None = None,
        loop: bool = False,
    ) -> None:
        """``run``: where the run is; ``who``: the name of the function that the user has called, for messages; ``listener``: is told of
        every event at once, on the training thread; ``loop``: the training is a hand-written loop, which has no epochs."""
        self._who = who
        policy, options, rehearsal = rehearsed(run, policy, options)
        self._run, self._policy, self._options, self._loop = run, policy, options, loop
        self._last_signals = [getattr(signal.Signals, name) for name in options.signals]
        self._input = InputPosition(options.data, loop)
        self._generators = ModelGenerators() if options.rng == "all" else None
        self._attachments = Attachments({**(options.extra or {}), **self._input.attachments}, self._generators)
        self._open_run: OpenRun | None = None
        self._counted: CountedModel | None = None  # the model for which the run is open
        self._session: Session | None = None
        self._finalizer: weakref.finalize | None = None
        self._trained: Callable[[], Any] = lambda: None
        self._installation: Callable[[], Installation | None] = lambda: None  # a weak reference: the model owns it
        self._history: frozenset[str] = frozenset()  # ids of the attempts that the model's values come from
        self._saved: Newest[int] = Newest()  # the saved steps of the model that was trained last
        self._fits = Fits(options.resume_epochs, self._input)
        self._interrupted = InterruptedFit(self._input, self._attachments.callbacks)
        self._callbacks = EpochCallbacks(self._attachments.callbacks, self._fits, options.keep)
        self._stats, keeper = Stats(), Keeper(options.keep, options.keep_pending, loop)
        described, job_ends = Described(options.metadata, options.data), JobEnds(options.ends_at)
        self._lasting = Lasting(
            keeper, described, self._attachments, job_ends, LastChecks(), self._interrupted, rehearsal
        )
        self.warning = ""
        self.hold = Hold(who, self._give_way)
        at_once: list[Listener] = [self._stats, Messages(), keeper, *([listener] if listener is not None else [])]
        self._events = Events(at_once, options.listeners)

    def warn_at_begin(self, message: str) -> None:
        """Has rank 0 warn of ``message``, once, when the run is opened."""
        self.warning = message

    def open(self, model: Any) -> int:
        """Takes the run's lock, commits or clears the checkpoints that a dead job left unfinished, and restores ``model``. Returns the
        step to go on from (0 in a fresh run). A model that was trained here before keeps its values, and so does a model that was
        opened here and has made steps since. Raises ``OptionError``, ``UnsupportedError`` and the errors of ``Start.begin``."""
        self._fits.leave_to_program()
        self._open(model)
        return self._opened[0].attempt.step

    def prepare(self, model: Any, fit: Fit) -> int:
        """Collective. To be called before ``begin`` for a ``model`` that is not built yet. Returns the epoch with which ``fit`` will
        probably go on. ``UnsupportedError`` if the training can't be captured when the model is built."""
        world = self._world()
        refuse = frameworks.of(model, self._who).refuse
        worlds.each(world, lambda: refuse(model, self._optimizer(model), world.in_graph, self._who, built=False))
        return self._fits.foresee(self._run.path, fit, world) if self._options.resume != "off" else 0

    def fit_is_prepared(self) -> None:
        """To be called when a ``fit`` has been given its callbacks, before ``on_train_begin`` of any of them, which sets back what the
        checkpoint of an interrupted ``fit`` still lacks. So that ``fit`` is closed now."""
        self._end_interrupted()
        self._callbacks.fit_is_prepared()

    def prepare_input(self, model: Any, batches: int | None) -> None:
        """Collective. See ``InputPosition.prepare``. To be called before ``prepare`` and ``begin``."""
        if self._options.data is not None:
            self._input.prepare(model, batches, self._world())

    def begin(
        self, model: Any, against: str = "", steps_per_execution: int = 1, fit: Fit | None = None
    ) -> FitPosition | None:
        """Opens the run if it is not open, and prepares captures. ``against``: the reason why captures are taken between two executions and
        not in the train function, "" for none. ``steps_per_execution``: how many batches one execution runs; ``fit``: the ``fit`` that
        begins, None if it is a loop. Returns the position of the ``fit``, for the caller to keep up. Raises what ``open`` raises."""
        # Attachments are read by Python, between two executions. So the graph may capture only if an execution is one step.
        if not against and steps_per_execution > 1 and self._attachments:
            against = "data=, extra= and rng= are read between two executions"
        in_graph = not against
        self._end_interrupted()
        state = self._open(model, fit)
        open_run, counted = self._opened
        open_run.begun = True
        self.hold.begin(open_run.attempt.target.run)
        world = open_run.attempt.world
        with self._closing_on_error():
            position = self._begin_input(open_run, model, fit)
            if in_graph and world.in_graph:
                require_same_model(world, state.description(), named=True)
                advice.warn_of_no_average(world, model, self._optimizer(model), self._events.notify)
            self._trained = weakref.ref(model)
            agreement = Agreement(world, self._last_signals, self._events.notify, signals(self._policy))
            open_run.closing.callback(agreement.close)
            storage = Storage(self._options.storage, agreement, world, self._lasting.keeper, self._events)
            fitting = Fitting(model, counted, position, against, steps_per_execution)
            begun = Begun(open_run, agreement, self._policy, fitting, self._options, self._events, storage)
            parts = table.make(begun, self._lasting)
            notice = functools.partial(self._events.notify if world.rank == 0 else unheard, "info")
            installation = install(
                open_run,
                state,
                agreement.seal(),
                in_graph,
                self._options,
                self._optimizer(model),
                notice=notice,
                keep=lambda made: self._keep_installation(open_run, made),
            )
            agreement.connect(installation.maximum)
            if against:
                notice(f"captures are taken between two executions of the training: {against}")
            self._session = Session(begun, installation, parts, self._attachments, self._saved)
            self._callbacks.begin(open_run, model, position, self._events.notify)
        return position

    def _begin_input(self, open_run: OpenRun, model: Any, fit: Fit | None) -> FitPosition | None:
        """Collective. Begins the position in the ``fit``, and in the data of a ``fit`` or a loop."""
        position = None
        if fit is None:
            self._input.begin_loop()
        else:
            position = self._fits.begin(fit, open_run.attempt, self._events.notify, self._callbacks.has_stopped)
            self._input.begin_fit(model, fit, position, self._fits.ended, open_run.attempt.world, self._events.notify)
        self._lasting.described.begin(position)
        return position

    def put_epoch_back(self) -> None:
        """See ``InputPosition.put_epoch_back``."""
        if self._fits.ahead:
            return  # what the checkpoint has of an epoch is of a later ``fit``
        if not self._input.put_epoch_back():
            message = "the logs of the epoch that goes on are of its rest alone: the model has other metrics than the checkpoint"
            self._events.notify("warning", message)

    @property
    def stats(self) -> Stats:
        """What was done so far, up to this call."""
        self._events.flush()
        return self._stats

    def flush_events(self) -> None:
        """Tells the listeners of everything that has happened so far."""
        self._events.flush()

    @property
    def underway(self) -> bool:
        """Whether a training has begun that was neither ended nor closed."""
        return self._session is not None

    def trained(self, batches: int) -> None:
        """A loop has trained so many ``batches`` of its data. To be called before ``executed``."""
        self._input.trained(batches)

    def executed(self) -> bool:
        """Hands the capture of the last execution to the engine, if there is one. Returns False if training should end now: a signal came,
        or the job's end is near, and the step is committed. After ``close`` it does nothing and returns True."""
        try:  # as ``_closing_on_error``, which costs more
            if self._session is None:
                self.hold.require()
                return True
            return self._session.executed()
        except BaseException as error:
            self._close_after(error)
            raise

    def epoch_begins(self, epoch: int, first: bool) -> None:
        """To be called when an epoch begins that has something to train. ``epoch``: its number, from 0; ``first``: whether it is the first
        one of this ``fit``. Does nothing when no training is open."""
        if self._session is not None:
            with self._closing_on_error():
                if first:
                    self._callbacks.epochs_begin(epoch)
                else:
                    self._session.callbacks_have_ended_epoch()

    def epoch_ended(self) -> None:
        """See ``Session.epoch_ended``. Does nothing when no training is open."""
        if self._session is not None:
            with self._closing_on_error():
                self._session.epoch_ended()

    def pauses(self) -> None:
        """See ``Session.pauses``. Does nothing when no training is open."""
        if self._session is not None:
            with self._closing_on_error():
                self._session.pauses()

    def measured(self, values: Mapping[str, Any], step: int | None = None, epoch: int | None = None) -> None:
        """See ``Session.measured``. Does nothing when no training is open."""
        if self._session is not None:
            with self._closing_on_error():
                self._session.measured(values, step, epoch)

    def save_last(self) -> None:
        """See ``Session.save_last``. Does nothing when no training is open."""
        if self._session is not None:
            with self._closing_on_error():
                self._session.save_last()

    def fit_ends(self, position: FitPosition | None) -> None:
        """To be called before ``end``, when a ``fit`` is over. ``position``: of the ``fit``."""
        self._callbacks.fit_ends(position)

    def end(self) -> None:
        """Saves the last step, waits until every checkpoint is committed or failed, and gives back the run's lock and the engine's
        memory. Raises ``EngineError``, ``WaitError``."""
        with self._closing_on_error():
            if self._session is not None and self._open_run is not None:
                self._session.end()
                self._open_run.finished = True
                if not self._session.stopped:
                    self._fits.end()
                    other_models.ended(self._open_run.attempt.target.run_id, self._trained())
            self._give_back()

    def close(self) -> None:
        """Stops the engine, gives the run's lock back, and takes the captures out of the model, unless another training uses them by
        now. Safe to call twice."""
        installation, self._installation = self._installation(), lambda: None
        self._lasting.checks.forget()

        def take_out() -> None:
            if installation is not None and not installation.in_use:
                installation.close()

        with contextlib.ExitStack() as closing:
            closing.callback(self._callbacks.closed)
            closing.callback(take_out)
            closing.callback(self._give_back)

    def _end_interrupted(self) -> None:
        """Closes the run of a training that was interrupted before its ``end``."""
        if self._session is not None:
            self._give_back()

    def _give_way(self) -> None:
        """Closes the run, because another training of this process begins there. The captures stay in the model, as after ``end``."""
        try:
            self._give_back()
        finally:
            self._callbacks.closed()

    def _give_back(self) -> None:
        """Closes the open run: gives back the engine, its memory and the run's lock."""
        if self._finalizer is not None:
            self._finalizer.detach()
            self.hold.end()
        open_run, self._open_run, self._session, self._finalizer = self._open_run, None, None, None
        self._counted = None
        if open_run is not None:
            with contextlib.closing(open_run):
                self._interrupted.closes(open_run.finished)

    def _open(self, model: Any, fit: Fit | None = None) -> TrainingState:
        """Collective. The run stays open as it is, if it was opened for ``model`` and the model has made no step since on any rank. Else
        opens it in a new attempt, for ``fit``. Returns the model's full training state."""
        before, counted = self._open_run, self._counted
        optimizer = self._optimizer(model)
        same_model = counted is not None and counted.is_of(model)
        waits = fit is None and not self._loop and waits_for_fit(model, optimizer)
        if before is not None and counted is not None:
            completes = counted.waits and not waits
            unchanged = same_model and (completes or counted.stands_at(before.attempt.step, optimizer))
            if all(before.attempt.world.gather(unchanged)):
                if completes:
                    return self._complete(before.attempt, counted, model)
                return TrainingState.of(model, "weights" if counted.waits else "full")
        again = same_model or self._trained() is model
        self._give_back()
        world = self._world()
        advice.warn_of_one_rank(world, self._options.world, self._events.notify)
        data = "None" if self._options.data is None else worlds.each(world, self._input.same_on_all_ranks)
        require_same_options(
            world, {"run": self._run.text, "every": str(self._policy), "data": data, **self._options.shared()}
        )
        run = self._run.agree(world)
        installation = self._installation()
        if self._generators is not None:
            self._generators.take_from(model, self._who)
        trained = installation.capture.state if again and installation is not None else None
        steps, state = worlds.each(
            world, lambda: prepared(model, optimizer, self._who, world.in_graph, trained, waits, self._loop)
        )
        if world.size > 1:
            require_same_model(world, state.description())
        history = self._history if again else None
        beginning = attempt_events.Beginning.now(self._events)
        self.hold.take_over(run, world, self._events, said=self._options.verbose > 0)
        if (rehearsal := self._lasting.rehearsal) is not None:
            worlds.on_rank_0(world, lambda: rehearsal.opens(self._run.own(), self._options.local))
        values = self._values(run, model, steps, world)
        attempt = Start.begin(
            run, values, world, self._events.notify, self._options.resume, self._options.local, history
        )
        self._history = attempt.history
        # Training goes on from an older step if the user has restored it: the steps after it are then trained, and saved, again.
        self._saved = Newest(step for step in self._saved if again and step <= attempt.step)
        self._open_run = OpenRun(attempt)
        self._counted = CountedModel(model, steps, state, attempt.target, self._who)
        self._open_run.closing.callback(self._counted.ended)
        self.hold.begin(run)
        # Keras does not call ``on_train_end`` if an exception ends training. The run is then closed with this object.
        self._finalizer = weakref.finalize(self, self._open_run.close)
        with self._closing_on_error():
            self._fits.opened(attempt, again, self._events.notify)
            self._interrupted.opened(attempt, self._fits, again and self._options.resume != "off", self._events.notify)
            epochs = (
                "" if fit is None else self._fits.choose(fit, attempt, self._events.notify, self._callbacks.has_stopped)
            )
            attempt_events.announce(self._events, beginning, self._open_run, again, self._options, self._stats, epochs)
            if self.warning and world.rank == 0:
                self._events.warn(self.warning, once=self.warning)
            if self._fits.ended and not again:
                other_models.warn(attempt, model, self._events.warn)
        return state

    @property
    def _opened(self) -> tuple[OpenRun, CountedModel]:
        """The run that is open, and its model. To be asked after ``_open``."""
        assert self._open_run is not None and self._counted is not None
        return self._open_run, self._counted

    def _world(self) -> World:
        return worlds.current(self._options.world, Patience(self._who, self._options.timeout, self._events.notify))

    def _complete(self, attempt: Start, counted: CountedModel, model: Any) -> TrainingState:
        """Collective. The model was opened before it was compiled, or before its optimizers were built. Returns its full training state."""
        world = attempt.world
        with self._closing_on_error():
            steps, state = worlds.each(
                world, lambda: prepared(model, self._optimizer(model), self._who, world.in_graph)
            )
            assert steps is not None
            require_same_model(world, state.description())
            self._values(attempt.target.run, model, steps, world).complete(attempt)
            counted.complete(steps, state)
        return state

    def _values(self, run: str, model: Any, steps: StepCounter | None, world: World) -> ModelValues:
        return ModelValues(run, model, steps, self._attachments, world, self._events.notify, self._who)

    def _optimizer(self, model: Any) -> Any:
        """The optimizer whose updates are the steps."""
        return self._options.optimizer or getattr(model, "optimizer", None)

    def _keep_installation(self, open_run: OpenRun, installation: Installation) -> Installation:
        """Notes the installation for ``close``, and lets it rest when the run is closed."""
        self._installation = weakref.ref(installation)
        open_run.closing.callback(installation.rest)
        return installation

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        """Closes the training if the block raises."""
        try:
            yield
        except BaseException as error:
            self._close_after(error)
            raise

    def _close_after(self, error: BaseException) -> None:
        if self._open_run is not None and isinstance(error, Error):
            self._open_run.error = str(error)
        self.close()
