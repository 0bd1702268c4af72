"""The train function of a model during one ``fit``, which a callback may have made anew.

A function that is traced goes on with the optimizer that the model had when it was traced. So another ``model.optimizer`` alone changes
nothing. ``compile`` alone leaves the model without a function, and Keras ends the ``fit`` with a TypeError. A function that is made anew
(``make_train_function(force=True)``) has the model's new optimizer. With ``run_eagerly=True`` each step has the model's present one.
"""

from __future__ import annotations

import weakref
from typing import Any

from deepfreeze.errors import UnsupportedError
from deepfreeze.plan.schedule import Schedule
from deepfreeze.state.keras_objects import optimizers, variable_name
from deepfreeze.state.training_state import METRIC, TrainingState
from deepfreeze.training.begun import Begun
from deepfreeze.training.installation import Installation
from deepfreeze.training.last_training import another_run
from deepfreeze.training.part import Part

_LISTED = 3  # variables named in a message


class TrainFunction(Part):
    """What one ``fit`` trains by: the model's train function, and the optimizer whose updates are the steps. The look takes less than a
    microsecond unless something has changed."""

    def __init__(self, begun: Begun) -> None:
        optimizer, attempt, model = begun.counted.steps.optimizer, begun.open_run.attempt, begun.fitting.model
        self._model, self._optimizer = weakref.ref(model), optimizer
        self._agreement, self._run = begun.agreement, attempt.target.run
        self._events = begun.events if attempt.world.rank == 0 else None
        names = [name for name, one in optimizers(model).items() if one is optimizer]
        self._name = names[0] if names else "optimizer"
        self._seen = optimizer
        self._installation: Installation | None = None
        self._function: Any = None
        self._once: Any = None  # the function that was found last
        self._error: UnsupportedError | None = None

    def begins(self, installation: Installation) -> bool:
        """Notes the function that has the captures."""
        self._installation, self._function = installation, getattr(self._model(), "train_function", None)
        return True

    def execution_ended(self) -> None:
        """Looks whether training would go on with another optimizer, or with other variables, than those that are captured."""
        model = self._model()
        if model is not None and (
            getattr(model, self._name, None) is not self._seen
            or getattr(model, "train_function", None) is not self._function
        ):
            self._changed(model)

    def goes_on(self, schedule: Schedule) -> None:
        """Ends training on all ranks if it would: ``UnsupportedError``."""
        if self._error is not None:
            self._agreement.give_up(self._error)

    def _changed(self, model: Any) -> None:
        function, installation = getattr(model, "train_function", None), self._installation
        assert installation is not None
        if function is None:
            return  # after ``compile``: the next batch ends with Keras's TypeError, unless a function is made before
        anew = function is not self._function
        # Between executions nobody is told when a new function runs for the first time, in which Keras 2 makes the variables of metrics. So
        # the execution after the next one looks once more.
        if installation.in_graph or function is self._once:
            self._function = function
        self._once = function
        self._seen = getattr(model, self._name, None)
        if any(one is self._optimizer for one in optimizers(model).values()):
            if anew:
                self._require_same_variables(model, installation)
        elif anew or getattr(model, "run_eagerly", False):
            self._error = self._other_optimizer()
        elif self._events is not None:
            self._events.warn(
                f"model.{self._name} is another {type(self._seen).__name__} since this fit began. Keras goes on with the train function "
                "that it has traced, which has the optimizer of before, and so do the checkpoints",
                once=f"model.{self._name}",
            )

    def _require_same_variables(self, model: Any, installation: Installation) -> None:
        """The captures are in the new function too. They serve it if the model has the same variables, of whatever kind by now."""
        capture = installation.capture
        if not installation.in_graph:
            capture.follow_metrics()  # else this was done while the function was traced
        captured = {id(one.variable): one for one in capture.state.tensors if one.kind != METRIC}
        state = TrainingState.of(model, capture.state.what)
        now = {id(one.variable): one for one in state.tensors if one.kind != METRIC}
        others = [now.get(number) or captured[number] for number in now.keys() ^ captured.keys()]
        if others:
            names = sorted(variable_name(one.variable) for one in others)
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            # Raised before the capture is taken, which may lack them. The ranks have one graph, so each of them finds the same.
            raise _unsupported(
                "the variables with which this fit began",
                f"others: {', '.join(names[:_LISTED])}{more}, since a callback has had the train function made anew",
                f"change the model between two fits, and give the second one a run of its own: {another_run(self._run)}",
            )

    def _other_optimizer(self) -> UnsupportedError:
        return _unsupported(
            f"the optimizer with which this fit began, {type(self._optimizer).__name__}",
            f"another {type(self._seen).__name__}, by which a callback has let the model be trained from now on",
            f"set the rate of the one that trains (model.{self._name}.learning_rate = 1e-5), or end this fit and give the new optimizer a "
            f"fit of its own, with a run of its own: {another_run(self._run)}",
        )


def _unsupported(expected: str, found: str, todo: str) -> UnsupportedError:
    return UnsupportedError(where="deepfreeze.Checkpoint", expected=expected, found=found, todo=todo)
