"""What ``data=`` may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Input(Protocol):
    """Data that know where a training stands in them, such as ``deepfreeze.data.Resumable``. Every rank has such an object. The training
    thread calls all methods, between two executions of the train function.

    ``next_epoch``: the number of the epoch that is read next, from 0; ``begun``: some of its items are trained already; ``batches_done``:
    how many of its batches they are, as this job counts batches: 0 also for items that are less than a batch of this job.
    ``batches_in_epoch``: the batches of a whole epoch on each rank, trained ones too; ``len()`` is as many, if ``counted``. An object that
    deals its items to ``ranks`` has their number as an attribute of this name."""

    @property
    def next_epoch(self) -> int: ...

    @property
    def batches_done(self) -> int: ...

    @property
    def batches_in_epoch(self) -> int: ...

    @property
    def begun(self) -> bool: ...

    def __len__(self) -> int: ...

    def same_on_all_ranks(self) -> dict[str, Any]:
        """Returns what the ranks' objects must have in common, as a JSON object."""

    def shapes(self) -> Any:
        """Returns the structure of a batch with an object in the place of each array that has its ``shape`` (None for a dimension that may
        differ between batches) and its ``dtype``."""

    def state_at(self, epoch: int, batches: int) -> dict[str, Any]:
        """Returns the state with which the data go on when so many ``batches`` of ``epoch`` are trained, counted from where this process
        has begun the epoch: names and values that ``format/state_tree`` can encode. Changes nothing."""

    def set_state(self, state: Mapping[str, Any], counted: bool) -> None:
        """Goes on from a state that ``state_at`` has returned on this rank, or on rank 0 of a job that had fewer ranks. ``counted``: Keras
        counts the batches of the interrupted epoch that were trained before, too. ``OptionError`` if the state is of other data."""

    def begin(self, epoch: int) -> None:
        """The next epoch that is read is ``epoch``, from its first batch on. What was read in advance is forgotten."""

    def state(self) -> dict[str, Any]:
        """As ``state_at``, for what ``advance`` has told."""

    def begin_loop(self) -> None:
        """A loop begins that calls ``advance`` after each step."""

    def advance(self, batches: int) -> None:
        """A loop has trained so many more ``batches``. Not called in a ``fit``."""


def is_input(value: Any) -> bool:
    """Whether ``value`` has what an ``Input`` must have."""
    names = [name for name in vars(Input) if not name.startswith("_")]
    return hasattr(type(value), "__len__") and all(hasattr(value, name) for name in names)
