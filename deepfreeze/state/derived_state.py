"""The state that objects of a model derive from their variables when stock Keras loads their values.

An adapted ``Normalization`` computes with two tensors that its ``load_own_variables`` makes out of its variables. So variables that have
the values of a checkpoint are not all: after they are assigned, each object whose class overrides ``load_own_variables`` is asked to
load these values, once. Train, test and predict functions that were traced before may hold what was derived before: they are made anew.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepfreeze.errors import StructureError
from deepfreeze.frameworks.table import variables_for
from deepfreeze.frameworks.variables import Variables
from deepfreeze.state import private_api
from deepfreeze.state.keras_objects import listed_variables, saveables

TRAIN, TEST, PREDICT = "train_function", "test_function", "predict_function"  # what a model has traced


def objects_of(model: Any) -> list[Any]:
    """Every object that Keras saves with ``model``, and the layers of Keras 2 in a ``tf.Module``, each once."""
    found = saveables(model)
    if not found:
        for module in getattr(model, "submodules", ()):
            found |= saveables(module)
    return list(found.values())


@dataclass(frozen=True, eq=False)
class _Loading:
    """An ``owner`` whose class overrides ``load_own_variables``. ``stored``: the variable whose value it stores under each key; None if it
    stores other values than those of its variables; ``needs``: the variables that must have been given values before it is asked."""

    owner: Any
    stored: Mapping[str, Any] | None
    needs: tuple[Any, ...]
    variables: Variables

    @classmethod
    def of(cls, owner: Any, variables: Variables) -> _Loading:
        from deepfreeze.state.dataset_paths import Transformed, identify  # imports h5py, which most models do without

        stored: Mapping[str, Any] | None
        try:
            stored = identify(owner, _recorded(owner), variables.value)
        except Transformed:
            stored = None
        return cls(owner, stored, tuple(stored.values() if stored else _variables(owner)), variables)

    def value(self, variable: Any) -> np.ndarray:
        """A copy of a variable's value."""
        return np.array(self.variables.value(variable))

    def load(self, where: object) -> None:
        """Has the owner load the values that its variables have."""
        if self.stored is not None:
            self._call({key: self.value(variable) for key, variable in self.stored.items()}, where)
            return
        # What the owner stores is computed from its variables. Loading that may give them other values: LoRA has both factors in the sum.
        values = [(variable, self.value(variable)) for variable in self.needs]
        self._call({key: np.array(np.asarray(value)) for key, value in _recorded(self.owner).items()}, where)
        for variable, value in values:
            if self.value(variable).tobytes() != value.tobytes():
                variable.assign(value)

    def _call(self, store: dict[str, np.ndarray], where: object) -> None:
        try:
            self.owner.load_own_variables(store)
        except Exception as error:
            raise StructureError(
                where=where,
                expected=f"values that {_called(self.owner)} loads by its load_own_variables",
                found=f"{type(error).__name__}: {error}",
                todo="the model's variables have the checkpoint's values, and what this object derives from them is missing: mend its "
                "load_own_variables, and restore again",
            ) from error


class DerivedState:
    """The objects of one model that derive state. To be made before values are assigned: some of Keras's objects store what they have
    derived, and their variables are found by these values."""

    def __init__(self, model: Any, objects: Iterable[Any] | None = None) -> None:
        """``objects``: ``objects_of(model)``, if the caller has it already. ``StructureError`` if one of them can't tell what it stores.
        Changes nothing."""
        objects = objects_of(model) if objects is None else list(objects)
        variables = variables_for(model)
        variables.settle(model)
        self._key = variables.key
        self._loading = [_Loading.of(one, variables) for one in objects if not private_api.assigns_alone(one)]
        self._models = [one for one in objects if hasattr(one, "make_predict_function")]

    def values(self) -> list[bytes]:
        """The values of all variables from which these objects derive state. Empty for a model without such objects."""
        return [one.value(variable).tobytes() for one in self._loading for variable in one.needs]

    def load(self, given: Collection[Any], whole: bool, where: object) -> bool:
        """Asks each object all of whose variables are among the ``given`` ones, which have just been assigned. ``whole``: these are all
        weights of the model, so that an object is asked too which stores nothing itself. ``where``: the checkpoint, for errors. Returns
        whether an object was asked. To be called outside of any graph. ``StructureError`` for what an object raises."""
        if not self._loading:
            return False
        key = self._key
        known = {id(key(variable)) for variable in given}
        asked = False
        for one in self._loading:
            complete = all(id(key(variable)) in known for variable in one.needs)
            # The parts of an object that stores nothing itself may have weights which are in no checkpoint.
            if (one.needs and complete) or (whole and (complete or one.stored == {})):
                one.load(where)
                asked = True
        return asked

    def make_functions_anew(self, *functions: str) -> None:
        """Has the model, and models inside of it, make those of these ``functions`` (``TRAIN``, ``TEST``, ``PREDICT``) anew that they have
        made before: what they have traced may hold what was derived before."""
        for model in self._models:
            for function in functions:
                if getattr(model, function, None) is not None:
                    made = getattr(model, f"make_{function}")(force=True)
                    if made is not None:  # of a model with its own method, which only returns the function
                        setattr(model, function, made)


def _recorded(owner: Any) -> dict[str, Any]:
    """What ``owner`` stores, by key. ``StructureError`` if it raises."""
    recorded: dict[str, Any] = {}
    try:
        owner.save_own_variables(recorded)
    except Exception as error:
        raise StructureError(
            where=_called(owner),
            expected="names for its values, by its save_own_variables",
            found=f"{type(error).__name__}: {error}",
            todo="make it complete before, a lookup by its vocabulary for example",
        ) from error
    return recorded


def _variables(owner: Any) -> list[Any]:
    """The weights of an object that stores none of them, those of its parts."""
    weights = getattr(owner, "weights", None)
    return listed_variables(owner) if weights is None else [one for one in weights if hasattr(one, "assign")]


def _called(owner: Any) -> str:
    """An object as messages name it: its class, and the name that it has been given."""
    name = getattr(owner, "name", None)
    return f"{type(owner).__name__} {name!r}" if isinstance(name, str) else type(owner).__name__
