"""The figures in Keras's logs count from the beginning of an attempt, epoch by epoch."""

from deepfreeze.events.event import Attempt, Blocked, Captured, External
from deepfreeze.events.keras_logs import KerasLogs

FIXED = {"run_id": "a" * 32, "attempt": "b" * 32, "ranks": 1, "host": "node", "pid": 1}


def entered(logs):
    found = {"loss": 1.0}
    logs.enter(found)
    return tuple(found[f"deepfreeze_{name}"] for name in ("checkpoints", "blocking", "committed"))


def test_each_epoch_has_its_own_figures_and_the_newest_commit():
    logs = KerasLogs()
    logs.on(Attempt(step=0, **FIXED))
    assert entered(logs) == (0.0, 0.0, 0.0)
    logs.on(Captured(step=5, nbytes=1))
    logs.on(Blocked(step=5, seconds=0.5))
    assert entered(logs) == (1.0, 0.5, 0.0)
    logs.on(External(step=5, seconds=1.0, written=1.0))
    assert entered(logs) == (0.0, 0.0, 5.0)


def test_an_attempt_begins_anew_at_the_step_that_it_resumed_from():
    logs = KerasLogs()
    logs.on(Captured(step=50, nbytes=1))  # saved at the end of the last fit, after its last epoch
    logs.on(External(step=50, seconds=1.0, written=1.0))
    logs.on(Attempt(step=50, again=True, **FIXED))
    assert entered(logs) == (0.0, 0.0, 50.0)
    logs.on(Attempt(step=40, resumed=40, **FIXED))
    assert entered(logs) == (0.0, 0.0, 40.0)
