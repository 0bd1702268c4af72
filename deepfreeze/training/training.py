"""One training of one model with checkpoints: what the Keras callback and the hand-written loop have in common. Imports
TensorFlow.

The work is done by the parts below this file, which is their order: ``model_start`` takes the run and restores, ``installation``
captures, ``session`` saves.
"""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from deepfreeze.frameworks.tensorflow import engine_buffers
from deepfreeze.frameworks.tensorflow.capture import Range, TensorFlowCapture
from deepfreeze.frameworks.tensorflow.engine_buffers import EngineBuffers
from deepfreeze.frameworks.tensorflow.generators import ProcessGenerators
from deepfreeze.frameworks.tensorflow.graph_buffers import GraphBuffers
from deepfreeze.frameworks.tensorflow.graph_maximum import TensorFlowMaximum
from deepfreeze.frameworks.tensorflow.refusals import refuse
from deepfreeze.frameworks.tensorflow.steps import Steps
from deepfreeze.freeze import bound_engine
from deepfreeze.plan.placement import PLACEMENTS
from deepfreeze.plan.policy import Policy
from deepfreeze.ranks import world as worlds
from deepfreeze.ranks.same_model import require_same_model, require_same_options
from deepfreeze.ranks.world import World
from deepfreeze.state.attachments import Attachments
from deepfreeze.state.keras_objects import build_optimizer
from deepfreeze.state.training_state import TrainingState
from deepfreeze.store.run import directory
from deepfreeze.training.installation import Installation, Terms
from deepfreeze.training.model_start import Attempt
from deepfreeze.training.open_run import OpenRun
from deepfreeze.training.options import Options
from deepfreeze.training.session import Session, too_often
from deepfreeze.training.stats import Newest, Stats

log = logging.getLogger("deepfreeze")


