"""``storage=``: a run takes no more bytes on the external store than it may, at any moment."""

import keras
import pytest

import deepfreeze
from benchmarks.stored import sampled, taken
from deepfreeze.errors import OptionError
from deepfreeze.store import Latest, Tagged, tags
from deepfreeze.store.run import Run
from tests.support import trainings

pytestmark = pytest.mark.tensorflow

FILE = 245_000  # bytes of a checkpoint, and little more


def make():
    """A model whose checkpoints take ``FILE`` bytes."""
    return trainings.dense(keras, units=2000)


def train(run, batches, model=None, **options):
    checkpoint = deepfreeze.Checkpoint(run, **{"every": 1, "verbose": 0, "local": None, **options})
    (model or make()).fit(trainings.data(batches), verbose=0, shuffle=False, callbacks=[checkpoint])
    return checkpoint


def steps(run):
    return [info.step for info in deepfreeze.checkpoints(run)]


@pytest.mark.parametrize("local", [None, "auto"])
@pytest.mark.parametrize("capture", ["auto", pytest.param("graph", marks=pytest.mark.full)])
def test_the_run_never_takes_more_than_the_storage_given(local, capture, tmp_path):
    """Two checkpoints are kept, and one more fits. A second job begins with what an earlier one has kept, which is more."""
    run, limit = tmp_path / "run", 3 * FILE + FILE // 2
    options = {"local": local, "capture": deepfreeze.Capture(path=capture)}
    with sampled(run) as first:
        checkpoint = train(run, 15, storage=limit, **options)
    assert steps(run) == [14, 15] and checkpoint.stats.commits == 15 and checkpoint.stats.skipped == []
    assert 2.5 * FILE < first.most <= limit and first.number > 10
    train(run, 6, keep=6, resume_epochs=False, **options)
    assert taken(run) > limit
    with sampled(run) as second:
        train(run, 6, storage=f"{limit / 1e6} MB", resume_epochs=False, **options)
    assert len(steps(run)) == 2 and second.number > 10 and taken(run) <= limit


def test_checkpoints_that_tags_leave_no_room_for_are_skipped(tmp_path):
    """With a warning that names what stays, and why; and training goes on. When the tags are gone, checkpoints are saved again."""
    run, model = tmp_path / "run", make()
    tagged = []

    class Tagging(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            there = steps(run) if batch > 3 else []
            if len(tagged) < 2 and there and there[-1] not in tagged:
                tags.tag(Run.open(run), there[-1], f"paper-{len(tagged)}")
                tagged.append(there[-1])
            if batch == 40:
                for number in range(2):
                    tags.untag(Run.open(run), f"paper-{number}")

    limit = 4 * FILE + FILE // 2
    checkpoint = deepfreeze.Checkpoint(run, every=1, verbose=0, local=None, keep=Latest(2) | Tagged(), storage=limit)
    with sampled(run) as samples, pytest.warns(deepfreeze.CheckpointWarning, match="storage=: .* skipped") as caught:
        model.fit(trainings.data(80), verbose=0, shuffle=False, callbacks=[Tagging(), checkpoint])
    warnings = [str(one.message) for one in caught if "storage=" in str(one.message)]
    assert len(warnings) < 4, "one for each set of checkpoints that stay"
    assert all(f"step {step} (tag paper-{number}" in warnings[-1] for number, step in enumerate(tagged)), warnings
    skipped = checkpoint.stats.skipped
    assert skipped and skipped[0] < 41 and trainings.count(model.optimizer) == 80
    assert steps(run)[-1] == 80 and not set(skipped) & set(checkpoint.stats.committed)
    assert samples.most <= limit


def test_the_last_step_is_left_out_too_where_there_is_no_room(tmp_path):
    run = tmp_path / "run"
    train(run, 6, keep=9)
    for step in (2, 4):
        tags.tag(Run.open(run), step, f"t{step}")
    with pytest.warns(deepfreeze.CheckpointWarning, match="storage="):
        checkpoint = train(run, 20, every=100, keep=Latest(2) | Tagged(), storage=4 * FILE + 100, resume_epochs=False)
    assert checkpoint.stats.skipped == [26] and steps(run) == [2, 4, 5, 6]


def test_too_little_storage_is_an_error_at_the_start_and_nothing_is_lost(tmp_path):
    run = tmp_path / "run"
    train(run, 3)
    with pytest.raises(OptionError, match=r"storage=: expected room for 3 checkpoints of .* found 500 kB"):
        train(run, 3, storage="500 kB", resume_epochs=False)
    assert steps(run) == [2, 3]
    for wrong in ("much", "1.5 XB", 0, True, -1, 2.5):
        with pytest.raises(OptionError, match="storage=: expected a number of bytes"):
            deepfreeze.Checkpoint(run, storage=wrong)
