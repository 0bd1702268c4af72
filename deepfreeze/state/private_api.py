"""The functions that ask for private names of TensorFlow, Horovod, Keras 3 and tf_keras (Keras 2): one function for each name of the table
in ``private_names`` that DeepFreeze asks for.

No other code uses the private name, and the function returns None, or a default, where the name is missing. This module imports none of
the packages: for a package that the process has not imported, the names are missing.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any


def layer_generator(layer: Any) -> Any:
    """The TensorFlow generator of a Keras 2 random layer, whose ``state`` is a variable; None if the layer has none. Layers have one only
    if the program has called ``enable_tf_random_generator()``."""
    return getattr(getattr(layer, "_random_generator", None), "_generator", None)


# By the name of the method: the same in each version, whatever the module is called. ``tests/state/test_private_api`` compares them with
# the classes of the installed Kerases.
ASSIGNING = frozenset(
    f"{name}.load_own_variables"
    for name in ("Layer", "BaseConv", "Dense", "EinsumDense", "Embedding", "BaseOptimizer", "_BaseOptimizer")
)


def assigns_alone(thing: Any) -> bool:
    """Whether the ``load_own_variables`` of an object of Keras is one of Keras's own that assigns the values to the object's variables and
    does no more; also true if the object has no such method. A quantised layer also notes that it is calibrated: false. A layer with low
    ranks (LoRA) sets its factors to zero, because its file has them within the kernel, and derives nothing: true."""
    method = getattr(thing, "load_own_variables", None)
    function = getattr(method, "__func__", None)
    if function is None or function.__module__.partition(".")[0] not in ("keras", "tf_keras"):
        return method is None
    if function.__qualname__ == "Layer.load_own_variables" or function.__qualname__ not in ASSIGNING:
        return function.__qualname__ in ASSIGNING
    return bool(getattr(thing, "lora_enabled", False)) or getattr(thing, "quantization_mode", None) is None


def lookup_weights(layer: Any) -> list[tuple[str, Any]]:
    """(name, ``tf.Variable``) of the inverse document frequencies of each lookup (``output_mode="tf_idf"``) that a Keras 3 layer is, or
    has inside. Keras 3 saves these variables and lists them nowhere. ``[]`` on Keras 2, which lists them."""
    flatten = getattr(layer, "_flatten_layers", None)
    if flatten is None or not hasattr(layer, "stateless_call"):
        return []
    found = ((one.name, vars(one).get("idf_weights")) for one in flatten())
    return [(f"{name}/idf_weights", weights) for name, weights in found if hasattr(weights, "assign")]


def read_only_inputs(op: Any) -> list[Any] | None:
    """The inputs of a graph's op that are handles of variables which the functions that it calls only read; None if TensorFlow has not
    noted them."""
    try:
        return [op.inputs[number] for number in op.get_attr("_read_only_resource_inputs")]
    except (AttributeError, ValueError):
        return None


def watched_variables(graph: Any) -> list[Any] | None:
    """The ``tf.Variable`` objects that the ops of a function's graph, which is still being traced, read or write, in no order; None if
    TensorFlow does not note them."""
    watched = getattr(graph, "_watched_variables", None)
    return None if watched is None else list(watched)


def variable_of_handle(handle: Any) -> str | None:
    """The name of the variable that a handle (a tensor outside of any graph) belongs to; None for the handle of something else, such as a
    lookup table."""
    match = re.search(r'name="([^"]*?)(?:/[0-9]+)?".*type="tensorflow::Var"', repr(handle))
    return match[1] if match else None


def is_generator_state(variable: Any) -> bool:
    """Whether a ``tf.Variable`` is the state of a ``tf.random.Generator``, which has given the variable its name."""
    return str(getattr(variable, "name", "")).rpartition("/")[2].partition(":")[0] == "StateVar"


def fits_own(model: Any) -> list[Any]:
    """The variables in which a Keras 2 model counts the batches of a process, and has its setting for ``fit``; [] for Keras 3."""
    names = ("_train_counter", "_test_counter", "_predict_counter", "_steps_per_execution")
    return [getattr(model, name) for name in names if getattr(model, name, None) is not None]


def scheduled_rate(optimizer: Any) -> list[Any]:
    """The variable in which a Keras 2 optimizer with a schedule has the learning rate of the present step; [] if it has none."""
    rate = getattr(optimizer, "_current_learning_rate", None)
    return [] if rate is None else [rate]


def says_built(optimizer: Any) -> bool:
    """Whether a Keras 2 optimizer reports that it has made its variables. The public attribute ``built`` exists in Keras 3 alone."""
    return bool(getattr(optimizer, "_built", False))


def loss_scale(optimizer: Any) -> list[Any]:
    """The variables of a Keras 2 LossScaleOptimizer that its ``variables`` lacks and its files too: the scale, and the number of updates
    since it was changed. ``[]`` for any other optimizer, and for a scale that is fixed."""
    state = getattr(optimizer, "_loss_scale", None)
    scale, updates = getattr(state, "current_loss_scale", None), getattr(state, "counter", None)
    return [] if scale is None or updates is None else [scale, updates]


def trained_variables(optimizer: Any) -> list[Any]:
    """The variables that a Keras 3 optimizer was built with; [] for an optimizer of Keras 2, and for one that is not built."""
    return list(getattr(optimizer, "_trainable_variables", ()))


def trained_keys(optimizer: Any) -> dict[str, str]:
    """The keys (``key_of``) of the variables that a Keras 2 optimizer was built with, each with the variable's name; {} for an optimizer of
    Keras 3, and for one that is not built."""
    keys = getattr(optimizer, "_index_dict", None)
    return {key: key.rpartition("_")[0] for key in keys} if isinstance(keys, dict) else {}


def key_of(variable: Any) -> Any:
    """The text by which an optimizer of Keras 2 knows a ``tf.Variable``; None for a variable of Keras 3."""
    return getattr(variable, "_unique_id", None)


def batch_counter(optimizer: Any) -> Any:
    """The variable in which a Keras 3 optimizer with ``gradient_accumulation_steps`` counts batches; None if it has no such variable. The
    public ``iterations`` of such an optimizer is this count divided by ``gradient_accumulation_steps``."""
    return getattr(optimizer, "_iterations", None)


def steps_per_execution(model: Any) -> int:
    """The ``steps_per_execution`` that ``compile`` was given; 1 if unknown. Keras 2 keeps it in a private variable."""
    steps: Any = getattr(model, "steps_per_execution", None) or getattr(model, "_steps_per_execution", None)
    return int(steps.numpy() if hasattr(steps, "numpy") else steps or 1)


def fits_initial_epoch(model: Any) -> int | None:
    """The argument ``initial_epoch`` of the ``model.fit`` that this thread is in; None outside of one. Callbacks are not told of it."""
    for variables in variables_of_fit(model):
        with contextlib.suppress(TypeError):
            return operator.index(variables.get("initial_epoch"))  # type: ignore[arg-type]
    return None


def variables_of_fit(model: Any) -> list[Mapping[str, Any]]:
    """The local variables of each ``model.fit`` that this thread is in, from the innermost outwards; of none outside of the ``evaluate``
    or ``predict`` that a callback has called."""
    found: list[Mapping[str, Any]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in ("fit", "evaluate", "predict") and frame.f_locals.get("self") is model:
            if frame.f_code.co_name != "fit":
                break
            found.append(frame.f_locals)
        frame = frame.f_back
    return found


def in_fit(callback: Any) -> bool:
    """Whether this thread is in a ``model.fit`` that has ``callback`` among its callbacks, or callbacks that can't be told."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if frame.f_code.co_name == "fit" and package in ("keras", "tf_keras"):
            callbacks: Any = frame.f_locals.get("callbacks")
            found = getattr(callbacks, "callbacks", callbacks)
            if not isinstance(found, (list, tuple)) or any(one is callback for one in found):
                return True
        frame = frame.f_back
    return False


