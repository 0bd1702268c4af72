"""A notebook's cell that was interrupted and is run again, with new objects: the new training takes the run over from the old one."""

import code
import sys
import threading

import pytest

import deepfreeze
from deepfreeze.errors import LockedError, RunError
from deepfreeze.store import Latest
from tests.support import jobs, kerases, trainings

pytestmark = pytest.mark.tensorflow

CELLS = {
    "fit": """
checkpoint = deepfreeze.Checkpoint(run, 2, keep=9)
model.fit(trainings.data(8), verbose=0, callbacks=[checkpoint, Interrupt()])
""",
    "open": """
checkpoint = deepfreeze.Checkpoint(run, 2, keep=9)
checkpoint.open(model)
model.fit(trainings.data(8), verbose=0, callbacks=[checkpoint, Interrupt()])
""",
    "loop": """
checkpoint = deepfreeze.capture(model.optimizer, model, run, 2, keep=9)
for x, y in trainings.data(8 - checkpoint.start):
    interrupt()
    train(model, x, y)
    checkpoint.step()
checkpoint.finish()
""",
}


def train(model, x, y):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    weights = model.trainable_variables
    model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))


@pytest.fixture
def notebook(keras, tmp_path):
    """Runs a cell, in which Ctrl-C comes at the step ``at``; its names stay. Returns whether it came."""
    names = {"deepfreeze": deepfreeze, "trainings": trainings, "run": str(tmp_path / "run"), "train": train}
    shell, at = code.InteractiveInterpreter(names), []

    def interrupt():
        if [trainings.count(names["model"].optimizer)] == at:
            raise KeyboardInterrupt

    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            interrupt()

    names |= {"interrupt": interrupt, "Interrupt": Interrupt}

    def run(cell, step=None):
        at[:] = [] if step is None else [step]
        names["model"] = trainings.dense(keras)
        sys.last_type = None
        shell.runsource(cell, "<cell>", "exec")
        if sys.last_type not in (None, KeyboardInterrupt):
            raise sys.last_value
        return sys.last_type is KeyboardInterrupt

    run.names = names
    yield run
    sys.last_type = sys.last_value = sys.last_traceback = None


def steps(tmp_path):
    return [info.step for info in deepfreeze.checkpoints(tmp_path / "run")]


@kerases.one_will_do
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("fit", "fit"),
        *(
            pytest.param(*pair, marks=pytest.mark.full)
            for pair in [("loop", "loop"), ("fit", "loop"), ("loop", "fit"), ("open", "open"), ("open", "loop")]
        ),
    ],
)
def test_a_cell_that_is_run_again_takes_the_run_over(notebook, tmp_path, capsys, first, second):
    assert notebook(CELLS[first], step=5)
    notebook.names["before"] = notebook.names["checkpoint"]  # as some other cell of the notebook may do
    assert not notebook(CELLS[second])
    said = capsys.readouterr().err
    who = "deepfreeze.capture" if first == "loop" else "deepfreeze.Checkpoint"
    assert said.count(f"the {who} that an interrupted training has left here is closed") == 1
    assert "resumed at step 4" in said, "what was captured is committed"
    # A fit goes on with the epoch of an interrupted one. After a loop, or a call of ``open``, it trains all its batches.
    assert steps(tmp_path) == (
        [2, 4, 6, 8] if second != "open" and (first, second) != ("loop", "fit") else [*range(2, 13, 2)]
    )


@pytest.mark.full
def test_the_objects_that_were_left_behind_move_nothing_newer_away(notebook, keras, tmp_path):
    """They may have the run again, unless the other ones have trained further."""
    notebook(CELLS["fit"], step=5)
    before, model = notebook.names["checkpoint"], notebook.names["model"]
    assert not notebook(CELLS["fit"])
    with pytest.raises(RunError, match="expected no newer checkpoint than step 5, where this model stands"):
        model.fit(trainings.data(2), verbose=0, callbacks=[before])
    assert steps(tmp_path) == [2, 4, 6, 8]


@pytest.mark.full
def test_a_loop_whose_run_was_taken_hears_of_it_at_its_next_step(keras, tmp_path):
    """A GAN with two captures into one run, for example: in a cell the first one may have been left behind."""
    first, second, cell = trainings.dense(keras), trainings.dense(keras), {}
    cell["one"] = deepfreeze.capture(first.optimizer, first, tmp_path / "run", verbose=0)
    cell["two"] = deepfreeze.capture(second.optimizer, second, tmp_path / "run", verbose=0)
    with pytest.raises(RunError, match="another one of this process there, which has begun since"):
        cell["one"].step()
    assert cell["two"].step()
    loop = cell["two"]
    with pytest.raises(LockedError, match="this process itself"):
        deepfreeze.capture(first.optimizer, first, tmp_path / "run", verbose=0)
    loop.close()


@kerases.one_will_do
def test_a_fit_that_goes_on_keeps_its_run(keras, tmp_path):
    """Another one of the same run is refused: in a callback of that ``fit``, in the same list, and while it runs in another thread."""
    refused, inside, go_on = [], threading.Event(), threading.Event()

    def another():
        with pytest.raises(LockedError, match="this process itself"):
            deepfreeze.Checkpoint(tmp_path / "run", verbose=0).open(trainings.dense(keras))
        refused.append(threading.current_thread())

    class Beside(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 3:
                another()
                inside.set()
                assert go_on.wait(60)

    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", 2, keep=Latest(9), verbose=0)
    model = trainings.dense(keras)
    thread = threading.Thread(
        target=model.fit, args=(trainings.data(6),), kwargs={"verbose": 0, "callbacks": [checkpoint, Beside()]}
    )
    thread.start()
    assert inside.wait(120)
    another()
    go_on.set()
    thread.join()
    assert refused == [thread, threading.current_thread()] and steps(tmp_path) == [2, 4, 6]
    with pytest.raises(LockedError):
        again = [deepfreeze.Checkpoint(tmp_path / "run", 2, keep=Latest(9), verbose=0) for _ in range(2)]
        model.fit(trainings.data(2), verbose=0, callbacks=again)


SHELLS = ["stdlib", *(["ipython"] if jobs.installed("ipython") else [])]


@pytest.mark.full
@pytest.mark.parametrize("api", kerases.NAMES)
@pytest.mark.parametrize("shell", SHELLS)
def test_ctrl_c_in_a_shells_cell_leaves_the_run_to_the_next_one(tmp_path, shell, api):
    output = jobs.run("notebook.py", shell, api, tmp_path / "run", IPYTHONDIR=str(tmp_path / "ipython"))
    assert [line for line in output.splitlines() if line.startswith("steps")][-1] == "steps [2, 4, 6, 8, 10]"
    assert output.count("that an interrupted training has left here is closed") == 1 and "LockedError" not in output
