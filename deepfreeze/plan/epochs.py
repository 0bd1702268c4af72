"""Which epochs a ``fit`` trains whose job was killed and is started again: those that were not finished. Pure: worked out from the
position in the restored checkpoint, from the place in the data (``data=``), and from what ``fit`` was asked for, the same on all ranks."""

from __future__ import annotations

from dataclasses import dataclass

from deepfreeze.format.position import Position


@dataclass(frozen=True)
class Fit:
    """The arguments of one ``fit``. ``epochs``: the argument; ``batches``: in each epoch, None if Keras does not know their number;
    ``begins_at``: the argument ``initial_epoch``, None if it is unknown; ``begun``: the epoch that ``fit`` begins with
    whatever is found out, None if it is still to be chosen; ``late``: its model was not built when it began; ``inside``: it can begin
    inside of an epoch."""

    epochs: int
    batches: int | None
    begins_at: int | None
    begun: int | None = None
    late: bool = False
    inside: bool = False


@dataclass(frozen=True)
class GoingOn:
    """A ``fit`` that goes on where another attempt of the job has stopped. ``epoch``: the one to begin with, from 0; ``trained``: how many
    batches were trained before; ``total``: how many are trained when the ``fit`` ends. With ``finished`` nothing is left to train;
    ``stopped``: because a callback had ended it. ``exact``: the job's data know which of their items were trained, so no item is trained
    twice. ``begun``: some items of ``epoch`` are trained then, and it goes on with the others; ``batch``: how many batches they are, as
    the present job counts batches: 0 also where they are less than one."""

    epoch: int
    trained: int
    total: int
    finished: bool = False
    stopped: bool = False
    batch: int = 0
    exact: bool = False
    begun: bool = False


def going_on(position: Position | None, number: int, fit: Fit, stopped: bool = False) -> GoingOn | None:
    """The part of ``fit`` that is left to train, if the checkpoint at ``position`` was restored. ``number``: how many fits of
    the run the program has ended before; ``stopped``: a callback had ended the checkpoint's ``fit``. None if ``fit`` begins with its first
    epoch, or where ``initial_epoch`` says: the checkpoint is of an earlier ``fit``, or it can't be known.

    Whole epochs are not repeated. The interrupted epoch begins again with its first batch, and the last epoch is cut short by as many
    batches. An epoch is over when as many batches are trained as an uninterrupted ``fit`` has trained by then. So a job that is killed
    more than once in each epoch comes to its last epoch too."""
    if position is None or fit.begins_at != 0 or number > position.fit:
        return None
    if number < position.fit:
        return GoingOn(fit.epochs, 0, 0, finished=True)
    if stopped:
        return GoingOn(fit.epochs, 0, 0, finished=True, stopped=True)
    if not fit.batches or fit.batches != position.batches:
        return None
    total = fit.epochs * fit.batches
    trained = min(position.trained, total)
    return GoingOn(trained // fit.batches, trained, total, trained == total)


def going_on_in_data(
    position: Position | None, number: int, fit: Fit, stopped: bool, epoch: int, batch: int, begun: bool
) -> GoingOn | None:
    """As ``going_on``, for a job with ``data=``, which repeats no item and leaves none out. ``epoch``: the one that goes on, from 0;
    ``begun``: some of its items are trained; ``batch``: how many of its batches they are, as the present job counts batches. The
    checkpoint's job may have had smaller batches, so ``begun`` does not follow from ``batch``. A ``fit`` that can't begin inside of an
    epoch trains all of it again. None also if ``initial_epoch`` is another epoch."""
    if position is None or fit.begins_at not in (0, epoch) or number > position.fit or not fit.batches:
        return None
    if number < position.fit or stopped:
        return GoingOn(fit.epochs, 0, 0, finished=True, stopped=number == position.fit, exact=True)
    batch, begun = (batch, begun) if fit.inside else (0, False)
    total = fit.epochs * fit.batches
    trained = min(epoch * fit.batches + batch, total)
    if trained == total:
        return GoingOn(fit.epochs, trained, total, finished=True, exact=True)
    return GoingOn(epoch, trained, total, batch=batch, exact=True, begun=begun)


def other_batches(position: Position | None, number: int, fit: Fit) -> bool:
    """Whether ``fit`` begins with its first epoch for no other reason than that its epochs have another number of batches now."""
    if position is None or fit.begins_at != 0 or number != position.fit:
        return False
    return None not in (fit.batches, position.batches) and fit.batches != position.batches
