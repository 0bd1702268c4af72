"""The values with which the training of a Keras model goes on. ``start`` chooses the checkpoint, and this module puts the checkpoint's
values into the model."""

from __future__ import annotations

from typing import Any

from deepfreeze.errors import StructureError
from deepfreeze.format.attachment_tree import EPOCH
from deepfreeze.format.position import Position
from deepfreeze.format.run_file import Parent
from deepfreeze.frameworks import table
from deepfreeze.frameworks.framework import StepCounter
from deepfreeze.notices import Notify
from deepfreeze.ranks.world import World, each
from deepfreeze.state import lineage
from deepfreeze.state.attachments import Attachments
from deepfreeze.state.derived_state import PREDICT, TEST
from deepfreeze.state.training_state import TrainingState
from deepfreeze.store.catalog import CheckpointInfo
from deepfreeze.store.run import Run
from deepfreeze.thaw import awaited
from deepfreeze.thaw.extent_table import ExtentTable
from deepfreeze.thaw.restore import Ready, prepare
from deepfreeze.training.last_training import LastTraining
from deepfreeze.training.start import Start


def _assign(ready: Ready, model: Any) -> CheckpointInfo:
    """Gives ``model`` the values of ``ready``. A train function that was traced with what the model derived before is made anew, unless it
    is being traced now."""
    info = ready.assign((TEST, PREDICT))
    if ready.derived and getattr(model, "train_function", None) is not None:
        table.of(model).trace_anew(model)
    return info


_NAMED = {EPOCH: "Keras's History"}


class ModelValues:
    """The values of a model, its optimizers and the attachments (``extra=``, ``rng=``). Implements ``start.Values``: ``read`` raises
    ``StructureError`` too, if the checkpoint is of another model, or ``RunError`` if it is of an earlier phase of this program;
    ``require_going_on`` raises what ``LastTraining.require_going_on`` raises."""

    def __init__(
        self,
        path: str,
        model: Any,
        steps: StepCounter | None,
        attachments: Attachments,
        world: World,
        notify: Notify,
        who: str = "deepfreeze.Checkpoint",
    ) -> None:
        """``path``: of the run. ``steps``: None if the model is not compiled yet, or its optimizers are not built: ``complete`` is called
        when they are; ``notify``: see ``Start.begin``; ``who``: the function that the user has called."""
        self._path, self._model, self._steps, self._attachments = path, model, steps, attachments
        self._world, self._notify, self._who = world, notify, who
        self._ready: Ready | None = None

    def table(self, step: int) -> ExtentTable:
        return ExtentTable.read(Run.open(self._path), step)

    def read(self, step: int, table: ExtentTable) -> None:
        self._ready = None  # frees the checkpoint that was read before, so that two are never in memory at once
        world = self._world
        rank, size, optimizers = world.rank, world.size, self._steps is not None
        try:
            self._ready = prepare(
                self._model, self._path, step, rank, size, table, self._attachments, optimizers=optimizers
            )
        except StructureError as error:
            run_id = Run.open(self._path).run_id
            phase = LastTraining.another_phase(self._path, run_id, self._steps, self._state, self._who)
            if phase is None:
                raise
            raise phase from error

    def assign(self, step: int) -> None:
        ready, self._ready = self._ready, None
        assert ready is not None
        if self._attachments:
            self._load_attachments(ready)
        info = _assign(ready, self._model)
        self._notify("info", f"restored step {step} of {info.run}")
        if ready.warning is not None and self._world.rank == 0:
            self._notify("warning", ready.warning)
        if info.state == "weights" and self._steps is not None:
            # The checkpoint has no optimizer. Its count of updates is set all the same, because checkpoints are named by it.
            self._steps.set(step)

    def complete(self, attempt: Start) -> None:
        """Collective. To be called when a model has its optimizers that did not have them at the start: restores them and the seeds from
        the checkpoint that its weights come from. The weights stay as they are. No rank changes anything before all ranks have read their
        part. ``CorruptError`` if the checkpoint is damaged, ``StructureError`` if it is of another optimizer."""
        step, world, model = attempt.resumed, self._world, self._model
        assert self._steps is not None
        if step is not None:

            def read() -> Ready:
                return prepare(model, self._path, step, world.rank, world.size, weights=False)

            ready = each(world, read)
            info = each(world, lambda: _assign(ready, model))
            awaited.fill(TrainingState.of(model))  # the weights that only the optimizer lists
            if info.state == "weights":
                self._steps.set(step)
        attempt.step = self._steps.now()

    def now(self) -> int:
        return 0 if self._steps is None else self._steps.now()

    def require_going_on(self, run_id: str) -> None:
        LastTraining.require_going_on(self._path, run_id, self._steps, self._state, self._who)

    def parent(self) -> Parent | None:
        return lineage.parent_of(tensor.variable for tensor in self._state().tensors)

    def _state(self) -> TrainingState:
        return TrainingState.of(self._model, "weights" if self._steps is None else "full")

    def _load_attachments(self, ready: Ready) -> None:
        """Rank 0 speaks for all ranks, to which the same happens."""
        rank, size = self._world.rank, self._world.size
        if ready.attachments is None:
            if rank == 0 and self._attachments.asked_for:
                self._notify(
                    "warning",
                    f"step {ready.info.step} has no extra states: the objects in extra= and the random number generators stay as "
                    "they are",
                )
            return
        left_over = self._attachments.load(ready.attachments, rank, size)
        if self._attachments.epoch_open and rank == 0:
            position = Position.of(ready.info.values)
            epoch = "it" if position is None else f"epoch {position.epoch + 1}"
            names = ", ".join(_NAMED.get(name, f"extra[{name!r}]") for name in self._attachments.of_epochs)
            self._notify(
                "warning",
                f"step {ready.info.step} was saved at the last batch of an epoch, and its job ended before the epoch did: these callbacks "
                f"have not seen the epoch's end, so their states lack {epoch}: {names}",
            )
        for name in left_over:
            if rank == 0:
                self._notify(
                    "warning",
                    f"extra[{name!r}]: nobody takes the states that ranks {size} to {ready.info.world_size - 1} of the job that wrote "
                    f"step {ready.info.step} have saved. An object whose load_state_dict takes "
                    "(states_of_all_ranks, rank, world) gets all of them",
                )
