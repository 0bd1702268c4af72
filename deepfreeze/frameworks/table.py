"""The frameworks, by the name of Keras's backend, which is that of the framework's package too. The folder of a framework is loaded when a
model wants it. Imports no framework."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from typing import Any

from deepfreeze.errors import UnsupportedError
from deepfreeze.frameworks.framework import Framework
from deepfreeze.frameworks.variables import KerasVariables, Variables

_KERASES = ("tf_keras", "keras")


@dataclass(frozen=True)
class Folder:
    """A framework: its ``name``, and the package whose module ``framework`` has the object ``FRAMEWORK``."""

    name: str
    package: str


TABLE = {"tensorflow": Folder("TensorFlow", "deepfreeze.frameworks.tensorflow")}


def of(model: Any, where: str = "") -> Framework[Any]:
    """The framework of a model. ``UnsupportedError`` for a Keras whose backend has no row; ``where``: as for ``require``."""
    require(model, where or f"a {type(model).__name__}")
    return importlib.import_module(f"{TABLE[backend_of(model)].package}.framework").FRAMEWORK


def require(thing: Any, where: str) -> None:
    """``UnsupportedError`` for a model or an optimizer of a Keras whose backend has no row. ``where``: the name of the function that
    the user has called, for the message."""
    backend = backend_of(thing)
    if backend not in TABLE:
        raise UnsupportedError(
            where=where,
            expected=f"Keras on {' or '.join(row.name for row in TABLE.values())}",
            found=f"Keras on {backend}",
            todo=f"set KERAS_BACKEND={' or '.join(TABLE)} before Keras is imported; deepfreeze.read, transfer and export serve any backend",
        )


def require_installed() -> None:
    """``ModuleNotFoundError`` if no framework is installed. Loads none."""
    if not any(map(_is_installed, TABLE)):
        raise ModuleNotFoundError("no framework is installed", name=next(iter(TABLE)))


def _is_installed(package: str) -> bool:
    try:
        return package in sys.modules or importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of an import hook
        return False


def variables_for(model: Any) -> Variables:
    """The framework of a model; for a Keras whose backend has no row, and for a model that is neither of Keras nor a ``tf.Module``,
    ``KerasVariables``."""
    backend = backend_of(model)
    known = backend in TABLE and (keras_of(model) is not None or backend in _packages(model))
    return of(model) if known else KerasVariables()


def backend_of(thing: Any) -> str:
    """The name of the backend that a model or an optimizer computes with. Keras 2 has TensorFlow alone, and a model that is not of Keras
    is a ``tf.Module``; in Keras 3 all models of a process have one backend."""
    return sys.modules["keras"].backend.backend() if keras_of(thing) == "keras" else "tensorflow"


def keras_of(thing: Any) -> str | None:
    """The package that the class of ``thing``, or a class that it derives from, belongs to: "keras", "tf_keras", or None for neither."""
    packages = _packages(thing)
    return next((name for name in _KERASES if name in packages), None)


def _packages(thing: Any) -> set[str]:
    """The packages of the class of ``thing``, and of the classes that it derives from."""
    return {c.__module__.split(".")[0] for c in type(thing).__mro__}
