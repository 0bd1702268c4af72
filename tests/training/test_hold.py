"""Which training of a process may take the run of another one: only if that one was left behind, on every rank."""

import threading

import pytest

from deepfreeze.errors import RunError
from deepfreeze.events.events import Events
from deepfreeze.ranks.world import OneRank
from deepfreeze.training import hold
from deepfreeze.training.hold import Hold


@pytest.fixture(autouse=True)
def another_process(monkeypatch):
    """Each test is a process of its own."""
    monkeypatch.setattr(hold, "_holds", {})


class Training:
    """``closed``: whether it gave way. It is its own callback."""

    def __init__(self, run, who="deepfreeze.Checkpoint"):
        self.closed, self.run, self.hold = False, str(run), Hold(who, self.give_way)
        self.hold.by_callback(self)

    def give_way(self):
        self.closed = True
        self.hold.end()

    def begin(self):
        self.hold.begin(self.run)
        return self


class Loop:
    """What a program has of a loop."""


class OfTwo(OneRank):
    """A rank of two. The other one gives ``other`` in the first call."""

    def __init__(self, other):
        self.others = [other]

    def gather(self, value):
        return [value, self.others.pop(0) if self.others else value]


def taken(run, world=None):
    """What is said when a new training takes ``run`` over; nothing if it does not."""
    said, events = [], Events()
    events.say = said.append
    Training(run, "deepfreeze.capture").hold.take_over(str(run), world or OneRank(), events, said=True)
    return said


# As Keras's own: it has a list, or a ``CallbackList`` which has one. A program may have a function of the same name.
KERAS = {"__name__": "keras.src.trainers"}
exec("def fit(callbacks, action): return action()", KERAS)


def fit(epochs, action):
    return action()


def in_thread(action):
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def test_a_training_that_was_left_behind_gives_way_and_hears_of_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = Training(tmp_path / "run").begin()
    before.hold.require()
    assert taken(tmp_path / "run") == [
        "run: the deepfreeze.Checkpoint that an interrupted training has left here is closed"
    ]
    assert before.closed
    with pytest.raises(RunError, match=r"expected this deepfreeze\.Checkpoint to have the run until it ends"):
        before.hold.require()
    assert taken(tmp_path / "run") == [], "nobody has it now"
    before.begin().hold.require()


def test_a_run_has_one_name_whatever_its_path(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    before = Training(tmp_path / "link").begin()
    assert taken(tmp_path / "real" / ".." / "real") and before.closed


def test_a_training_of_another_run_and_one_that_has_ended_are_left_alone(tmp_path):
    other, ended = Training(tmp_path / "other").begin(), Training(tmp_path / "run").begin()
    ended.hold.end()
    assert not taken(tmp_path / "run") and not other.closed and not ended.closed


def test_a_training_that_nobody_has_any_more_is_no_predecessor(tmp_path):
    Training(tmp_path / "run").begin()
    assert not taken(tmp_path / "run")


@pytest.mark.parametrize(
    "listed", [lambda found: found, lambda found: type("CallbackList", (), {"callbacks": found})()]
)
def test_a_training_whose_fit_this_thread_is_in_keeps_its_run(tmp_path, listed):
    before, another, fit_of_keras = Training(tmp_path / "run").begin(), object(), KERAS["fit"]
    assert not fit_of_keras(listed([another, before]), lambda: taken(tmp_path / "run"))
    assert not fit_of_keras(listed([before]), lambda: fit_of_keras(listed([another]), lambda: taken(tmp_path / "run")))
    assert not fit_of_keras(5, lambda: taken(tmp_path / "run")), "nobody can tell whose fit this is"
    assert not before.closed
    taking = fit(3, lambda: fit_of_keras(listed([another]), lambda: taken(tmp_path / "run")))
    assert taking and before.closed


def test_a_training_of_a_thread_that_runs_keeps_its_run(tmp_path):
    before = Training(tmp_path / "run").begin()
    in_thread(lambda: taken(tmp_path / "run"))
    assert not before.closed
    in_thread(before.begin)
    assert taken(tmp_path / "run") and before.closed, "that thread has ended"


def test_a_loop_goes_on_while_a_function_has_it(tmp_path):
    def loop(mine):
        return taken(tmp_path / "run")

    training = Training(tmp_path / "run").begin()
    held = [Loop()]
    training.hold.by_loop(held[0])
    assert not loop(held[0]) and not training.closed
    cell = {"mine": held[0], "taken": lambda: taken(tmp_path / "run")}
    exec("found = taken()", cell)
    assert cell["found"] and training.closed, "a cell keeps its names"


def test_a_loop_that_is_gone_has_left_its_run(tmp_path):
    training = Training(tmp_path / "run").begin()
    training.hold.by_loop(Loop())
    assert taken(tmp_path / "run") and training.closed


def test_a_forked_child_leaves_its_parents_training_alone(tmp_path, monkeypatch):
    before = Training(tmp_path / "run").begin()
    monkeypatch.setattr(hold.os, "getpid", lambda: -1)
    assert not taken(tmp_path / "run") and not before.closed


@pytest.mark.parametrize("other", [True, False])
def test_the_run_of_several_ranks_is_taken_only_if_all_have_left_it(tmp_path, other):
    before = Training(tmp_path / "run").begin()
    assert bool(taken(tmp_path / "run", OfTwo(other))) == before.closed == other
    nobody = tmp_path / "nobody"
    assert not taken(nobody, OfTwo(other))