def first_epoch(model: Any) -> Callable[[int | None], None] | None:
    """A function that sets the epoch with which a ``fit`` of Keras 3 begins, to be called in ``on_train_begin``; with None it sets what was
    there before. None if the model has no such attribute, or if another callback has set it."""
    return functools.partial(setattr, model, "_initial_epoch") if getattr(model, "_initial_epoch", 0) is None else None


def first_batch(model: Any) -> Callable[[int], None] | None:
    """A function that has the first epoch of a ``fit`` of Keras 3 begin with the batch of this number, to be called in ``on_train_begin``.
    The input must yield the rest of the epoch, which Keras then counts from this number on. None if Keras has no such iterator."""
    iterator: Any = next((v["epoch_iterator"] for v in variables_of_fit(model) if "epoch_iterator" in v), None)
    adapter: Any = getattr(iterator, "data_adapter", None)
    whole_epoch = getattr(iterator, "_enumerate_iterator", None)
    if whole_epoch is None or not hasattr(adapter, "on_epoch_end"):
        return None

    def begin_with(batch: int) -> None:
        def rest_of_epoch() -> Iterator[tuple[int, int, Any]]:
            del iterator._enumerate_iterator  # the class's own method serves the epochs that follow
            for begin, end, batches in whole_epoch():
                if begin + batch >= total:
                    adapter.on_epoch_end()
                    return
                yield begin + batch, end + batch, batches

        total = iterator.num_batches

        iterator._enumerate_iterator = rest_of_epoch

    return begin_with


