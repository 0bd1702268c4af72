"""Data-parallel training of Keras 3 models under Horovod, whose own Keras module fails on Keras 3. Imports TensorFlow and
Horovod when used.
"""

from __future__ import annotations

from typing import Any

from deepfreeze.errors import UnsupportedError
from deepfreeze.frameworks.keras_hooks import Hooks
from deepfreeze.ranks.same_model import require_same_model
from deepfreeze.ranks.world import HorovodWorld
from deepfreeze.state.keras_objects import build_optimizer, tf_variable
from deepfreeze.state.supported import require_supported
from deepfreeze.state.training_state import COUNT, SLOT, STATISTIC, WEIGHT, TrainingState


def DistributedOptimizer(optimizer: Any) -> Any:  # named as Horovod names its own
    """The same optimizer, averaging its gradients over all ranks before each update.

    One allreduce per tensor, so that each weight is updated, and captured, as soon as its own gradient is there; Horovod fuses
    small ones by itself. (A grouped allreduce would end only with the last gradient.)

    Args:
        optimizer: a Keras 3 optimizer that has not been built.

    Returns:
        an optimizer of a subclass of its class, made from its config.

    Raises:
        UnsupportedError: for an optimizer that is not Keras 3's on TensorFlow (for Keras 2 there is Horovod's own), or is built
            already.
    """
    require_supported("deepfreeze.DistributedOptimizer", optimizer=optimizer)
    hvd = _horovod("deepfreeze.DistributedOptimizer")
    base = type(optimizer)
    if not hasattr(optimizer, "apply"):
        raise _unsupported(
            "a Keras 3 optimizer", f"{base.__module__}.{base.__name__}", "use horovod.tensorflow.keras for it"
        )
    if getattr(optimizer, "built", False):
        raise _unsupported("an optimizer without state", "one that is built", "wrap it before model.compile")

    class Distributed(base):  # type: ignore[valid-type, misc]
        """Averages gradients, then does what its base does."""

        averages_gradients = True

        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            """See ``keras.optimizers.Optimizer.apply``."""
            if hvd.size() > 1:
                grads = [None if g is None else hvd.allreduce(g, op=hvd.Average) for g in grads]
            return super().apply(grads, trainable_variables)

    Distributed.__name__, Distributed.__qualname__ = base.__name__, base.__qualname__
    Distributed.__module__ = base.__module__
    return Distributed.from_config(optimizer.get_config())


class BroadcastState(Hooks):
    """Callback: when training begins, every rank takes the state of rank ``root_rank``.

    Weights, other saved variables and optimizer slots; not the random seeds, which should differ. Keras 3 and tf_keras. Put it
    before or after ``Checkpoint``: a restored state is the same on all ranks anyway.
    """

    def __init__(self, root_rank: int = 0) -> None:
        super().__init__()
        self._root = root_rank

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts. ``StructureError`` on every rank if they don't have the same model."""
        require_supported("deepfreeze.BroadcastState", self.model)
        hvd = _horovod("deepfreeze.BroadcastState")
        if hvd.size() == 1:
            return
        build_optimizer(self.model)
        state = TrainingState.of(self.model)
        require_same_model(HorovodWorld(hvd), state.description(), named=True)
        # Metrics begin anew, and one rank may have some already where the others don't.
        tensors = state.of_kind(WEIGHT, SLOT, COUNT, STATISTIC)
        hvd.broadcast_variables([tf_variable(tensor.variable) for tensor in tensors], self._root)


def _horovod(where: str) -> Any:
    try:
        import horovod.tensorflow as hvd
    except ImportError as error:
        todo = "pip install 'deepfreeze[horovod]', or train on one rank without it"
        raise UnsupportedError(where=where, expected="Horovod with TensorFlow", found=str(error), todo=todo) from error
    return hvd


def _unsupported(expected: str, found: str, todo: str) -> UnsupportedError:
    return UnsupportedError(where="deepfreeze.DistributedOptimizer", expected=expected, found=found, todo=todo)
