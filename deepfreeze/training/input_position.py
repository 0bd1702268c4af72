"""Where in its data a training stands (``data=``): attachments of each checkpoint. Imports TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Protocol

from deepfreeze.errors import OptionError, UnsupportedError
from deepfreeze.format.attachment_tree import DATA, EPOCH
from deepfreeze.frameworks.tensorflow.first_trace import build_by
from deepfreeze.plan.epochs import Fit, GoingOn
from deepfreeze.plan.fit_position import FitPosition
from deepfreeze.ranks.world import World, on_rank_0
from deepfreeze.state.epoch_under_way import EpochUnderWay


class Input(Protocol):
    """Data that know where a training stands in them, such as ``deepfreeze.data.Resumable``. Every rank has such an object. The training
    thread calls all methods, between two executions of the train function.

    ``epoch``: the number of the epoch that is read next, from 0; ``batches_done``: how many of its batches are trained already, as the
    present number of ranks counts batches. ``len()``: the batches of a whole epoch, on each rank, trained ones too, if ``counted``."""

    @property
    def epoch(self) -> int: ...

    @property
    def batches_done(self) -> int: ...

    def __len__(self) -> int: ...

    def state_at(self, epoch: int, batches: int) -> dict[str, Any]:
        """Returns the state with which the data go on when so many ``batches`` of ``epoch`` are trained, since the epoch began or, if it
        was interrupted, since it was taken up: names and values that ``format/state_tree`` can encode. Changes nothing."""

    def set_state(self, state: Mapping[str, Any], counted: bool) -> None:
        """Goes on from a state that ``state_at`` has returned on this rank, or on rank 0 of a job that had fewer ranks. ``counted``: Keras
        counts the batches of the interrupted epoch that were trained before, too. ``OptionError`` if the state is of other data."""

    def peek(self) -> Any:
        """Returns a batch as ``fit`` gets it, for its shapes and dtypes. The batch does not count as read."""

    def begin(self, epoch: int) -> None:
        """The next epoch that is read is ``epoch``, from its first batch on. What was read in advance is forgotten."""

    def state(self) -> dict[str, Any]:
        """As ``state_at``, for what ``advance`` has told."""

    def advance(self, batches: int) -> None:
        """A loop has trained so many more ``batches``. Not called in a ``fit``."""


def require_batches(data: Input, batches: int | None) -> None:
    """``OptionError`` unless each epoch of ``fit`` has as many ``batches`` as the ``data``; None: Keras does not know how many it has."""
    if batches != len(data):
        raise OptionError(
            where="data=",
            expected=f"a fit of these data, whose epochs have {len(data)} batches on this rank",
            found="a fit of unknown length" if batches is None else f"a fit whose epochs have {batches} batches",
            todo="pass the same object to fit, and leave steps_per_epoch= out",
        )


class InputPosition:
    """The position of one callback, or of one loop, in its data, and in the epoch that Keras is in. Without data nothing is known, and the
    methods do nothing. The training thread calls all methods.

    ``attachments``: what each checkpoint keeps of it, by name."""

    def __init__(self, data: Input | None, loop: bool) -> None:
        """``data``: the option of this name; ``loop``: the training is a hand-written loop, which has no metrics and no history."""
        self.data, self._counted = data, not loop
        self._epoch_under_way = EpochUnderWay()
        self._fit: FitPosition | None = None  # of the ``fit`` under way, None in a loop
        self._ahead = 0  # how many epochs the data have had before the first epoch of the ``fit``
        # The epoch with which the ``fit`` has begun, as Keras counts, and how many of its batches were trained before.
        self._first = (0, 0)
        self._loaded: int | None = None
        self.attachments: dict[str, Any] = {} if data is None else {DATA: self}
        if data is not None and not loop:
            self.attachments[EPOCH] = self._epoch_under_way

    def state_dict(self) -> dict[str, Any]:
        """The state of the data where the training stands now."""
        assert self.data is not None
        if self._fit is None:
            return {"began": self.data.epoch, **self.data.state()}
        now, (first, before) = self._fit.at(0, 1), self._first
        epoch, batches = self._ahead + now.epoch, now.batch - (before if now.epoch == first else 0)
        return {"began": epoch, **self.data.state_at(epoch, batches)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the data go on from the ``state`` in the checkpoint that is restored."""
        assert self.data is not None
        self.data.set_state(state, counted=self._counted)
        self._loaded = self.data.epoch - int(state["began"])

    def restored(self) -> int | None:
        """How many epochs the data are further than the epoch of the checkpoint that has just been restored: 1 if it was saved at the end
        of the epoch. None if it has no state of the data."""
        loaded, self._loaded = self._loaded, None
        return loaded

    def begin_fit(self, fit: Fit, plan: GoingOn | None, ended: bool) -> None:
        """A ``fit`` begins. ``plan``: what is left of it, None if it is trained from the beginning. ``ended``: an earlier ``fit`` of this
        process has trained the data, which then go on with their next epoch."""
        if self.data is None or (plan is not None and plan.finished):
            return
        epoch = (fit.begins_at or 0) if plan is None else plan.epoch
        goes_on = plan.exact if plan is not None else ended and not fit.begins_at
        if not goes_on:
            self.data.begin(epoch)
        elif plan is not None and plan.batch == 0:
            self.data.begin(self.data.epoch)
        self._ahead = self.data.epoch - epoch
        self._first = (epoch, 0 if plan is None else plan.batch)

    def follow(self, model: Any, fit: FitPosition, world: World) -> None:
        """Collective. ``fit``: the position of the ``fit`` of ``model`` that has begun. Prepares what Keras keeps of the epoch that goes
        on: a model whose first step would make its metrics has them after this call, unless its step can't be traced before."""
        if self.data is None:
            return
        self._fit, under_way = fit, self._epoch_under_way
        under_way.begin(model, world.size)
        going_on = fit.going_on
        if going_on is None or not going_on.exact:
            under_way.loaded = None
        elif under_way.loaded is not None and under_way.loaded["ranks"] != world.size:
            under_way.loaded = on_rank_0(world, lambda: under_way.loaded)
        if going_on is not None and going_on.batch and not under_way.fits:
            with contextlib.suppress(UnsupportedError):  # ``put_epoch_back`` says that the metrics begin anew
                build_by(model, self.data.peek())

    def put_epoch_back(self) -> bool:
        """To be called when an epoch of the ``fit`` has begun, and Keras has reset its metrics. Puts back what Keras keeps of the epochs
        before. Returns False if the metrics are not those of the checkpoint: the logs of the epoch that goes on are of its rest alone."""
        going_on = None if self._fit is None else self._fit.going_on
        return self._epoch_under_way.put_back(going_on is not None and going_on.batch > 0)

    def trained(self, batches: int) -> None:
        """A loop has trained so many ``batches`` more."""
        if self.data is not None:
            self.data.advance(batches)
