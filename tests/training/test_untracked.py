"""Variables that a model does not list, and those that Keras leaves out of its files, are in the checkpoint and come back."""

import importlib
import logging
import threading
import warnings

import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.format import names
from deepfreeze.format.dataset_groups import WEIGHT, is_untracked, kinds
from deepfreeze.inspect.diff import diff
from deepfreeze.inspect.verify import verify
from deepfreeze.state import untracked
from deepfreeze.store.run import Run
from deepfreeze.thaw import awaited
from tests.support import kerases, untracked_models
from tests.support.untracked_models import MODELS

pytestmark = pytest.mark.tensorflow
FULL = pytest.mark.full


def make(keras, name, seed):
    keras.utils.set_random_seed(seed)
    return MODELS[name](keras)


def fit(model, run, first, last, **options):
    """Trains the batches ``first`` to ``last`` with checkpoints. Any warning is an error, but that of a second model in one run. Returns
    the callback."""
    checkpoint = deepfreeze.Checkpoint(run, every=3, keep=9, resume_epochs=False, verbose=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*to which this process has trained another model")
        model.fit(untracked_models.data(first, last), verbose=0, shuffle=False, callbacks=[checkpoint])
    return checkpoint


def whole(keras, name):
    """All values after ten batches that nothing has interrupted."""
    model = make(keras, name, 1)
    model.fit(untracked_models.data(0, 10), verbose=0, shuffle=False)
    return untracked_models.everything(model)


def differing(model, expected):
    """The names of the values that are not the expected ones, bit for bit."""
    found = untracked_models.everything(model)
    assert found.keys() == expected.keys()
    return [name for name in expected if found[name].tobytes() != expected[name].tobytes()]


def structure(run):
    return Run.open(run).structure(deepfreeze.checkpoints(run)[-1].structure)


def added(run):
    """{path: (role, dtype, shape)} of what Keras leaves out of its file, and DeepFreeze has added."""
    tensors = structure(run).tensors
    return {t.path: (t.spec.role, t.spec.dtype, t.spec.shape) for t in tensors if is_untracked(t.path)}


# What comes back


@kerases.cases(MODELS, often=["hidden_weights", "average"])
def test_a_resumed_training_equals_a_whole_one(keras, name, tmp_path):
    """The second model of the process has other numbers in its names, and other first weights."""
    fit(make(keras, name, 1), tmp_path / "run", 0, 6)
    resumed = make(keras, name, 2)
    fit(resumed, tmp_path / "run", 6, 10)
    assert differing(resumed, whole(keras, name)) == []


@FULL
@kerases.cases(MODELS, both=MODELS)
def test_what_open_has_restored_goes_on_as_well(keras, name, tmp_path):
    fit(make(keras, name, 1), tmp_path / "run", 0, 6)
    resumed = make(keras, name, 2)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=3, resume_epochs=False, verbose=0)
    assert checkpoint.open(resumed) == 6
    resumed.fit(untracked_models.data(6, 10), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert differing(resumed, whole(keras, name)) == []


@FULL
@kerases.cases(MODELS, both=MODELS)
def test_a_second_fit_is_not_traced_again_and_saves_the_same_tensors(keras, name, tmp_path):
    model = make(keras, name, 1)
    checkpoint = fit(model, tmp_path / "run", 0, 6)
    function, saved = model.train_function, added(tmp_path / "run")
    model.fit(untracked_models.data(6, 10), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert model.train_function is function and added(tmp_path / "run") == saved
    assert differing(model, whole(keras, name)) == []


@FULL
@kerases.cases(["average", "generator"], both=["average", "generator"])
def test_restore_says_which_values_wait_and_a_later_fit_gets_them(keras, name, tmp_path, caplog):
    fit(make(keras, name, 1), tmp_path / "run", 0, 6)
    model = make(keras, name, 2)
    with caplog.at_level(logging.WARNING, "deepfreeze"):
        deepfreeze.restore(model, tmp_path / "run")
    (message,) = [record.getMessage() for record in caplog.records if record.name == "deepfreeze"]
    assert message.startswith({"average": "Variable, Variable#2", "generator": "StateVar of step 6"}[name]), message
    fit(model, tmp_path / "other", 6, 10)
    assert differing(model, whole(keras, name)) == []


@FULL
@kerases.cases(["average"], both=["average"])
def test_what_a_fit_has_shown_restore_sets_at_once(keras, name, tmp_path, caplog):
    fit(make(keras, name, 1), tmp_path / "run", 0, 6)
    model = make(keras, name, 2)
    fit(model, tmp_path / "other", 0, 2)
    deepfreeze.restore(model, tmp_path / "run", 6)
    assert [record for record in caplog.records if record.name == "deepfreeze"] == []
    model.fit(untracked_models.data(6, 10), verbose=0, shuffle=False)
    assert differing(model, whole(keras, name)) == []


# What the file has

F32 = "float32"
LISTED = [("replicated", F32, shape) for shape in ((6, 4), (4,), (4, 4), (4,))]  # their names have Keras's numbers
ADDED = {
    "hidden_weights": {
        "deepfreeze/hidden.factor": ("replicated", F32, (5,)),
        "deepfreeze/hidden.shift": ("replicated", F32, (5,)),
    },
    "nowhere": {"deepfreeze/hidden.gain": ("replicated", F32, (5,))},
    "average": {
        "deepfreeze/Variable": ("rank-local", F32, (6, 5)),
        "deepfreeze/Variable#2": ("rank-local", F32, (5,)),
        "deepfreeze/Variable#3": ("rank-local", F32, (5, 1)),
        "deepfreeze/Variable#4": ("rank-local", F32, (1,)),
        "deepfreeze/seen": ("rank-local", "int32", ()),
        "deepfreeze/even": ("rank-local", "int64", ()),
    },
    "generator": {"seeds/deepfreeze/StateVar": ("per-rank", "int64", (3,))},
}


@kerases.cases(MODELS, often=["own_list"])
def test_stock_keras_loads_the_file_with_the_optimizer_and_no_warning(keras, name, tmp_path):
    model = make(keras, name, 1)
    fit(model, tmp_path / "run", 0, 6)
    found = added(tmp_path / "run")
    if name == "own_list":
        assert sorted(found.values()) == sorted(LISTED) and all(path.startswith("deepfreeze/") for path in found)
    else:
        assert found == ADDED[name]
    other = make(keras, name, 2)
    if name != "hidden_weights":
        hidden = [untracked_models.box_of(other).gain] if name == "nowhere" else []
        other.optimizer.build([*other.trainable_variables, *hidden])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.load_weights(deepfreeze.latest(tmp_path / "run").path / names.MODEL_FILE)
    left_out = {f"weights[{n}]" for n in range(4)} if name == "own_list" else set()
    loaded = [one for one in differing(other, untracked_models.everything(model)) if not one.startswith("box.")]
    assert set(loaded) == left_out, "all but what Keras leaves out is loaded, with the optimizer"


@FULL
@kerases.cases(["own_list", "hidden_weights", "average", "generator"])
def test_what_reads_checkpoints_copes_with_what_keras_leaves_out(keras, name, tmp_path):
    model, run = make(keras, name, 1), tmp_path / "run"
    fit(model, run, 0, 6)
    assert verify(run, 6).ok
    assert not diff((run, 6), (run, 6), everything=True).changed
    changed = diff((run, 3), (run, 6), everything=True)
    assert len(changed.changed) + changed.same == len(structure(run).tensors)
    deepfreeze.export(run, tmp_path / "out.safetensors")
    deepfreeze.export(run, tmp_path / "out.weights.h5")
    deepfreeze.export(run, tmp_path / "out.keras")
    from safetensors.numpy import load_file

    weights = [name for name, kind in kinds(structure(run)).items() if kind == WEIGHT]
    assert set(load_file(tmp_path / "out.safetensors")) == set(weights)
    # A model that does not train yet: its own weights are found by name, whatever else the checkpoint has.
    other = make(keras, name, 3)
    report = deepfreeze.transfer(other, run, verbose=0)
    assert not report.missing and not report.mismatched
    assert np.array_equal(other.get_weights()[0], model.get_weights()[0])


@FULL
@kerases.cases(["average"], both=["average"])
def test_names_are_compared_without_the_model_s_though_a_counter_has_none(keras, name, tmp_path):
    def subclass(name):
        class Sub(untracked_models._stepping(keras, after=lambda model: model.box.seen.assign_add(1))):
            """Its weights have its name."""

            def __init__(self):
                super().__init__(name=name)
                self.first, self.last = keras.layers.Dense(3, name="a"), keras.layers.Dense(1, name="b")
                self.box = untracked_models.Box()
                self.box.seen = tf.Variable(0, trainable=False, name="seen")

            def call(self, x):
                return self.last(self.first(x))

        model = Sub()
        model(tf.zeros((1, untracked_models.FEATURES)))
        model.compile("adam", "mse", jit_compile=False)
        return model

    model, other = subclass("one"), subclass("two")
    fit(model, tmp_path / "run", 0, 3)
    assert list(added(tmp_path / "run")) == ["deepfreeze/seen"]
    report = deepfreeze.transfer(other, tmp_path / "run", verbose=0)
    assert (report.loaded[0].name, report.loaded[0].target) == ("one/a/kernel", "two/a/kernel")
    assert len(report.loaded) == 4 and [one.name for one in report.skipped] == ["seen"]


@FULL
@kerases.cases(["hidden_weights"], both=["hidden_weights"])
def test_weights_alone_are_saved_and_restored_without_the_optimizer(keras, name, tmp_path):
    model = make(keras, name, 1)
    fit(model, tmp_path / "run", 0, 6, state="weights")
    assert added(tmp_path / "run") == ADDED[name]
    other = make(keras, name, 2)
    deepfreeze.restore(other, tmp_path / "run")
    left = differing(other, untracked_models.everything(model))
    assert left and all(one.startswith("optimizer[") for one in left)


# What can't be asked, or can't be saved


def told(action):
    """The warnings of DeepFreeze that a call gives, without that of a second model in one run."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", ".*to which this process has trained another model")
        action()
    return [str(one.message) for one in found if "checkpoint" in str(one.message)]


@pytest.mark.parametrize("how", ["run_eagerly", *(pytest.param(how, marks=FULL) for how in ("jit_compile", "loop"))])
@pytest.mark.parametrize("keras", [kerases.NAMES[0], *(pytest.param(n, marks=FULL) for n in kerases.NAMES[1:])])
def test_where_no_graph_can_be_asked_one_warning_names_the_variables(keras, how, tmp_path):
    keras = importlib.import_module(keras)
    model = make(keras, "average", 1)

    def train():
        if how == "loop":
            with deepfreeze.capture(model.optimizer, model, tmp_path / "run", every=2, verbose=0) as checkpoint:
                for batch in untracked_models.data(0, 3):
                    model.train_step(batch)
                    checkpoint.step()
            return
        model.compile("adam", "mse", **{how: True})
        checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, verbose=0)
        for _ in range(2):
            model.fit(untracked_models.data(0, 3), verbose=0, shuffle=False, callbacks=[checkpoint])

    (warning,) = told(train)
    assert warning.startswith("model.box.seen, model.box.even, model.box.fixed, model.box.means[0]"), warning
    assert "self.add_weight(" in warning and added(tmp_path / "run") == {}


@FULL
@kerases.cases(["dense"])
def test_stock_models_cause_no_warning_where_no_graph_is_asked(keras, name, tmp_path):
    layers = keras.layers

    def train():
        for how in ({"run_eagerly": True}, {"jit_compile": True}):
            model = keras.Sequential(
                [keras.Input((6,)), layers.Dense(4), layers.BatchNormalization(), layers.Dropout(0.5)]
            )
            model.add(layers.Dense(1))
            model.compile("adam", "mse", metrics=["mae"], **how)
            checkpoint = deepfreeze.Checkpoint(tmp_path / str(*how), every=2, verbose=0)
            model.fit(untracked_models.data(0, 3), verbose=0, shuffle=False, callbacks=[checkpoint])

    assert told(train) == []


@FULL
@kerases.cases(["average"], both=["average"])
def test_values_that_no_variable_gets_are_named(keras, name, tmp_path):
    fit(make(keras, name, 1), tmp_path / "run", 0, 6)
    other = make(keras, "generator", 2)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=3, resume_epochs=False, verbose=0)
    (warning,) = told(lambda: other.fit(untracked_models.data(6, 8), verbose=0, shuffle=False, callbacks=[checkpoint]))
    assert (
        "Variable, Variable#2, Variable#3, Variable#4, seen, even" in warning and "Nothing got these values" in warning
    )
    assert awaited.left(other) == [], "a later fit must not get them"


@FULL
@kerases.cases(["hidden_weights"], both=["hidden_weights"])
def test_a_trained_weight_without_a_variable_ends_training_before_a_step(keras, name, tmp_path):
    fit(make(keras, name, 1), tmp_path / "run", 0, 6)
    other = make(keras, "own_list", 2)
    with pytest.raises(deepfreeze.StructureError):
        fit(other, tmp_path / "run", 6, 10)
    assert int(np.asarray(other.optimizer.iterations)) == 0


@FULL
@pytest.mark.parametrize("eager", [False, True])
@kerases.cases(["nowhere"], both=["nowhere"])
def test_a_trained_weight_that_waits_in_vain_ends_the_fit(keras, name, eager, tmp_path):
    """A start may hope for the variable while an optimizer is not built. The trace, or a step that is not traced, ends that."""

    def made(seed, **options):
        keras.utils.set_random_seed(seed)
        model = untracked_models.nowhere(keras, **options)
        model._spare = keras.optimizers.SGD()  # nothing applies it, so it is never built
        return model

    fit(made(1), tmp_path / "run", 0, 6, state="weights")
    model = made(2, trains=False)
    model.run_eagerly = eager
    with pytest.raises(deepfreeze.StructureError, match=r"weights that an optimizer has trained.*none for hidden/gain"):
        fit(model, tmp_path / "run", 6, 10, state="weights")
    assert int(np.asarray(model.optimizer.iterations)) == 6


@FULL
@kerases.cases(["nowhere"], both=["nowhere"])
def test_a_built_optimizer_that_does_not_train_a_weight_ends_the_restore(keras, name, tmp_path):
    """Nothing is left to hope for, so the model stays as it is."""
    fit(make(keras, name, 1), tmp_path / "run", 0, 6, state="weights")
    model = untracked_models.nowhere(keras, trains=False)
    model.optimizer.build(model.trainable_variables)
    before = model.get_weights()
    with pytest.raises(deepfreeze.StructureError, match=r"only the checkpoint has deepfreeze/hidden\.gain"):
        deepfreeze.restore(model, tmp_path / "run")
    assert all(map(np.array_equal, model.get_weights(), before))


@FULL
@kerases.cases(["text"], both=["text"])
def test_a_type_that_no_checkpoint_holds_is_left_out_with_its_name(keras, name, tmp_path):
    def after(model):
        model.box.text.assign("step")

    model = untracked_models._functional(keras, untracked_models._stepping(keras, after=after))
    model.box = untracked_models.Box()
    model.box.text = tf.Variable("new", trainable=False, name="text")
    model.compile("adam", "mse", jit_compile=False)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=3, verbose=0)
    (warning,) = told(lambda: model.fit(untracked_models.data(0, 3), verbose=0, shuffle=False, callbacks=[checkpoint]))
    assert warning.startswith("the step writes text, which no checkpoint can hold")


@FULL
@pytest.mark.skipif(kerases.NAMES[-1] == "keras" and not kerases.KERAS_IS_2, reason="Keras 2 keeps names alone")
def test_a_loop_that_trains_what_nobody_can_find_is_refused_with_the_name(tmp_path):
    keras = importlib.import_module(kerases.NAMES[-1])
    model = make(keras, "nowhere", 1)
    model.optimizer.build([*model.trainable_variables, untracked_models.box_of(model).gain])
    with pytest.raises(deepfreeze.UnsupportedError, match=r"also trains hidden/gain\. .*model\.gain = variable"):
        deepfreeze.capture(model.optimizer, model, tmp_path / "run", every=2, verbose=0)


@FULL
@pytest.mark.skipif(kerases.NAMES[-1] == "keras" and not kerases.KERAS_IS_2, reason="Keras 2 keeps names alone")
def test_a_fit_that_trains_what_no_trace_can_find_is_refused_with_the_name(tmp_path):
    """Its step can't be traced in another thread."""
    keras = importlib.import_module(kerases.NAMES[-1])
    model = make(keras, "nowhere", 1)
    step = model.train_step

    def here(data):
        assert threading.current_thread() is threading.main_thread(), "not here"
        return step(data)

    model.train_step = here
    model.optimizer.build([*model.trainable_variables, untracked_models.box_of(model).gain])
    with pytest.raises(deepfreeze.UnsupportedError, match=r"deepfreeze\.Checkpoint: .*also trains hidden/gain\."):
        fit(model, tmp_path / "run", 0, 3)
    assert int(np.asarray(model.optimizer.iterations)) == 0


@FULL
@kerases.cases(["average"])
def test_what_the_traced_step_writes_can_be_asked_later(keras, name, tmp_path):
    model = make(keras, name, 1)
    assert untracked.written(model) == []
    fit(model, tmp_path / "run", 0, 3)
    box = model.box
    expected = [*box.means, box.seen, box.even]
    assert [id(one) for one in untracked.written(model)] == [id(one) for one in expected]


@FULL
@kerases.cases(["average"])
def test_a_checkpoint_of_an_older_version_gives_what_it_has(keras, name, tmp_path, monkeypatch):
    """It has nothing that Keras leaves out: such variables keep the values that the program gives them."""
    with monkeypatch.context() as patch:
        patch.setattr(untracked, "note_written", lambda model, variables: None)
        fit(make(keras, name, 1), tmp_path / "run", 0, 6)
    assert added(tmp_path / "run") == {}
    resumed = make(keras, name, 2)
    fit(resumed, tmp_path / "run", 6, 10)
    assert int(resumed.box.seen) == 4 and len(added(tmp_path / "run")) == 6
