"""Where in its data a training stands (``data=``): attachments of each checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from deepfreeze.errors import OptionError, UnsupportedError
from deepfreeze.format.attachment_tree import DATA, EPOCH
from deepfreeze.format.position import Position
from deepfreeze.frameworks import table
from deepfreeze.notices import Notify
from deepfreeze.plan.epochs import Fit, GoingOn
from deepfreeze.plan.fit_position import FitPosition
from deepfreeze.ranks.world import World, each, on_rank_0
from deepfreeze.state.epoch_under_way import EpochUnderWay
from deepfreeze.state.private_api import variables_of_fit
from deepfreeze.training import attempt_lines
from deepfreeze.training.input import Input


class InputPosition:
    """The position of one callback, or of one loop, in its data, and in the epoch that Keras is in. Without data nothing is known, and the
    methods do nothing. The training thread calls all methods.

    The order of the calls for a ``fit``: ``prepare``; ``load_state_dict`` and ``epochs_further`` if a checkpoint is restored;
    ``begin_fit``; ``put_epoch_back`` when each epoch has begun. ``attachments``: what each checkpoint keeps of it, by name."""

    def __init__(self, data: Input | None, loop: bool) -> None:
        """``data``: the option of this name; ``loop``: the training is a hand-written loop, which has no metrics and no history."""
        self.data, self._counted = data, not loop
        self._epoch_under_way = EpochUnderWay()
        self._fit: FitPosition | None = None  # of the ``fit`` under way, None in a loop
        self._ahead = 0  # how many epochs the data have had before the first epoch of the ``fit``
        # The epoch with which the ``fit`` has begun, as Keras counts, and how many of its batches were trained before.
        self._first = (0, 0)
        # The state in the checkpoint that was restored, and where the data are then: see ``_place``.
        self._loaded: tuple[Mapping[str, Any], tuple[int, int, bool]] | None = None
        self.attachments: dict[str, Any] = {} if data is None else {DATA: self}
        if data is not None and not loop:
            self.attachments[EPOCH] = self._epoch_under_way

    def same_on_all_ranks(self) -> str:
        """What the ranks' data must have in common, as text."""
        return "None" if self.data is None else repr(self.data.same_on_all_ranks())

    def prepare(self, model: Any, batches: int | None, world: World) -> None:
        """Collective. To be called when a ``fit`` of ``model`` begins whose epochs have so many ``batches`` (None: Keras does not know).
        Builds the model and its optimizers, if the first batch would do so. ``OptionError`` unless the ``fit`` is one of the data on
        these ranks."""
        if self.data is None:
            return
        data = self.data

        def check() -> None:
            _require_fit_of(data, model, batches)
            _require_ranks(data, world)
            framework = table.of(model)
            if framework.begins_with_trace(model):
                framework.build_by(model, data.shapes())

        each(world, check)

    def state_dict(self) -> dict[str, Any]:
        """The state of the data where the training stands now."""
        assert self.data is not None
        if self._fit is None:
            return {"began": self.data.next_epoch, **self.data.state()}
        now, (first, before) = self._fit.at(0, 1), self._first
        epoch, batches = self._ahead + now.epoch, now.batch - (before if now.epoch == first else 0)
        return {"began": epoch, **self.data.state_at(epoch, batches)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the data go on from the ``state`` in the checkpoint that is restored."""
        assert self.data is not None
        self.data.set_state(state, counted=self._counted)
        self._loaded = state, _place(self.data)

    def states(self) -> dict[str, Any]:
        """The states of ``attachments``, by name."""
        return {name: thing.state_dict() for name, thing in self.attachments.items()}

    def load_states(self, states: Mapping[str, Any]) -> None:
        """Has the data, and the epoch, go on from what ``states`` has returned."""
        for name, thing in self.attachments.items():
            thing.load_state_dict(states[name])

    def lacks_epoch(self, position: Position) -> bool:
        """Whether the data go on with the epoch after that of ``position``, and the history of the loaded state lacks the latter."""
        loaded = self._epoch_under_way.loaded
        return bool(self.epochs_further()) and loaded is not None and position.epoch not in loaded["epochs"]

    def cuts_short(self, position: Position) -> bool:
        """Whether this job leaves out what is left of the epoch of ``position``, because it fills no batch of its own."""
        return position.batch != position.batches and self.lacks_epoch(position)

    def epochs_further(self) -> int | None:
        """How many epochs the data are further than the epoch in which the checkpoint was saved that has just been restored: 1 if it was
        saved at the end of the epoch. None if it has no state of the data."""
        if self._loaded is None:
            return None
        state, (epoch, _, _) = self._loaded
        return epoch - int(state["began"])

    @property
    def inside(self) -> tuple[int, bool]:
        """How many batches of the epoch that goes on, and whether any items of it, were trained before the checkpoint that was restored;
        (0, False) if none was."""
        return (0, False) if self._loaded is None else self._loaded[1][1:]

    def forget(self) -> None:
        """No checkpoint is restored, or another one will be."""
        self._loaded = None

    def begin_fit(self, model: Any, fit: Fit, position: FitPosition, ended: bool, world: World, notify: Notify) -> None:
        """Collective. The ``fit`` of ``model`` begins at ``position``. ``ended``: an earlier ``fit`` of this process has trained the data,
        which then go on with their next epoch. Prepares what Keras keeps of an epoch that goes on: a model whose first step would make
        its metrics has them after this call, unless its step can't be traced before. ``notify``: is told if these are another rank's."""
        self._fit, plan = position, position.going_on
        if self.data is not None:
            self._begin_epoch(model, plan, world, notify)
        if self.data is not None and (plan is None or not plan.finished):
            self._begin_data(self.data, fit, plan, ended, world)

    def _begin_data(self, data: Input, fit: Fit, plan: GoingOn | None, ended: bool, world: World) -> None:
        epoch = (fit.begins_at or 0) if plan is None else plan.epoch
        if plan is not None and plan.exact and self._loaded is not None:
            state, place = self._loaded
            first = place[0]
            if not plan.begun:
                data.begin(first)
            else:
                # The program may have looked at the data since they were restored, which has begun another epoch.
                moved = _place(data) != place
                each(world, lambda: data.set_state(state, counted=True) if moved else None)
        else:
            first = data.next_epoch if plan is None and ended and not fit.begins_at else epoch
            data.begin(first)
        self._ahead = first - epoch
        self._first = (epoch, 0 if plan is None else plan.batch)

    def _begin_epoch(self, model: Any, plan: GoingOn | None, world: World, notify: Notify) -> None:
        under_way, data = self._epoch_under_way, self.data
        under_way.begin(model, world.size)
        if plan is None or not plan.exact:
            under_way.loaded = None
        elif under_way.loaded is not None and under_way.loaded["ranks"] != world.size:
            if plan.begun and world.rank == 0:
                notify("info", attempt_lines.metrics_of_rank_0(plan, under_way.loaded["ranks"], world.size))
            under_way.loaded = on_rank_0(world, lambda: under_way.loaded)

        def build() -> None:
            if data is not None and not under_way.fits:
                with contextlib.suppress(UnsupportedError):  # ``put_epoch_back`` says that the metrics begin anew
                    table.of(model).build_by(model, data.shapes())

        if plan is not None and plan.begun:
            each(world, build)

    def put_epoch_back(self) -> bool:
        """To be called when an epoch of the ``fit`` has begun, and Keras has reset its metrics; or at the end of a ``fit`` that had nothing
        to train. Puts back what Keras keeps of the epochs before. Returns False if the metrics are not those of the checkpoint: the logs
        of the epoch that goes on are of its rest alone."""
        plan = None if self._fit is None else self._fit.going_on
        return self._epoch_under_way.put_back(plan is not None and plan.begun)

    def begin_loop(self) -> None:
        """A hand-written loop begins, which calls ``trained``."""
        if self.data is not None:
            self._fit = None
            self.data.begin_loop()

    def trained(self, batches: int) -> None:
        """A loop has trained so many ``batches`` more."""
        if self.data is not None:
            self.data.advance(batches)


def _place(data: Input) -> tuple[int, int, bool]:
    """The epoch that the ``data`` go on with, how many of its batches are trained, and whether any of its items are."""
    return data.next_epoch, data.batches_done, data.begun


def _require_fit_of(data: Input, model: Any, batches: int | None) -> None:
    given = next((variables["x"] for variables in variables_of_fit(model) if "x" in variables), data)
    if given is not data or batches != data.batches_in_epoch:
        raise OptionError(
            where="data=",
            expected=f"a fit of these data, whose epochs have {data.batches_in_epoch} batches on this rank",
            found=f"a fit of a {type(given).__name__}"
            if given is not data
            else f"a fit whose epochs have {batches} batches",
            todo="pass the same object to fit, leave steps_per_epoch= out, and leave it to Checkpoint where in an epoch the data begin",
        )


def _require_ranks(data: Input, world: World) -> None:
    ranks = getattr(data, "ranks", world.size)
    if ranks != world.size:
        raise OptionError(
            where="data=",
            expected=f"data that are dealt to the {world.size} ranks that train",
            found=f"data that are dealt to {ranks}",
            todo="call hvd.init() before, or pass the input rank= and ranks= of the communicator in world=",
        )