class Training:
    """``open`` restores; then, for each ``fit`` or loop: ``begin``, ``executed`` after every execution of the train function, ``end``.
    ``close`` at any time.

    ``end`` gives back the run's lock, the engine and its memory. The captures stay in the model's graph until ``close``, so that
    another ``fit`` of the model is not traced again.
    """

    def __init__(self, run: str, policy: Policy, options: Options, who: str = "deepfreeze.Checkpoint") -> None:
        """``who``: the name under which the user called it, for messages."""
        self._who = who
        self._run, self._policy, self._options = run, policy, options
        self._attachments = Attachments(options.extra, ProcessGenerators() if options.rng == "all" else None)
        self._opened: OpenRun | None = None
        self._session: Session | None = None
        self._finalizer: weakref.finalize | None = None
        self._trained: Callable[[], Any] = lambda: None
        self._installation: Callable[[], Installation | None] = lambda: None  # the model's, which owns it
        self._history: frozenset[str] = frozenset()  # attempts that the model's values come from
        self._saved: Newest[int] = Newest()  # steps of the model that was trained last
        self.stats = Stats()

    def open(self, model: Any) -> int:
        """Takes the run's lock, finishes or clears what a dead job left, and restores ``model``. Returns the step to go on
        from (0 in a fresh run). A model that was trained here before, or changed since it was opened, goes on as it is."""
        return self._open(model).attempt.step

    def begin(self, model: Any, in_graph: bool, steps_per_execution: int = 1) -> None:
        """Opens the run and makes ready to capture: in the graph that is traced next, or between two executions."""
        # What lives outside of the graph has a state between two executions only.
        in_graph = in_graph and (steps_per_execution == 1 or not self._attachments)
        if self._session is not None:
            self._give_back()  # the last training was interrupted
        opened = self._open(model)
        world = opened.attempt.world
        with self._closing_on_error():
            if in_graph and world.in_graph:
                require_same_model(world, TrainingState.of(model).description(), named=True)
            self._trained = weakref.ref(model)
            installation = self._install(opened, model, in_graph, steps_per_execution)
            self._session = Session(
                opened, installation, self._policy, self._attachments, self._options, self.stats, self._saved
            )

    def executed(self) -> bool:
        """Hands over what the last execution captured, if it did. Whether training may go on. Nothing after ``close``."""
        with self._closing_on_error():
            return self._session is None or self._session.executed()

    def epoch_ended(self) -> None:
        """Saves a step that was due and that no execution could capture. See ``Session``."""
        if self._session is not None:
            with self._closing_on_error():
                self._session.epoch_ended()

    def keep(self) -> None:
        """Keeps the state as it is for the final checkpoint, whatever happens to the model from now on."""
        if self._session is not None:
            with self._closing_on_error():
                self._session.keep()

    def end(self) -> None:
        """Saves the last step, returns when everything in flight is committed, and gives the run back."""
        with self._closing_on_error():
            if self._session is not None:
                self._session.end()
            self._give_back()

    def close(self) -> None:
        """Stops the engine, gives the run's lock back, and takes the captures out of the model, unless another training uses them by
        now. Safe to call twice."""
        installation, self._installation = self._installation(), lambda: None

        def take_out() -> None:
            if installation is not None and not installation.in_use:
                installation.close()

        with contextlib.ExitStack() as closing:
            closing.callback(take_out)
            closing.callback(self._give_back)

    def _give_back(self) -> None:
        """Gives back the engine, its memory and the run's lock."""
        if self._finalizer is not None:
            self._finalizer.detach()
        opened, self._opened, self._session, self._finalizer = self._opened, None, None, None
        if opened is not None:
            opened.close()

    def _open(self, model: Any) -> OpenRun:
        before = self._opened
        opened = before is not None and before.is_of(model)
        if before is not None:
            unchanged = opened and before.is_as_opened(self._optimizer(model))
            if all(before.attempt.world.gather(unchanged)):
                return before
        again = opened or self._trained() is model
        self._give_back()
        world = worlds.current(self._options.world)
        require_same_options(world, {"run": self._run, "every": str(self._policy), **self._options.shared()})
        steps = worlds.each(world, lambda: self._prepare(model, world.in_graph))
        require_same_model(world, TrainingState.of(model).description())
        history = self._history if again else None
        attempt = Attempt.start(self._run, model, steps, self._attachments, self._options, world, history)
        self._history = attempt.history
        if not again:
            self.stats.resumed = attempt.resumed
        # What is newer belongs to another history: its numbers come again (a new optimizer, an older step restored).
        self._saved = Newest(step for step in self._saved if again and step <= attempt.step)
        self._opened = OpenRun(attempt, model, steps)
        # If training dies of an exception, nobody calls end.
        self._finalizer = weakref.finalize(self, self._opened.close)
        return self._opened

    def _optimizer(self, model: Any) -> Any:
        """The optimizer whose updates are the steps."""
        return self._options.optimizer or getattr(model, "optimizer", None)

    def _prepare(self, model: Any, averages_in_graph: bool) -> Steps:
        optimizer = self._optimizer(model)
        refuse(model, optimizer, averages_in_graph, self._who)
        bound_engine.load()
        if optimizer is getattr(model, "optimizer", None):
            build_optimizer(model)
        return Steps(optimizer)

    def _install(self, opened: OpenRun, model: Any, in_graph: bool, steps_per_execution: int) -> Installation:
        """Collective. The captures that an earlier ``fit`` has left in the model if they serve this one, else new ones."""
        world, options = opened.attempt.world, self._options
        # One path on all ranks: it shows in the graph, which must be the same everywhere.
        against = "asked for" if options.capture == "graph" else engine_buffers.reason_against()
        reasons = [reason for reason in world.gather(against) if reason is not None]
        if reasons:
            log.info("capturing by TensorFlow's own ops: %s", reasons[0])
        terms = Terms(
            in_graph=in_graph,
            own_memory=bool(reasons),
            optimizer=self._optimizer(model),
            state=options.state,
            placement=options.placement,
            rank=world.rank,
            world_size=world.size,
            communicator=options.world,
        )
        if in_graph:
            worlds.each(world, lambda: self._check_executions(opened.steps, steps_per_execution))
        kept = Installation.take(model, terms, world)
        if kept is not None:
            self._hold(opened, kept)
            return kept
        maximum = TensorFlowMaximum(world) if in_graph and world.in_graph else None

        def make() -> Installation:
            emit = _nothing if maximum is None else maximum.emit
            capture = self._capture(model, world, terms, emit if in_graph else None)
            # Held before the other ranks are heard of: if one of them fails, this rank's hooks must go too.
            return self._hold(opened, Installation(terms, capture, maximum))

        return worlds.each(world, make)

    def _hold(self, opened: OpenRun, installation: Installation) -> Installation:
        self._installation = weakref.ref(installation)
        opened.closing.callback(installation.rest)
        return installation

    def _capture(
        self, model: Any, world: World, terms: Terms, every_step: Callable[[], None] | None
    ) -> TensorFlowCapture:
        state = TrainingState.of(model, terms.state)
        placed = state.placed()
        shards = PLACEMENTS[terms.placement]([tensor.spec for tensor in placed], world.size)[world.rank]
        ranges = [Range(placed[s.tensor], s.start, s.stop) for s in shards]
        buffers = GraphBuffers() if terms.own_memory else EngineBuffers()
        return TensorFlowCapture(state, ranges, world.rank, buffers, every_step, terms.optimizer)

    def _check_executions(self, steps: Steps, batches: int) -> None:
        """One execution can capture one step."""
        of_one = -(-batches // steps.batches_per_step)
        first = self._policy.next_step(0)
        if (second := self._policy.next_step(first)) - first < of_one:
            raise too_often(first, second, of_one)

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise


def _nothing() -> None:
    """Adds nothing to the graph: a single rank has nobody to agree with."""


def absolute(run: Any) -> str:
    """The run's path, whatever directory the process changes to. ``OptionError`` if it is none."""
    return os.path.abspath(directory(run))
