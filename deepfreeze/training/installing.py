"""Puts the captures into the model of a training, or takes those that an earlier ``fit`` has left there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deepfreeze.engine.faults import Faults
from deepfreeze.errors import UnsupportedError
from deepfreeze.frameworks import table
from deepfreeze.plan.late_groups import LATE, UPDATE
from deepfreeze.plan.placement import choose_granule
from deepfreeze.ranks import world as worlds
from deepfreeze.state.training_state import TrainingState
from deepfreeze.store.granules import Granules
from deepfreeze.store.stores import at
from deepfreeze.training.installation import Installation, Terms, against_engine_memory
from deepfreeze.training.open_run import OpenRun
from deepfreeze.training.options import Options


def install(
    open_run: OpenRun,
    state: TrainingState,
    fields: tuple[str, ...],
    in_graph: bool,
    options: Options,
    optimizer: Any,
    notice: Callable[[str], None],
    keep: Callable[[Installation], Installation],
) -> Installation:
    """Collective. The captures that an earlier ``fit`` has left in the model, if they serve this one; else new captures. ``state``: the
    model's full training state; ``fields``: of the control word."""
    world = open_run.attempt.world
    # All ranks capture in the same way, because all must trace the same graph: if one can't use the engine's op, none does.
    # And all ask rank 0 for the store's granules, because all must work out the same placement.
    framework = table.of(state.model)
    store, path = at(open_run.attempt.target.run), options.capture.path
    told = worlds.together(
        world,
        lambda: (against_engine_memory(framework, path), store.granules() if world.rank == 0 else Granules()),
    )
    granules, reasons = told[0][1], [reason for reason, _ in told if reason is not None]
    if reasons and not framework.capabilities.own_memory:
        raise UnsupportedError(
            where="deepfreeze.Capture",
            expected="captures in the engine's memory, for this framework has no memory of its own for them",
            found=reasons[0],
            todo='leave path="graph" out, and take the engine that DeepFreeze brings',
        )
    if reasons:
        notice(f"capturing by TensorFlow's own ops: {reasons[0]}")
    specs = [tensor.spec for tensor in state.only(options.state).placed()]
    when = options.capture.when if in_graph and not reasons else UPDATE
    if options.capture.when == LATE != when:
        why = "by TensorFlow's own ops" if reasons else "between two executions"
        notice(f'Capture(when="late") changes nothing, because captures are taken {why}')
    terms = Terms(
        in_graph=in_graph,
        own_memory=bool(reasons),
        optimizer=optimizer,
        when=when,
        state=options.state,
        placement=options.capture.placement,
        granule=choose_granule(specs, world.size, granules.block, granules.stripe),
        fields=fields,
        rank=world.rank,
        world_size=world.size,
        communicator=options.world,
    )
    kept = Installation.take(state, terms, world)
    if kept is not None:
        keep(kept)
        return kept
    faults = Faults(open_run.attempt.target.run, options.timeout)

    def make() -> Installation:
        with faults.translated("memory for captures"):
            return Installation.make(state, terms, world)

    # Kept before it is known whether another rank has failed: ``close`` must then take this rank's hooks out too.
    return worlds.each(world, lambda: keep(make()))
