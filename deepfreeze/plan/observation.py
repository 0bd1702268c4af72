"""What a policy that learns is told of the training, after each execution of the train function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Progressed:
    """How far the checkpoint of ``step`` has come on this rank. ``local``, ``written`` and ``committed`` are seconds from the hand-over to
    the engine, None until it is so far. ``local``: this rank's part is whole on the local tier; ``written``: it is durable on the external
    store; ``committed``: the checkpoint is committed. ``failed``: it will never be committed.

    ``copy`` and ``cpu`` are CPU seconds of this rank. ``copy``: what the copies of the capture took of the training's own threads; None
    where they were not made to the engine's memory, as of a capture of the first step. ``cpu``: what the engine's threads took since the
    checkpoint before this one was committed or failed; None until this one is committed or has failed. The sum of ``cpu`` over all
    checkpoints, each once, is what the engine has used until the last of them; the first ``cpu`` has the engine's start too, with the
    memory that it makes for captures."""

    step: int
    local: float | None
    written: float | None
    committed: float | None
    failed: bool = False
    superseded: bool = False
    copy: float | None = None
    cpu: float | None = None


@dataclass(frozen=True)
class Observation:
    """One execution of the train function, as this rank has seen it.

    - ``step``: the step at which the execution ended; ``steps``: how many steps it ran, 0 if the optimizer skipped its update.
    - ``seconds``: wall time of the execution and of everything else that the program did since DeepFreeze gave control back.
    - ``captured``: the newest step that was captured since the last observation, None if there is none.
    - ``blocking``: seconds for which DeepFreeze had held up training after the execution before this one.
    - ``reports``: the checkpoints that have come further since the last observation. Each has all values that are known by now, so
      a checkpoint comes several times, and may come again after its commit.
    - ``in_flight``: how many checkpoints are captured and neither committed nor failed.
    - ``nbytes``: bytes that this rank saves of one checkpoint, without its private bytes.
    - ``rank``: this rank.
    - ``signals``: the numbers of the policy's signals that this rank has received since the last observation.
    - ``paused``: an epoch began with this execution. ``seconds`` has what the program did between two epochs, such as a validation.
    - ``epoch_steps``: how many steps an epoch of this ``fit`` has, None if nobody knows; in a hand-written loop nobody does.

    The first ``seconds`` of a training have the tracing of the train function in them, and the second ``blocking`` has what DeepFreeze
    prepares after the first execution: seconds both, which do not come again. Before a step is captured, ``blocking`` has the wait for
    memory; after it, the hand-over, and with ``wait_for`` the wait for the level."""

    step: int
    steps: int
    seconds: float
    captured: int | None
    blocking: float
    reports: Sequence[Progressed]
    in_flight: int
    nbytes: int
    rank: int = 0
    signals: Sequence[int] = ()
    paused: bool = False
    epoch_steps: int | None = None
