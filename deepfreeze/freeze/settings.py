"""The options of ``deepfreeze.Checkpoint`` that the saver is given."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from deepfreeze import arguments
from deepfreeze.engine.options import Engine


@arguments.suggesting
@dataclass(frozen=True, kw_only=True)
class Replicas:
    """How the ranks' weights are compared: ``Checkpoint(..., replicas=deepfreeze.Replicas(parts=8))``.

    Args:
        parts: the ranks' whole weights are compared at the first two checkpoints of a training (calls of ``fit`` for one model are one
            training if each goes on where the last one ended), and then one of so many parts of them at each, in turn; 0: at the first
            two alone. Training waits while a rank reads what is compared. A part that differs makes the checkpoints after it compare
            everything, until the ranks agree again.
        on_divergence: what to do when the ranks' weights differ: "warn" commits the checkpoint marked as diverged, and those after it
            until the ranks agree again; "raise" commits none of them and ends training; "auto" raises at the first two
            comparisons, where an optimizer that is not wrapped or a missing broadcast shows, and warns of a difference that comes
            later.

    Raises ``OptionError``.
    """

    parts: int = 64
    on_divergence: str = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", arguments.whole_number("Replicas(parts=)", self.parts, 0, 1 << 20))
        arguments.one_of("Replicas(on_divergence=)", self.on_divergence, ("auto", "warn", "raise"))

    def after_the_first(self) -> Replicas:
        """The same for a ``fit`` that goes on with a training whose first two comparisons are over: "auto" only warns there."""
        return replace(self, on_divergence="warn") if self.on_divergence == "auto" else self


@dataclass(frozen=True)
class SaverSettings:
    """``local``: "auto", a directory or None; ``wait_for``: the label of the level that ``save`` waits for (``format/levels``);
    ``timeout`` in seconds; ``storage``: bytes that the run may take on the external store, None for no bound; ``memory``: bytes that
    captures may hold on each rank, None for no bound; ``tuned``: other settings of the engine are tried while it is open, so it is opened
    with as many transfers as it can have."""

    local: str | os.PathLike | None
    wait_for: str
    timeout: float
    engine: Engine
    replicas: Replicas
    storage: int | None = None
    memory: int | None = None
    tuned: bool = False
