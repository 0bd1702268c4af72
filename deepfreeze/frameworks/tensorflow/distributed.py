"""Data-parallel training under Horovod: an optimizer that averages its gradients, for Keras 3, on which Horovod's own fails; and callbacks
that make the ranks' variables equal and average their metrics. Imports TensorFlow, and Horovod when it is used.
"""

from __future__ import annotations

from typing import Any

from deepfreeze.errors import UnsupportedError
from deepfreeze.events.messages import to_logger
from deepfreeze.frameworks.keras_hooks import Hooks
from deepfreeze.frameworks.tensorflow.first_trace import FirstTrace, begins_with_trace, in_own_thread
from deepfreeze.frameworks.tensorflow.hooks import make_anew
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.ranks.same_model import require_same_model
from deepfreeze.ranks.wait import Patience
from deepfreeze.ranks.world import HorovodWorld, each
from deepfreeze.state.applied import is_seen
from deepfreeze.state.derived_state import PREDICT, TEST, DerivedState
from deepfreeze.state.keras_objects import build_optimizer, optimizers
from deepfreeze.state.supported import require_supported
from deepfreeze.state.training_state import COUNT, SLOT, STATISTIC, WEIGHT, TrainingState


def DistributedOptimizer(optimizer: Any) -> Any:  # named as Horovod names its own
    """Returns an optimizer that averages the gradients over all ranks before each update, and is otherwise like ``optimizer``.

    There is one allreduce per tensor, so that each weight is updated, and captured, as soon as its own gradient is averaged. Horovod
    fuses small allreduces by itself. (One grouped allreduce would end only with the last gradient.)

    Args:
        optimizer: a Keras 3 optimizer that is not built yet: wrap it before ``model.compile``.

    Returns:
        a new optimizer, made from the configuration of ``optimizer``. Its class is a subclass of the class of ``optimizer``, with the
        same name.

    Raises:
        UnsupportedError: if ``optimizer`` is not one of Keras 3 on TensorFlow (with tf_keras use Horovod's own
            ``horovod.tensorflow.keras.DistributedOptimizer``), or is built already, or if Horovod is not installed.
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
        """Averages the gradients over all ranks, then updates as its base class does."""

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
    """Keras callback: when training begins, every rank takes the state of rank ``root_rank``.

    The state is the model's weights and the optimizers' variables, without metrics, and without random seeds, which should differ between
    ranks. Objects that derive state from their weights (an adapted ``Normalization``) derive it anew. Works with Keras 3 and tf_keras. The
    callback may come before or after ``Checkpoint`` in the list, because a state that ``Checkpoint`` has restored is the same on all
    ranks. ``timeout``: seconds for which a rank waits for the others to come to ``on_train_begin``.
    """

    def __init__(self, root_rank: int = 0, timeout: float = 600.0) -> None:
        super().__init__()
        self._root = root_rank
        self._patience = Patience("deepfreeze.BroadcastState", timeout, to_logger)

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts the state, or has it broadcast while Keras traces the first batch, if that builds the model or its optimizers.
        Collective. ``StructureError`` on every rank if the ranks have different models, ``WaitError`` if other ranks don't come,
        ``WorldError`` if they come with another callback, ``UnsupportedError`` if Horovod is not installed."""
        require_supported("deepfreeze.BroadcastState", self.model)
        hvd = _horovod("deepfreeze.BroadcastState")
        if hvd.size() == 1:
            return
        if begins_with_trace(self.model):
            # Horovod broadcasts by a tf.function that it keeps, which can't be called again below tf.init_scope.
            FirstTrace.of(self.model).then(self, lambda: in_own_thread(self._broadcast))
        else:
            self._broadcast()

    def _broadcast(self) -> None:
        hvd = _horovod("deepfreeze.BroadcastState")
        known = optimizers(self.model)
        if len(known) == 1 and not is_seen(self.model, *known.values()):
            # Of several optimizers the compiled one may be a default that train_step never applies (a GAN's): it stays without slots. So
            # does one that a trace has shown not to be applied.
            build_optimizer(self.model)
        state = TrainingState.of(self.model)
        world = HorovodWorld(hvd, self._patience)
        require_same_model(world, state.description(), named=True)
        # Without metrics: they begin anew, and their variables may exist on one rank and not yet on another.
        variables = [tensor.variable for tensor in state.of_kind(WEIGHT, SLOT, COUNT, STATISTIC)]
        derived = each(world, lambda: DerivedState(self.model))
        before = derived.values()
        hvd.broadcast_variables([tf_variable(variable) for variable in variables], self._root)
        if derived.values() != before and derived.load(variables, True, f"the state of rank {self._root}"):
            derived.make_functions_anew(TEST, PREDICT)
            make_anew(self.model)


class AverageMetrics(Hooks):
    """Keras callback: at the end of each epoch the numbers in ``logs`` become their averages over all ranks, in float64. Each rank has
    counted its own share of the data; callbacks behind this one (``Checkpoint``, ``ReduceLROnPlateau``), ``History`` too, see the averages
    and decide alike on all ranks.

    A number that one rank alone has, such as the metrics of a validation on rank 0, stays as it is; so do values that are no numbers,
    and ``Checkpoint``'s own figures. Works with Keras 3 and tf_keras, and does nothing on one rank.

    ``timeout``: seconds for which a rank waits for the others at the end of an epoch, longer than a validation on one rank alone takes.
    """

    def __init__(self, timeout: float = 600.0) -> None:
        super().__init__()
        self._patience = Patience("deepfreeze.AverageMetrics", timeout, to_logger)

    def on_train_begin(self, logs: Any = None) -> None:
        """``UnsupportedError`` if Horovod is not installed."""
        _horovod("deepfreeze.AverageMetrics")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Averages the ``logs`` in place. Collective. ``WaitError`` or ``WorldError`` as ``BroadcastState`` raises them."""
        world = HorovodWorld(_horovod("deepfreeze.AverageMetrics"), self._patience)
        if world.size == 1 or not isinstance(logs, dict):
            return
        # The values themselves are gathered, not averaged one by one: a rank that has more of them than another would wait for ever.
        all_ranks = world.gather({name: float(value) for name, value in logs.items() if _is_metric(name, value)})
        for name in all_ranks[world.rank]:
            if all(name in one for one in all_ranks):
                logs[name] = sum(one[name] for one in all_ranks) / world.size


def _is_metric(name: str, value: Any) -> bool:
    return not name.startswith("deepfreeze_") and hasattr(value, "__float__") and getattr(value, "ndim", 0) == 0


def _horovod(where: str) -> Any:
    try:
        import horovod.tensorflow as hvd
    except ImportError as error:
        todo = "run pip install 'deepfreeze[horovod]' and deepfreeze build-horovod, or train on one rank without it"
        raise UnsupportedError(where=where, expected="Horovod with TensorFlow", found=str(error), todo=todo) from error
    return hvd


def _unsupported(expected: str, found: str, todo: str) -> UnsupportedError:
    return UnsupportedError(where="deepfreeze.DistributedOptimizer", expected=expected, found=found, todo=todo)
