"""Differences between the last checkpoints of two rehearsals of one program, and their likely causes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from deepfreeze.format.dataset_groups import ATTACHMENT, METRIC, OPTIMIZER, SEED, kinds
from deepfreeze.format.position import Position
from deepfreeze.inspect.diff import Comparison, diff
from deepfreeze.inspect.rank_states import EXTRA, RNG, StateChange, changed_states, saved_states
from deepfreeze.inspect.rank_states import SEED as SEED_STATE
from deepfreeze.inspect.verify import OnProgress
from deepfreeze.store.run import Run

_RATE = "learning_rate"
SEEDED = (
    "call keras.utils.set_random_seed(1) before the data and the model are made; on a GPU also "
    "tf.config.experimental.enable_op_determinism()"
)


@dataclass(frozen=True)
class Difference:
    """``tensors``: the kind (``format.dataset_groups``) of each tensor that differs, or that one checkpoint alone has, by its label, the
    largest relative change first; ``states``: of the ranks, also the random seeds of the model; ``saves_rng``, ``saves_optimizer``:
    whether the checkpoints have these."""

    comparison: Comparison
    tensors: dict[str, str]
    states: tuple[StateChange, ...]
    saves_rng: bool
    saves_optimizer: bool

    @property
    def metrics(self) -> list[str]:
        """The metrics that differ. Training does not depend on them."""
        return [label for label, kind in self.tensors.items() if kind == METRIC]

    @property
    def trained(self) -> list[str]:
        """The weights and the optimizers' variables that differ."""
        return [label for label, kind in self.tensors.items() if kind != METRIC]

    @property
    def same_training(self) -> bool:
        """Whether training would go on from both checkpoints in the same way: no weight, optimizer variable or state differs."""
        return not (self.trained or self.states)


def difference(
    first: str | os.PathLike[str], second: str | os.PathLike[str], step: int, progress: OnProgress | None = None
) -> Difference:
    """Compares the checkpoints of ``step`` in two runs. ``progress``, and what is raised: as of ``inspect.diff.diff``."""
    comparison = diff((first, step), (second, step), progress, everything=True)
    known: dict[str, str] = {}
    for path in (first, second):
        run = Run.open(path)
        known |= kinds(run.structure(run.manifest(step).structure))
    states = saved_states(first, step), saved_states(second, step)
    named = [(one.name, one.label) for one in comparison.changed]
    named += [(one.name, one.label) for one in comparison.unlike]
    named += [(name, name) for name in (*comparison.only_first, *comparison.only_second)]
    # The ranks' seeds and attachments are among the states.
    tensors = {label: known[name] for name, label in named if known[name] not in (SEED, ATTACHMENT)}
    return Difference(
        comparison,
        tensors,
        changed_states(*states),
        saves_rng=any(kind == RNG for kind, _ in states[0][0]),
        saves_optimizer=OPTIMIZER in known.values(),
    )


def unrepeatable(found: Difference) -> list[str]:
    """Likely causes of a difference between two trainings that nothing has interrupted."""
    seeds = [state for state in found.states if state.kind in (RNG, SEED_STATE)]
    if seeds:
        return [f"random generators begin with other seeds each time ({seeds[0]}): {SEEDED}"]
    if not found.trained:
        return ["a state that the program saves depends on the time, or on another program"] if found.states else []
    return [
        "the initial weights, the order of the input (shuffle) or its random changes come from generators without a seed: "
        f"{SEEDED}",
        "if the program is seeded: an input that several threads fill in no fixed order (tf.data needs deterministic=True)",
    ]


def unresumed(found: Difference, killed: Position | None) -> list[str]:
    """Likely causes of a difference between a training that nothing has interrupted and one that has gone on from a checkpoint. The
    program is repeatable without a kill. ``killed``: where the training stood at that checkpoint."""
    return list(_unresumed(found, killed))


def _unresumed(found: Difference, killed: Position | None) -> Iterator[str]:
    if found.trained and not found.saves_optimizer:
        yield 'the optimizer began anew, because state="weights" does not save it: leave state= out'
    if any(label.split("/")[-1] == _RATE for label in found.trained):
        yield (
            "the learning rate differs: a callback that changes it (ReduceLROnPlateau, LearningRateScheduler) has forgotten its state: "
            'pass the callback in extra=, such as extra={"slower": callback}'
        )
    for state in found.states:
        if state.kind == EXTRA:
            yield f"{state}: load_state_dict() does not bring back all that the state depends on"
    if found.trained:
        yield _of_input(killed)
    if found.trained and not found.saves_rng:
        yield (
            'the global random generators began anew, because rng="all" is missing: that matters if the input or a layer draws from '
            "Python's, numpy's, TensorFlow's or Keras's"
        )
    elif any(state.kind in (RNG, SEED_STATE) for state in found.states):
        yield (
            "another number of random values was drawn: the program draws some when it starts, after it was restored, or the input "
            "repeats batches"
        )
    if found.metrics and found.same_training:
        yield "the running means of metrics began anew with the epoch that was interrupted; training does not depend on them"


def _of_input(killed: Position | None) -> str:
    """The likely cause in the input. ``killed``: the training's position at the kill, None for a loop."""
    if killed is not None and killed.batch > 0 and killed.batch != killed.batches:
        return (
            f"the input's order is not repeated: training was killed at batch {killed.batch} of epoch {killed.epoch + 1}, and the input "
            "began again at another place than the next batch, such as the epoch's first batch. Pass an input from deepfreeze.data to "
            "Checkpoint(data=), or start the input at the step that Checkpoint.open returns"
        )
    return (
        "the input's order is not repeated: the program that is started again shuffles as in its first epoch. Let the order follow from "
        "the step or the epoch alone, as that of deepfreeze.data.Resumable does, and start the input at the step that Checkpoint.open "
        "returns"
    )
