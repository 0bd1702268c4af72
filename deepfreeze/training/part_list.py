"""All parts of one training, called as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from deepfreeze.training.part import Part

P = ParamSpec("P")
T = TypeVar("T")


class Parts:
    """The parts of one training. Each attribute is called as the method of ``Part`` with this name. It calls that method of all parts that
    have it, in their order, and answers for all of them. A method that one part has is called without a detour."""

    def __init__(self, parts: Sequence[Part]) -> None:
        def having(method: Callable[Concatenate[Part, P], T]) -> list[Callable[P, T]]:
            name = method.__name__
            return [getattr(part, name) for part in parts if getattr(type(part), name) is not method]

        self.begins = _all(having(Part.begins))
        self.settings = _through(having(Part.settings))
        self.opens = _each(having(Part.opens))
        self.execution_ended = _each(having(Part.execution_ended))
        self.reports = _each(having(Part.reports))
        self.tolerates = _any(having(Part.tolerates))
        self.has_room_now = _all(having(Part.has_room_now))
        self.has_room_for = _all(having(Part.has_room_for))
        self.saves = _through(having(Part.saves))
        self.captured = _each(having(Part.captured))
        self.ended = _each(having(Part.ended))
        self.kills_after = _any(having(Part.kills_after))
        self.settled = _each(having(Part.settled))
        self.gives_up = _first(having(Part.gives_up))
        self.gave_up = _each(having(Part.gave_up))
        self.aims = _each(having(Part.aims))
        self.waits_for_room = _each(having(Part.waits_for_room))
        self.proposes = _through(having(Part.proposes))
        self.goes_on = _each(having(Part.goes_on))
        self.epoch_ended = _any(having(Part.epoch_ended))
        self.epoch_settled = _each(having(Part.epoch_settled))
        self.values_at_release = _merged(having(Part.values_at_release))
        self.pauses = _each(having(Part.pauses))
        self.measured = _each(having(Part.measured))
        self.drains = _any(having(Part.drains))
        self.ends = _each(having(Part.ends))
        self.ends_without_steps = _each(having(Part.ends_without_steps))


def _each(functions: list[Callable[P, None]]) -> Callable[P, None]:
    """Calls each."""

    def call(*args: P.args, **options: P.kwargs) -> None:
        for function in functions:
            function(*args, **options)

    return functions[0] if len(functions) == 1 else call


def _any(functions: list[Callable[P, bool]]) -> Callable[P, bool]:
    """Calls each. True if one of them is."""

    def call(*args: P.args, **options: P.kwargs) -> bool:
        found = [function(*args, **options) for function in functions]
        return any(found)

    return functions[0] if len(functions) == 1 else call


def _all(functions: list[Callable[P, bool]]) -> Callable[P, bool]:
    """Calls each. True if all of them are."""

    def call(*args: P.args, **options: P.kwargs) -> bool:
        found = [function(*args, **options) for function in functions]
        return all(found)

    return functions[0] if len(functions) == 1 else call


def _through(functions: list[Callable[Concatenate[T, P], T]]) -> Callable[Concatenate[T, P], T]:
    """Gives the value to the first, what that returns to the second, and so on."""

    def call(value: T, *args: P.args, **options: P.kwargs) -> T:
        for function in functions:
            value = function(value, *args, **options)
        return value

    return functions[0] if len(functions) == 1 else call


def _first(functions: list[Callable[P, T | None]]) -> Callable[P, T | None]:
    """The first answer that is not None; those behind it are not asked."""

    def call(*args: P.args, **options: P.kwargs) -> T | None:
        for function in functions:
            found = function(*args, **options)
            if found is not None:
                return found
        return None

    return functions[0] if len(functions) == 1 else call


def _merged(functions: list[Callable[P, Mapping[str, Any]]]) -> Callable[P, Mapping[str, Any]]:
    """The values of all of them."""

    def call(*args: P.args, **options: P.kwargs) -> Mapping[str, Any]:
        return {name: value for function in functions for name, value in function(*args, **options).items()}

    return functions[0] if len(functions) == 1 else call