def training_state(model: Any) -> Callable[[int | None, int], None] | None:
    """As ``first_epoch``, for Keras 2, and for the batch in that epoch too: its ``fit`` asks an object for both, which ``BackupAndRestore``
    leaves with the model too."""
    if getattr(model, "_training_state", 0) is not None:
        return None

    def begin_with(epoch: int | None, batch: int = 0) -> None:
        model._training_state = None if epoch is None else _BeginsWith(epoch, batch)

    return begin_with


class _BeginsWith:
    def __init__(self, epoch: int, batch: int) -> None:
        self._epoch, self._batch = epoch, batch

    def maybe_load_initial_counters_from_ckpt(self, *_: Any, **__: Any) -> tuple[int, int]:
        """The epoch and the batch with which ``fit`` begins."""
        return self._epoch, self._batch


def saving_counts(callback: Any) -> dict[str, int | None]:
    """The attributes, by name, by which ``ModelCheckpoint(save_freq=)`` counts batches. Empty if it has none."""
    names = ("_batches_seen_since_last_saving", "_last_batch_seen")
    return {name: getattr(callback, name) for name in names if hasattr(callback, name)}


def plotting_counts(callback: Any) -> dict[str, int]:
    """The attributes, by name, by which ``TensorBoard`` numbers batches. Empty if it has none."""
    names = ("_global_train_batch", "_global_test_batch")
    return {name: getattr(callback, name) for name in names if hasattr(callback, name)}


def plotted_step(callback: Any) -> Any:
    """The variable of a Keras 2 model with the number of the batch, by which ``TensorBoard`` plots. None on Keras 3, and where the
    callback has no model."""
    return getattr(callback, "_train_step", None)


def horovods_accumulator(optimizer: Any) -> Any:
    """The object with which Horovod's optimizer sums gradients over ``backward_passes_per_step`` batches; None if it sums none."""
    return getattr(optimizer, "_agg_helper", None)


def flattened(module: Any) -> Any:
    """The method of a ``tf.Module`` that lists its variables with the names of the attributes that lead to them; None for an object without
    the method. The public ``variables`` gives no such names."""
    return getattr(module, "_flatten", None)


def seeded_context() -> Any:
    """TensorFlow's object with the seed of ``tf.random.set_seed`` (attribute ``_seed``) and the generator (``_rng``) from which
    operations without a seed get one; None if no seed was set. TensorFlow has a public function to set the seed, and none to read it."""
    module: Any = sys.modules.get("tensorflow.python.eager.context")
    context = module.context() if module is not None else None
    known = getattr(context, "_seed", None) is not None and hasattr(context, "_rng")
    return context if known else None


def tensorflow_generator() -> Any:
    """The variable with the state of TensorFlow's global generator; None if there is no such generator yet. The public
    ``get_global_generator`` would make one, and draw numbers for it."""
    ops: Any = sys.modules.get("tensorflow.python.ops.stateful_random_ops")
    generator = getattr(ops, "global_generator", None)
    return None if generator is None else generator.state


def keras_generator() -> Any:
    """Keras 3's variable with the state of its global seed generator; None if there is no such generator yet. Every public
    function would make one."""
    state: Any = sys.modules.get("keras.src.backend.common.global_state")
    generator = state.get_global_attribute("global_seed_generator") if state is not None else None
    return None if generator is None else generator.state


def thread_states() -> list[dict[str, Any]]:
    """What Keras 3 keeps for the calling thread: its policy of precision, the numbers behind the names of layers, its seed generator.
    An empty list where only Keras 2 is imported, which keeps these for the process."""
    state: Any = sys.modules.get("keras.src.backend.common.global_state")
    trackers = [getattr(state, name, None) for name in ("GLOBAL_STATE_TRACKER", "GLOBAL_SETTINGS_TRACKER")]
    return [vars(tracker) for tracker in trackers if tracker is not None]


def traced_apart() -> contextlib.AbstractContextManager[Any]:
    """A block in which each ``tf.function`` of this thread traces anew, and after which it has forgotten that it did. The block says that a
    SavedModel is written, which is a part of the key by which functions find what they have traced."""
    module: Any = sys.modules.get("tensorflow.python.saved_model.save_context")
    context = getattr(module, "save_context", None)
    if context is None or module.in_save_context():
        return contextlib.nullcontext()
    return context(sys.modules["tensorflow"].saved_model.SaveOptions())


def passed_through(error: Any) -> None:
    """Marks an exception, which is raised while Keras 2 traces, as one that autograph passes on as it is. Autograph raises another class in
    place of one whose constructor it does not know."""
    if isinstance(error, BaseException):
        error.ag_pass_through = True  # type: ignore[attr-defined]
