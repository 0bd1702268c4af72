"""The callbacks of Keras that count batches, in ``extra=``."""

from __future__ import annotations

from typing import Any

from deepfreeze.state import private_api
from deepfreeze.state.callbacks.callback_state import CallbackState, set_counts


class ModelCheckpoint(CallbackState):
    """Of the files that the callback has written nothing is saved."""

    attributes = ("best", "epochs_since_last_save")

    def state_at(self, step: int) -> dict[str, Any]:
        """With the counts of batches."""
        return {**super().state_at(step), "counts": private_api.saving_counts(self.callback)}

    def recall(self) -> None:
        """With the counts of batches."""
        super().recall()
        set_counts(self.callback, private_api.saving_counts(self.callback), self.loaded, add=False)


class TensorBoard(CallbackState):
    """The numbers of batches by which plots go. The plots of epochs go by the epoch."""

    def state_at(self, step: int) -> dict[str, Any]:
        """The counts of batches; ``step``: Keras 2's own variable, which ``fit`` sets back."""
        counter = private_api.plotted_step(self.callback)
        counts = private_api.plotting_counts(self.callback)
        return {"counts": counts, "step": None if counter is None else int(counter.numpy())}

    def epochs_begin(self, epoch: int | None) -> None:
        """Goes on counting. Of a model that its first batch builds this batch is counted already."""
        counter, step = private_api.plotted_step(self.callback), self.loaded.get("step")
        set_counts(self.callback, private_api.plotting_counts(self.callback), self.loaded, add=True)
        if counter is not None and step is not None:
            counter.assign_add(step)
