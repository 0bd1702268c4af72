"""The two lines that rank 0 prints of an attempt: their texts, and that a training prints them once, where they belong."""

import itertools

import keras
import pytest

import deepfreeze
from deepfreeze.events.stats import Stats
from deepfreeze.format.position import Position
from deepfreeze.training import attempt_lines
from tests.support import trainings

pytestmark = pytest.mark.tensorflow


def test_the_first_line_says_what_is_restored_and_how_old_it_is(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    first = attempt_lines.resumed(str(tmp_path / "runs" / "nt3"), 40, "1970-01-02T00:00:00Z", 86400 + 120.0)
    assert first == "runs/nt3 resumed at step 40, saved 2 min ago"
    assert attempt_lines.resumed("/other/nt3", 40, "1970-01-02T00:00:00Z", 86390.0) == (
        "/other/nt3 resumed at step 40, saved 0 ms ago"
    )
    assert attempt_lines.resumed(
        "/o", 40, "1970-01-02T00:00:00Z", 86390.0, Position(0, 1, 10, None, 4, 40), "more"
    ) == ("/o resumed at step 40 (epoch 2, batch 10), saved 0 ms ago: more")
    assert attempt_lines.fresh("s3://bucket/nt3", "auto") == "s3://bucket/nt3 is new"
    assert attempt_lines.fresh("/other/nt3", "off") == '/other/nt3: nothing is restored (resume="off")'


def test_the_last_line_tells_of_this_attempt_alone():
    stats = Stats(captures=10, commits=10, waited=1.0, committed={5: 1.0})
    before = attempt_lines.Before.of(stats)
    assert attempt_lines.end(before, stats, 10**6) is None
    stats.captures, stats.commits, stats.waited = 22, 22, 1.009
    stats.committed[160] = 1.0
    expected = "12 checkpoints, 577 MB, training waited 9 ms; newest step 160"
    assert attempt_lines.end(before, stats, 577 * 10**6 // 12) == expected
    stats.captures = 23
    assert (attempt_lines.end(before, stats, 1) or "").startswith("12 of 13 checkpoints, 12 B")
    stats.given_up += 1
    stats.committed[150] = 1.0  # after the newer one
    found = attempt_lines.end(before, stats, 1) or ""
    assert found.startswith("12 of 13 checkpoints (1 given up for newer ones), 12 B") and found.endswith("step 160")


def fit(run, checkpoint=None, model=None, **options):
    checkpoint = checkpoint or deepfreeze.Checkpoint(run, **{"every": 2, **options})
    model = model or trainings.dense(keras)
    model.fit(trainings.data(4), verbose=0, callbacks=[checkpoint])
    return checkpoint, model


def said(capsys):
    """The lines that a training has printed since the last call, without the figures that differ between two trainings."""
    out, err = capsys.readouterr()
    assert out == ""
    return ["".join("#" if c.isdigit() else c for c in line) for line in err.splitlines()]


def test_a_training_says_where_it_begins_and_what_it_saved(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    checkpoint, model = fit("runs", final=False)
    first, last = said(capsys)
    assert first == "deepfreeze: runs is new"
    assert last.startswith("deepfreeze: # checkpoints, ") and last.endswith("; newest step #")
    fit("runs", checkpoint, model)
    (again,) = said(capsys)
    assert again.startswith("deepfreeze: # checkpoints, "), "it goes on where it was: there is no first line"
    checkpoint.close()
    fit("runs", keep=1)
    first = said(capsys)[0]
    assert first.startswith("deepfreeze: runs resumed at step # (epoch #, batch # of #), saved ")


def test_a_training_that_is_asked_for_silence_says_nothing(tmp_path, capsys):
    fit(tmp_path / "run", verbose=0)
    assert said(capsys) == []


def test_a_training_that_fails_has_no_last_line(tmp_path, capsys):
    class Stopped(keras.callbacks.Callback):
        batches = itertools.count()

        def on_train_batch_end(self, batch, logs=None):
            if next(self.batches) == 2:
                raise KeyboardInterrupt

    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2)
    with pytest.raises(KeyboardInterrupt):
        trainings.dense(keras).fit(trainings.data(4), verbose=0, callbacks=[checkpoint, Stopped()])
    checkpoint.close()
    assert [line for line in said(capsys) if "checkpoint" in line] == []
