"""All private names of TensorFlow, Horovod, Keras 3 and tf_keras (Keras 2) that DeepFreeze uses, in one table. A new version of these
packages may change them without notice.

A row whose name DeepFreeze asks for has a function in ``state/private_api``. The last rows are names that DeepFreeze does not ask for:
Keras asks a callback for them, or has written them into files. Each is in the module that the row tells, below the rooms that may import
``private_api``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrivateName:
    """A private ``name`` that ``package`` has from version ``since`` on. ``function``: the function of ``private_api`` that uses the name;
    ``missing``: the consequence for the user where the name is missing; ``module``: for a name that DeepFreeze does not ask for, the module
    that has it, whose ``function`` is then a class or a constant; else ``private_api``."""

    name: str
    package: str
    since: str
    function: str
    missing: str
    module: str = "state/private_api"


TABLE = (
    PrivateName(
        "Layer._random_generator._generator", "Keras 2", "2.10", "layer_generator", "no seed of that layer is saved"
    ),
    PrivateName("Optimizer._built", "Keras 2", "2.11", "says_built", "the optimizer counts as not built"),
    PrivateName(
        "LossScaleOptimizer._loss_scale",
        "Keras 2",
        "2.4",
        "loss_scale",
        "a resumed float16 training begins with the first loss scale",
    ),
    PrivateName(
        "Optimizer._trainable_variables",
        "Keras 3",
        "3.0",
        "trained_variables",
        "weights that no model lists are not saved",
    ),
    PrivateName(
        "Optimizer._index_dict", "Keras 2", "2.11", "trained_keys", "weights that no model lists are not saved"
    ),
    PrivateName("Variable._unique_id", "TensorFlow", "2.0", "key_of", "weights that no model lists are refused"),
    PrivateName("Optimizer._iterations", "Keras 3", "3.1", "batch_counter", "gradient accumulation is refused"),
    PrivateName("Model._steps_per_execution", "Keras 2", "2.4", "steps_per_execution", "one step per execution"),
    PrivateName(
        "frame of Model.fit", "Keras 2 and 3", "2.0", "variables_of_fit", "a fit that goes on trains all its epochs"
    ),
    PrivateName(
        "initial_epoch, a variable of Model.fit",
        "Keras 2 and 3",
        "2.0",
        "fits_initial_epoch",
        "a fit that goes on trains all its epochs",
    ),
    PrivateName(
        "callbacks, a variable of Model.fit",
        "Keras 2 and 3",
        "2.0",
        "in_fit",
        "a fit that was interrupted keeps its run until close()",
    ),
    PrivateName("Model._initial_epoch", "Keras 3", "3.3", "first_epoch", "a message says: pass initial_epoch"),
    PrivateName("Model._training_state", "Keras 2", "2.15", "training_state", "a message says: pass initial_epoch"),
    PrivateName(
        "EpochIterator._enumerate_iterator",
        "Keras 3",
        "3.0",
        "first_batch",
        "an interrupted epoch of data= begins again",
    ),
    PrivateName(
        "ModelCheckpoint._batches_seen_since_last_saving, _last_batch_seen",
        "Keras 2 and 3",
        "2.2",
        "saving_counts",
        "ModelCheckpoint(save_freq=) counts from the resume on",
    ),
    PrivateName(
        "TensorBoard._global_train_batch, _global_test_batch",
        "Keras 2 and 3",
        "2.3",
        "plotting_counts",
        "plots of batches begin at 0 after a resume",
    ),
    PrivateName(
        "TensorBoard._train_step", "Keras 2", "2.3", "plotted_step", "plots of batches begin at 0 after a resume"
    ),
    PrivateName("Optimizer._agg_helper", "Horovod", "0.21", "horovods_accumulator", "every batch is an update"),
    PrivateName("Module._flatten", "TensorFlow", "2.0", "flattened", "a tf.Module is refused"),
    PrivateName(
        "eager.context.context()._seed, _rng", "TensorFlow", "2.0", "seeded_context", 'rng="all" leaves it out'
    ),
    PrivateName(
        "stateful_random_ops.global_generator", "TensorFlow", "2.2", "tensorflow_generator", 'rng="all" leaves it out'
    ),
    PrivateName(
        "keras.src.backend.common.global_state", "Keras 3", "3.0", "keras_generator", 'rng="all" leaves it out'
    ),
    PrivateName(
        "global_state.GLOBAL_STATE_TRACKER, GLOBAL_SETTINGS_TRACKER",
        "Keras 3",
        "3.0",
        "thread_states",
        "a model that its first batch builds has no policy of mixed precision, and other names",
    ),
    PrivateName(
        "FuncGraph._watched_variables",
        "TensorFlow",
        "2.0",
        "watched_variables",
        "variables that the step writes and nobody lists are not saved, and a warning says so",
    ),
    PrivateName(
        "text of a handle: name and type=tensorflow::Var",
        "TensorFlow",
        "2.9",
        "variable_of_handle",
        "no warning names a variable that the step writes and nobody holds",
    ),
    PrivateName(
        "Generator._state_var, whose name is StateVar",
        "TensorFlow",
        "2.2",
        "is_generator_state",
        "all ranks go on with rank 0's state of a generator of the program's own",
    ),
    PrivateName(
        "Model._train_counter, _test_counter, _predict_counter, _steps_per_execution",
        "Keras 2",
        "2.4",
        "fits_own",
        "checkpoints have a number more, or a warning names one",
    ),
    PrivateName(
        "Optimizer._current_learning_rate",
        "Keras 2",
        "2.11",
        "scheduled_rate",
        "checkpoints have a number more, the rate of a schedule",
    ),
    PrivateName(
        "attribute of ops: _read_only_resource_inputs",
        "TensorFlow",
        "2.2",
        "read_only_inputs",
        "a profiled step takes calls that read a weight for its updates, and the plan has less time for the weight",
    ),
    PrivateName(
        "autograph.impl.api: ag_pass_through", "TensorFlow", "2.2", "passed_through", "Keras 2 raises a StagingError"
    ),
    PrivateName(
        "saved_model.save_context",
        "TensorFlow",
        "2.2",
        "traced_apart",
        "a train_step of the user's that is a tf.function, or calls one to update, is refused unless its optimizer is built",
    ),
    PrivateName(
        "classes whose load_own_variables assigns and does no more: Layer, BaseConv, Dense, EinsumDense, Embedding, _BaseOptimizer",
        "Keras 2 and 3",
        "2.12",
        "assigns_alone",
        "a restore takes longer: each such object loads the values that it has already",
    ),
    PrivateName(
        "Layer._flatten_layers, IndexLookup.idf_weights",
        "Keras 3",
        "3.0",
        "lookup_weights",
        "the weights of a lookup with tf_idf are in no checkpoint, and stock Keras can't load the file",
    ),
    PrivateName(
        "Callback._supports_tf_logs",
        "Keras 2",
        "2.3",
        "Hooks",
        "each step waits until its logs are numbers",
        "frameworks/keras_hooks",
    ),
    PrivateName(
        "Callback._chief_worker_only",
        "Keras 2",
        "2.0",
        "Hooks",
        "nothing changes: only tf.distribute asks for it",
        "frameworks/keras_hooks",
    ),
    PrivateName(
        "Callback._implements_train_batch_hooks, _implements_test_batch_hooks, _implements_predict_batch_hooks",
        "Keras 2",
        "2.2",
        "Hooks",
        "fit, evaluate and predict call hooks that do nothing after each batch",
        "frameworks/keras_hooks",
    ),
    PrivateName(
        "frame of Model.fit, evaluate and predict",
        "Keras 2 and 3",
        "2.0",
        "call_around",
        "evaluate and predict take the items of the next epoch",
        "data/keras_calls",
    ),
    PrivateName(
        "EpochIterator._num_batches, frame of _enumerate_iterator",
        "Keras 3",
        "3.0",
        "tell_length",
        "a fit that begins within an epoch warns that its input ran out of data, or cuts its other epochs short",
        "data/keras_calls",
    ),
    PrivateName(
        "in weights files: _layer_checkpoint_dependencies",
        "Keras 2",
        "2.13",
        "_CONTAINERS",
        "the model's own name in such a file may be taken for a layer's",
        "matching/weights",
    ),
)
