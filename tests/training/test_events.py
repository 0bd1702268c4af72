"""The events of real trainings: the file has them, ``stats`` and Keras's logs are made of them, and listeners are told."""

import contextlib
import itertools
import sys
import threading
import types
from pathlib import Path

import keras
import pytest

import deepfreeze
from deepfreeze.cli.main import main
from deepfreeze.engine.target import Target
from deepfreeze.events import Blocked, Captured, End, External, Notice, Progress
from deepfreeze.events.event_files import EventFiles
from deepfreeze.events.events import MOST_NOTES, Events, as_listener
from deepfreeze.events.newest_end import newest_end
from deepfreeze.process_state import PROCESS
from deepfreeze.store.run import Run
from deepfreeze.training.commits import Commits
from deepfreeze.training.engine_reports import EngineReports
from deepfreeze.training.options import Options
from deepfreeze.training.part_list import Parts
from tests.support import processes, trainings
from veloc_bindings import EXTERNAL, INFORMS, OK, Report

pytestmark = pytest.mark.tensorflow
ROOT = Path(__file__).resolve().parents[2]


def fit(run, steps=6, epochs=1, **options):
    checkpoint = deepfreeze.Checkpoint(run, **{"every": 2, **options})
    history = trainings.dense(keras).fit(
        trainings.data(steps), epochs=epochs, verbose=0, shuffle=False, callbacks=[checkpoint]
    )
    return checkpoint, history.history


def test_the_file_tells_what_happened_to_each_checkpoint(tmp_path):
    checkpoint, _ = fit(tmp_path / "run")
    events = EventFiles(tmp_path / "run").new()
    begun, end = events[0], events[-1]
    assert begun["kind"] == "attempt" and begun["step"] == 0 and begun["ranks"] == 1 and "resumed" not in begun
    assert begun["attempt"] in {deepfreeze.latest(tmp_path / "run").attempt} and begun["m"] == 0.0
    assert end["kind"] == "end" and end["finished"] is True and end["m"] > 0
    (counted,) = [event for event in events if event["kind"] == "counted"]
    assert counted["engine"]["external"]["syncs"] >= 3
    assert counted["engine"]["threads"].keys() > {"df-commit", "df-writer"}
    for step in (2, 4, 6):
        own = {event["kind"]: event for event in events if event.get("step") == step}
        assert own.keys() >= {"captured", "blocked", "external"}
        assert own["external"]["seconds"] == checkpoint.stats.committed[step]
        assert own["captured"]["nbytes"] == checkpoint.stats.nbytes > 0
    seconds = [event["seconds"] for event in events if event["kind"] == "blocked"]
    assert seconds == checkpoint.stats.blocking and len(seconds) == 3, "once for each checkpoint"
    assert sorted(events, key=lambda event: event["m"]) == events


def test_a_training_has_ended_also_where_a_later_job_finds_nothing_to_do(tmp_path):
    """As the guide's program does: it opens the run, and trains only if steps are left. An exception and an open run are no end."""
    run = tmp_path / "run"
    fit(run)
    assert newest_end(Run.open(run)).ended
    checkpoint = deepfreeze.Checkpoint(run)
    assert checkpoint.open(trainings.dense(keras)) == 6
    assert not newest_end(Run.open(run)).ended
    checkpoint.close()
    assert [one["trained"] for one in EventFiles(run).new() if one["kind"] == "end" and "trained" in one] == [False]
    assert newest_end(Run.open(run)).ended

    def fail(batch, logs):
        raise RuntimeError("user's own")

    callbacks = [
        deepfreeze.Checkpoint(run, resume_epochs=False),
        keras.callbacks.LambdaCallback(on_train_batch_end=fail),
    ]
    with pytest.raises(RuntimeError, match="user's own"):
        trainings.dense(keras).fit(trainings.data(6), verbose=0, callbacks=callbacks)
    callbacks[0].close()
    assert newest_end(Run.open(run)).why == "an exception has ended it"


