"""The best weights of ``EarlyStopping(restore_best_weights=True)`` in ``extra=``. They are in no state, because a checkpoint that ``keep=``
keeps has them."""

from __future__ import annotations

import functools
from typing import Any

from deepfreeze.errors import OptionError
from deepfreeze.notices import Notify
from deepfreeze.ranks.world import World, each, on_rank_0
from deepfreeze.state.callbacks.states import CallbackStates
from deepfreeze.store.retention import metrics_of, text_of
from deepfreeze.store.rules import AnyOf, Best, Latest
from deepfreeze.thaw import past


def require_kept(callbacks: CallbackStates, keep: Any) -> None:
    """``OptionError`` unless the rule ``keep`` keeps the checkpoint of each callback's best epoch. A rule of the user's own does if it asks
    for the callback's metric."""
    for name, one in callbacks.stopping.items():
        if one.callback.restore_best_weights and _rule(keep, one.monitor, one.mode) is None:
            own = "deepfreeze.store.Latest(2)" if isinstance(keep, Latest) else "the rule"
            raise OptionError(
                where=f"keep={text_of(keep)}",
                expected=f"a rule that keeps the best checkpoint by {one.monitor}, because extra[{name!r}] is an EarlyStopping with "
                "restore_best_weights=True",
                found="none: after a restart the best weights would be lost",
                todo=f'pass keep={own} | deepfreeze.store.Best("{one.monitor}", "{one.likely_mode}")',
            )


def give(callbacks: CallbackStates, model: Any, run: str, keep: Any, world: World, notify: Notify) -> None:
    """Collective. Gives each callback that has been loaded the weights of its best epoch, from a checkpoint of ``run``. Rank 0 chooses
    the checkpoint; a warning says if it is not that of the epoch's end. ``CorruptError`` if it is damaged."""
    stopping = callbacks.stopping

    def choose() -> list[tuple[str, int]]:
        found = []
        for name, one in stopping.items():
            wanted = one.weights_of
            if wanted is None:
                continue
            step = past.kept(run, wanted, _rule(keep, one.monitor, one.mode))
            if step != wanted:
                notify("warning", _another(name, wanted, step))
            if step is not None:
                found.append((name, step))
        return found

    for name, step in on_rank_0(world, choose) if stopping else ():
        stopping[name].take_weights(each(world, functools.partial(past.weights, model, run, step)))


def _another(name: str, wanted: int, step: int | None) -> str:
    """The message where the checkpoint of the best epoch's end is not there, and that of ``step`` is taken."""
    instead = (
        "EarlyStopping begins with the present weights"
        if step is None
        else f"EarlyStopping gets the weights of step {step}, which keep= keeps"
    )
    return (
        f'extra[{name!r}]: the run has no checkpoint of step {wanted}, at which the best epoch ended: {instead}. every="epoch" saves the '
        "end of each epoch"
    )


def _rule(keep: Any, metric: str, mode: str | None) -> Any:
    """The part of the rule ``keep`` that keeps the best checkpoint by this metric, None if there is none. ``mode``: "min", "max", or None
    for any."""
    for part in keep.rules if isinstance(keep, AnyOf) else (keep,):
        if isinstance(part, Best):
            if part.metric == metric and mode in (None, part.mode):
                return part
        elif metric in metrics_of(part):
            return part
    return None
