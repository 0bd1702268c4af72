"""Which parts a training has, and in which order they are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deepfreeze.freeze.described import Described
from deepfreeze.plan.policy import EpochPolicy, LearningPolicy
from deepfreeze.plan.policy import parts as policies
from deepfreeze.plan.rehearsal import Rehearsal
from deepfreeze.ranks.world import each
from deepfreeze.retention.keeper import Keeper
from deepfreeze.state.attachments import Attachments
from deepfreeze.training.begun import Begun
from deepfreeze.training.interrupted import InterruptedFit
from deepfreeze.training.job_ends import JobEnds
from deepfreeze.training.part import Part
from deepfreeze.training.part_list import Parts
from deepfreeze.training.parts.config import StoredConfig
from deepfreeze.training.parts.epochs import TellingEpochs
from deepfreeze.training.parts.events import TellingSteps
from deepfreeze.training.parts.full import ReplacingSteps, SkippingSteps
from deepfreeze.training.parts.input import Executions
from deepfreeze.training.parts.job_end import BeforeTheJobEnds
from deepfreeze.training.parts.manifest import DescribingCheckpoints
from deepfreeze.training.parts.policy import Learning
from deepfreeze.training.parts.profiling import StepProfiling
from deepfreeze.training.parts.rehearsal import Rehearsing
from deepfreeze.training.parts.replicas import ComparingReplicas
from deepfreeze.training.parts.retention import Retention
from deepfreeze.training.parts.storage import AwaitingRoom
from deepfreeze.training.parts.train_function import TrainFunction
from deepfreeze.training.parts.unlisted import Unlisted
from deepfreeze.training.replica_checks import LastChecks
from deepfreeze.tuning.program_run import ProgramRun


@dataclass(frozen=True)
class Lasting:
    """What lasts from one ``fit`` of a callback to its next one."""

    keeper: Keeper
    described: Described
    attachments: Attachments
    job_ends: JobEnds
    checks: LastChecks
    interrupted: InterruptedFit
    rehearsal: Rehearsal | ProgramRun | None


@dataclass(frozen=True)
class Row:
    """A part: the function that makes it for a training, or returns None where it has nothing to do; and ``why`` it has its place."""

    make: Callable[[Begun, Lasting], Part | None]
    why: str


def _policy(begun: Begun, lasting: Lasting) -> Part | None:
    learns = any(isinstance(one, LearningPolicy) for one in policies(begun.policy))
    return Learning(begun, lasting.keeper.most_waiting) if learns else None


def _replicas(begun: Begun, lasting: Lasting) -> Part:
    return ComparingReplicas(begun, lasting.checks)


def _job_end(begun: Begun, lasting: Lasting) -> Part | None:
    end = each(begun.world, lambda: lasting.job_ends.next(begun.world, begun.events.notify))
    return BeforeTheJobEnds(begun, end) if end.known else None


def _rehearsal(begun: Begun, lasting: Lasting) -> Part | None:
    return None if lasting.rehearsal is None else Rehearsing(begun, lasting.rehearsal)


def _epochs(begun: Begun, lasting: Lasting) -> Part | None:
    wants = any(isinstance(one, EpochPolicy) for one in policies(begun.policy))
    return TellingEpochs(begun) if wants and begun.position is not None else None


def _full(begun: Begun, lasting: Lasting) -> Part | None:
    made = {"wait": None, "skip": SkippingSteps, "replace": ReplacingSteps}[begun.options.engine.when_full]
    return None if made is None else made(begun)


def _config(begun: Begun, lasting: Lasting) -> Part | None:
    return StoredConfig(begun) if begun.options.save_config and begun.world.rank == 0 else None


def _train_function(begun: Begun, lasting: Lasting) -> Part | None:
    return None if begun.position is None else TrainFunction(begun)


def _input(begun: Begun, lasting: Lasting) -> Part | None:
    return None if begun.options.data is None or begun.position is None else Executions(begun, lasting.interrupted)


def _profiling(begun: Begun, lasting: Lasting) -> Part | None:
    return StepProfiling(begun) if begun.options.capture.profile else None


TABLE: dict[str, Row] = {
    "train_function": Row(_train_function, "looks first whether the execution was one of the training that began"),
    "unlisted": Row(
        lambda begun, lasting: Unlisted(begun), "before all who need the captured variables: it may refuse the model"
    ),
    "events": Row(
        lambda begun, lasting: TellingSteps(begun), "tells of an execution before anybody decides what comes after it"
    ),
    "replicas": Row(_replicas, "compares the ranks before a policy has them agree on anything"),
    "job_end": Row(_job_end, "proposes an end when all that is said of the execution is said"),
    "retention": Row(
        lambda begun, lasting: Retention(begun, lasting.keeper),
        "warns of removals when the engine's reports are taken in; opens before whoever may have it remove something",
    ),
    "rehearsal": Row(_rehearsal, "ends training where a signal or the job's end has not"),
    "storage": Row(
        lambda begun, lasting: AwaitingRoom(begun) if begun.storage.limited else None,
        "before full: a step that the run has no room for must not push out another one",
    ),
    "full": Row(_full, "before epochs: whether a step is skipped is settled when the policy hears of an epoch's end"),
    "epochs": Row(_epochs, "behind full, see there"),
    "policy": Row(
        _policy, "behind epochs: a step that the ranks want soon is moved to when all others have had their say"
    ),
    "manifest": Row(
        lambda begun, lasting: DescribingCheckpoints(lasting.described),
        "anywhere: nobody else reads what it adds to a checkpoint",
    ),
    "config": Row(_config, "behind all who may refuse a checkpoint: it writes to the store"),
    "profiling": Row(_profiling, "behind all who hold training up: it measures what is left"),
    "input": Row(_input, "last: an exception of another part may end the fit before this execution is taken in"),
}


def make(begun: Begun, lasting: Lasting) -> Parts:
    """Collective. The parts of the training that begins."""
    found = [row.make(begun, lasting) for row in TABLE.values()]
    return Parts([part for part in found if part is not None])
