"""The variables of a training that its model does not list among its own: weights that an optimizer trains all the same, and variables that
the traced step writes.

Keras finds the parts of a model by its attributes. A layer in an object of the user's, or a ``tf.Variable`` that is an attribute in Keras
3, is in no list of the model's and in no file of Keras's. What the optimizers train they list themselves. What else the step writes is
known only when the step is traced: ``note_written`` keeps that list, for ``TrainingState`` and for whoever asks later.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from deepfreeze.errors import UnsupportedError
from deepfreeze.state import applied, private_api
from deepfreeze.state.keras_objects import is_seed, optimizers
from deepfreeze.state.reachable import reachable

# By the model. A copy of the model, or the model read back from a file, has no notes.
_written: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()


def trained(model: Any) -> list[Any]:
    """The variables that the optimizers of ``model`` train and that the model does not list, in the order in which the optimizers were
    built with them; then those that a trace has shown (``state/applied``), and those that an optimizer of Keras 2 has names for."""
    known = {id(one) for one in [*model.trainable_variables, *model.variables]}
    found: list[Any] = []
    of_model = optimizers(model).values()
    lists = [private_api.trained_variables(one) for optimizer in of_model for one in _chain(optimizer)]
    for variable in [one for variables in lists for one in variables] + _applied(model):
        if id(variable) not in known:
            known.add(id(variable))
            found.append(variable)
    lost = {key for optimizer in of_model for key in _lost(model, optimizer)}
    if lost:
        # Rarely so, and the only case in which the whole model is searched.
        found += [one for _, one in reachable(model, "model") if private_api.key_of(one) in lost]
    return found


def unknown(model: Any, optimizer: Any) -> list[str]:
    """The names of variables that ``optimizer`` was built for and that nobody can find: an optimizer of Keras 2 keeps names and no
    variables. A trace of ``train_step`` shows them."""
    lost = _lost(model, optimizer)
    for _, variable in reachable(model, "model") if lost else ():
        lost.pop(private_api.key_of(variable), None)
    return list(lost.values())


def require_known(model: Any, where: str) -> None:
    """``UnsupportedError``, with the names, if an optimizer of ``model`` trains a variable that nobody can find. ``where``: the name of
    what the user has called, for the message."""
    names = [name for optimizer in optimizers(model).values() for name in unknown(model, optimizer)]
    if names:
        raise UnsupportedError(
            where=where,
            expected="an optimizer that trains variables which the model, or an object among its attributes, holds",
            found=f"one that also trains {', '.join(names[:10])}{' and others' if len(names) > 10 else ''}",
            todo=f"make each variable an attribute of the model, such as model.{names[0].rpartition('/')[2]} = variable; if they are "
            "another model's, give this model an optimizer of its own",
        )


def note_written(model: Any, variables: Iterable[Any]) -> None:
    """Keeps the ``variables`` that the traced step of ``model`` writes and that neither the model nor an optimizer lists, in the order in
    which the step writes them, in place of those that were noted before."""
    _written[model] = list(variables)


def written(model: Any) -> list[Any]:
    """What ``note_written`` keeps of ``model``; an empty list before its step was traced."""
    return _written.get(model, [])


def is_generator(variable: Any) -> bool:
    """Whether a variable is the state of a random generator: of Keras 3, or a ``tf.random.Generator``."""
    return is_seed(variable) or private_api.is_generator_state(variable)


def _lost(model: Any, optimizer: Any) -> dict[str, str]:
    """The names, by key, of what a Keras 2 ``optimizer`` trains and neither ``model`` lists nor a trace has shown."""
    keys: dict[str, str] = {}
    for one in _chain(optimizer):
        keys |= private_api.trained_keys(one)
    if keys:
        for variable in [*model.trainable_variables, *model.variables, *_applied(model)]:
            keys.pop(private_api.key_of(variable), None)
    return keys


def _applied(model: Any) -> list[Any]:
    return [variable for _, variables in applied.all_applied(model) for variable in variables]


def _chain(optimizer: Any) -> Iterator[Any]:
    """An optimizer, and those inside of it: a LossScaleOptimizer has one."""
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "inner_optimizer", None)
