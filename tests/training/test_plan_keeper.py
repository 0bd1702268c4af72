"""The thread that writes plan.json."""

import pytest

from deepfreeze.engine.target import Target
from deepfreeze.store.plan import read_section
from deepfreeze.store.run import Run
from tests.support import files

pytestmark = pytest.mark.tensorflow


class Section:
    def __init__(self, number):
        self.number = number

    def to_json(self):
        return {"key": {}, "number": self.number}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A writer, the number that plan.json has, and how often the store refuses."""
    from deepfreeze.training import plan_keeper

    run = Run.open(files.write_run(tmp_path / "run", signed=True))
    refusals = []

    def put(*arguments):
        if refusals:
            raise refusals.pop()
        original(*arguments)

    original = plan_keeper.put_section
    monkeypatch.setattr(plan_keeper, "put_section", put)
    writer = plan_keeper._Writer(Target(str(run.path), run.run_id, None), "auto")
    number = lambda: (read_section(Run.open(run.path), "auto") or {}).get("number")  # noqa: E731
    return writer, number, refusals


def test_a_decision_is_written_at_once_and_the_rest_at_the_end(written):
    writer, number, _ = written
    writer.on((Section(1), True))
    assert number() == 1
    writer.on((Section(2), False))
    assert number() == 1, "not every window is worth a write"
    writer.write()
    assert number() == 2


def test_a_store_that_has_refused_is_asked_again(written):
    writer, number, refusals = written
    refusals.append(OSError("busy"))
    with pytest.raises(OSError, match="busy"):
        writer.on((Section(1), True))
    writer.write()
    assert number() == 1


def test_nothing_is_written_when_the_lock_is_given_back(written):
    writer, number, _ = written
    writer.closed = True
    writer.on((Section(1), True))
    assert number() is None