@pytest.mark.full
def test_a_process_that_only_opens_a_run_says_so_at_its_exit(tmp_path):
    """Nobody closes the callback: the program has just nothing left to train."""
    run = tmp_path / "run"
    fit(run)
    lines = [
        "import deepfreeze, keras",
        "from tests.support import trainings",
        f"checkpoint = deepfreeze.Checkpoint({str(run)!r})",
        "checkpoint.open(trainings.dense(keras))",
    ]
    processes.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=ROOT)
    assert [one["kind"] for one in EventFiles(run).new()].count("attempt") == 2
    assert newest_end(Run.open(run)).ended


@pytest.mark.full
def test_a_slow_store_shows_how_far_its_checkpoints_are(tmp_path, capsys):
    """It has 9 MB, and takes some seconds. The end of the training waits for it."""
    heard, shown = [], []
    wide = [
        keras.Input((trainings.FEATURES,)),
        keras.layers.Dense(1400),
        keras.layers.Dense(500),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential(wide)
    model.compile(keras.optimizers.Adam(), "mse")

    def listen(event):
        if isinstance(event, Progress):
            heard.append(event)
            if not any(line.startswith("on its way") for line in shown):  # the file may come later than the event
                main(["ls", str(tmp_path / "run")])
                shown.extend(capsys.readouterr().out.splitlines())

    checkpoint = deepfreeze.Checkpoint(
        tmp_path / "run", 2, listeners=[listen], engine=deepfreeze.Engine(rate=1 << 20), local=None
    )
    model.fit(trainings.data(2), verbose=0, callbacks=[checkpoint])
    before = [event.unfinished[0] for event in heard if event.unfinished]
    assert {one.step for one in before} == {2} and checkpoint.stats.unfinished == ()
    bytes_done = [one.external for one in before]
    assert bytes_done == sorted(bytes_done) and len(set(bytes_done)) > 1 and max(bytes_done) <= checkpoint.stats.nbytes
    assert any(line.startswith("on its way") and "step 2, for" in line for line in shown), shown


def test_a_line_of_the_engines_log_is_a_notice_that_warns_nobody(tmp_path, recwarn):
    heard = []
    events = Events([as_listener(heard.append)])
    reports = EngineReports("run", [], events)
    line, notice = (Report(-1, level, OK, False, -1, 0, 0, 0, 0, "told") for level in (INFORMS, 0))
    assert reports.enter([line]) == [] and not recwarn.list
    assert [(type(event), event.level, event.warned) for event in heard] == [(Notice, "info", False)]
    assert reports.enter([notice]) == [] and (heard[-1].level, heard[-1].warned) == ("warning", True)


def test_a_resumed_attempt_has_a_file_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(PROCESS, "first_step", None)
    fit(tmp_path / "run")
    fit(tmp_path / "run", steps=2)
    events = EventFiles(tmp_path / "run").new()
    begun = [event for event in events if event["kind"] == "attempt"]
    restored = events[events.index(begun[1]) + 1]
    assert (restored["level"], restored["message"]) == ("info", f"restored step 6 of {tmp_path / 'run'}")
    assert [event.get("resumed") for event in begun] == [None, 6]
    assert len({event["attempt"] for event in begun}) == 2
    (started,) = [event for event in events if event["kind"] == "started"]
    assert (started["step"], started["since"]) == (1, "process") and started["seconds"] > started["m"] > 0
    assert events.index(begun[0]) < events.index(started) < events.index(begun[1]), (
        "the second fit is no start of a job"
    )


def test_a_listener_hears_all_in_order_on_another_thread(tmp_path):
    heard, threads = [], set()

    def listen(event):
        heard.append(event)
        threads.add(threading.current_thread())

    fit(tmp_path / "run", listeners=[listen])
    kinds = [type(event) for event in heard]
    assert kinds[-1] is End and kinds.count(Captured) == kinds.count(Blocked) == kinds.count(External) == 3
    assert threads and threading.main_thread() not in threads
    assert not any(thread.name == "deepfreeze-events" for thread in threading.enumerate())
    assert [event.to_json(heard[0].m) for event in heard] == EventFiles(tmp_path / "run").new()


def test_a_listener_that_raises_is_one_warning_and_training_goes_on(tmp_path):
    def fails(event):
        raise RuntimeError("no dashboard")

    with pytest.warns(deepfreeze.CheckpointWarning, match="fails has failed: RuntimeError") as caught:
        checkpoint, _ = fit(tmp_path / "run", listeners=[fails])
    assert len([w for w in caught if "has failed" in str(w.message)]) == 1
    assert sorted(checkpoint.stats.committed) == [2, 4, 6]


def test_events_that_can_not_be_written_are_one_warning(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events").write_text("a file in the way")
    with pytest.warns(
        deepfreeze.CheckpointWarning, match="the file of events .* has failed: FileExistsError"
    ) as caught:
        checkpoint, _ = fit(tmp_path / "run")
    assert len([w for w in caught if issubclass(w.category, deepfreeze.CheckpointWarning)]) == 1
    assert sorted(checkpoint.stats.committed) == [2, 4, 6]


def test_keras_s_logs_have_three_figures_in_every_epoch(tmp_path):
    """The figures stand in the logs with ``logs=True``, and the logs are Keras's own without."""
    _, plain = fit(tmp_path / "plain", steps=4, epochs=1)
    _, history = fit(tmp_path / "run", steps=4, epochs=3, wait_for="external", logs=True)
    assert (
        set(plain) == {name for name in history if not name.startswith("deepfreeze_")}
        and len(history) == len(plain) + 3
    )
    assert history["deepfreeze_checkpoints"] == [2.0, 2.0, 2.0]
    assert history["deepfreeze_committed"][-1] >= 10.0 and len(history["deepfreeze_committed"]) == 3
    assert all(seconds > 0 for seconds in history["deepfreeze_blocking"])


def test_notes_are_bounded_also_if_nobody_makes_events_of_them():
    """A file of events on a store that hangs holds up the thread that makes them: training then makes them itself, and none is lost."""
    stats = deepfreeze.Stats()
    events, world = Events([stats]), types.SimpleNamespace(rank=1)
    attempt = types.SimpleNamespace(target=Target("/run", "1" * 32, "2" * 32), world=world)
    open_run = types.SimpleNamespace(attempt=attempt, closing=contextlib.ExitStack())
    begun = types.SimpleNamespace(open_run=open_run, events=events, options=Options(), world=world)
    commits = Commits(begun, Parts([]), None)
    committed = itertools.count(1)

    def poll():
        return [Report(next(committed), EXTERNAL, OK, True, -1, 1, 0.1, 0.2, 0.3, "")], True

    saver = types.SimpleNamespace(replicated=[], engine=types.SimpleNamespace(poll=poll), close=None)
    commits.open(saver)
    for _ in range(2500):
        commits.take()
        assert len(events.notes) <= MOST_NOTES
    events.flush()
    assert stats.commits == 2500


def test_an_interrupted_training_ends_unfinished(tmp_path):
    class Stops(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                raise ValueError("mine")

    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2)
    with pytest.raises(ValueError, match="mine"):
        trainings.dense(keras).fit(trainings.data(6), verbose=0, callbacks=[checkpoint, Stops()])
    checkpoint.close()
    committed = [event["step"] for event in EventFiles(tmp_path / "run").new() if event["kind"] == "external"]
    assert committed == [2, 4], "also if it was committed while the checkpoint was closed"
    assert EventFiles(tmp_path / "run").new()[-1] == {
        **EventFiles(tmp_path / "run").new()[-1],
        "kind": "end",
        "finished": False,
    }


@pytest.mark.parametrize("given", [5, "listen", [5], {"f": print}])
def test_what_is_no_list_of_listeners_is_refused(tmp_path, given):
    with pytest.raises(deepfreeze.OptionError, match="a list of functions of an event"):
        deepfreeze.Checkpoint(tmp_path / "run", listeners=given)
