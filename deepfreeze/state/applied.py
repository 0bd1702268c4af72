"""The variables that the optimizers of a model are given to update, as traces of the model's ``train_step`` have shown.

No optimizer tells for which variables it will be called, and the model's list says too much (a distiller's has the teacher) or too little
(a ``train_step`` may train variables that no layer tracks). So a note is made where the calls can be seen: in the first trace
(``frameworks/tensorflow/first_trace``), and each time that the captures' hook on ``apply`` (Keras 3) or ``apply_gradients`` (tf_keras) is
called, which is once for each trace of the train function.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_ATTRIBUTE = "_deepfreeze_applied"


def note(model: Any, optimizer: Any, variables: Iterable[Any]) -> None:
    """``optimizer`` was called for these ``variables`` in the ``train_step`` of ``model``. Variables that are noted already stay once."""
    _notes(model).of(optimizer).update((id(variable), variable) for variable in variables)


def applied(model: Any, optimizer: Any) -> tuple[Any, ...]:
    """The variables (of Keras 3, or ``tf.Variable``) that ``optimizer`` was given in the ``train_step`` of ``model``, each once, in the
    order in which they were given first. An empty tuple if no trace has shown any: the optimizer was built before ``fit`` and the train
    function is not traced yet, or ``train_step`` does not call it."""
    _, variables = _notes(model).rows.get(id(optimizer), (None, {}))
    return tuple(variables.values())


def all_applied(model: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """Each optimizer that a trace has shown, with the variables that it was given (see ``applied``), in the order of their first calls.
    An optimizer inside of a LossScaleOptimizer is not among them, only the one that ``train_step`` calls."""
    return [(optimizer, tuple(variables.values())) for optimizer, variables in _notes(model).rows.values() if variables]


def note_built(model: Any, optimizer: Any, variables: Iterable[Any]) -> None:
    """``optimizer`` was built for these ``variables``, in this order: in a trace of ``train_step``, or as a checkpoint has it."""
    _notes(model).of(optimizer)
    _notes(model).built[id(optimizer)] = tuple(variables)


def built_for(model: Any, optimizer: Any) -> tuple[Any, ...] | None:
    """The variables for which ``optimizer`` was built, in the order of its slots. None where that was not seen: the program has built it,
    or it was built from the model's trainable variables."""
    return _notes(model).built.get(id(optimizer))


def assume(model: Any, optimizer: Any) -> None:
    """``optimizer`` was built for the trainable variables of ``model``, although its own ``train_step`` may train others: no trace has
    shown it."""
    _notes(model).assumed.add(id(optimizer))


def is_assumed(model: Any, optimizer: Any) -> bool:
    """Whether ``assume`` was called."""
    return id(optimizer) in _notes(model).assumed


def seen(model: Any, optimizers: Iterable[Any]) -> None:
    """A trace of the whole ``train_step`` is over in which calls of these ``optimizers`` were noted."""
    for optimizer in optimizers:
        _notes(model).of(optimizer)


def is_seen(model: Any, optimizer: Any) -> bool:
    """Whether a trace has shown that ``optimizer`` is called, or that it is not."""
    return id(optimizer) in _notes(model).rows


class _Notes:
    """The notes of one model, an attribute of it. A copy of the model, or the model read back from a pickle, has no notes. ``rows``: by the
    optimizer's ``id()``, the optimizer and its variables by ``id()``; ``built``: by the same, the variables for which it was built;
    ``assumed``: see ``assume``."""

    def __init__(self) -> None:
        self.assumed: set[int] = set()
        self.built: dict[int, tuple[Any, ...]] = {}
        self.rows: dict[int, tuple[Any, dict[int, Any]]] = {}

    def of(self, optimizer: Any) -> dict[int, Any]:
        """The variables of one optimizer, by ``id()``."""
        return self.rows.setdefault(id(optimizer), (optimizer, {}))[1]

    def __deepcopy__(self, memo: Any) -> _Notes:
        return _Notes()

    def __reduce__(self) -> tuple[type[_Notes], tuple[()]]:
        return _Notes, ()


def _notes(model: Any) -> _Notes:
    # Set in the model's __dict__: its __setattr__ would track what it is given. No list or dict, in which Keras would look for layers.
    notes: _Notes = vars(model).setdefault(_ATTRIBUTE, _Notes())
    return notes
