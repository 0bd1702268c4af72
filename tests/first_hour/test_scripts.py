"""Ten scripts in the shape of those that people have: two of CANDLE's, three of Horovod's, five of Keras's, each with the one line of
DeepFreeze. All ranks are killed in the middle; the same command, given again, goes on and ends at the step that was asked for."""

import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from tests.support import jobs, kerases

pytestmark = [pytest.mark.slow, pytest.mark.ranks, pytest.mark.tensorflow]
SCRIPTS = Path(__file__).parent / "scripts"
RESUMED = re.compile(r"resumed at step (\d+)(?: \(epoch (\d+), batch (\d+) of (\d+)\))?")


@dataclass(frozen=True)
class Script:
    """A program of the folder ``scripts``. ``batches``: in each epoch, on one rank; ``files``: what it writes itself, with {epoch} for each
    epoch counted from 0, or {number} counted from 1; ``horovods``: it is one of Horovod's, which need Keras 2; ``fits``: it trains by
    ``fit``, which knows epochs; ``shares``: of two ranks each has half of the batches."""

    run: str
    epochs: int
    batches: int
    files: tuple[str, ...] = ()
    horovods: bool = False
    fits: bool = True
    shares: bool = True

    def steps(self, ranks: int) -> int:
        """How many steps a whole training has."""
        return self.epochs * self.in_an_epoch(ranks)

    def in_an_epoch(self, ranks: int) -> int:
        """How many batches each rank has in an epoch."""
        return self.batches // ranks if self.shares else self.batches


ALL = {
    "nt3_baseline": Script("nt3", 16, 56, ("save/nt3.training.log", "save/nt3.model.json", "save/nt3.weights.h5")),
    "p1b2_baseline": Script("p1b2", 20, 40, ("save/p1b2.A=relu.B=16.D=0.1.csv",)),
    "tensorflow2_keras_mnist": Script("keras_mnist", 12, 64, ("checkpoint-{number}.h5",), horovods=True),
    "tensorflow2_mnist": Script("mnist", 1, 768, ("mnist.weights.h5",), horovods=True, fits=False),
    "keras_synthetic_benchmark": Script("benchmark", 16, 14, horovods=True, shares=False),
    "mnist_convnet": Script("convnet", 15, 54),
    "text_transformer": Script("transformer", 2, 300),
    "timeseries_fcn": Script("timeseries", 24, 32, ("best_model.keras",)),
    "vae": Script("vae", 12, 64),
    "dcgan": Script("dcgan", 16, 40, tuple(f"generated_img_{i}_{{epoch}}.png" for i in range(3))),
}


def start(name: str, ranks: int):
    """Starts a script as its user does, in the working directory."""
    script = ALL[name]
    options = ["--horovod"] if ranks > 1 and not script.horovods else []
    env = {"TF_USE_LEGACY_KERAS": "1"} if script.horovods else {}
    several = ranks if ranks > 1 else 0
    return jobs.job(SCRIPTS / f"{name}.py", *options, ranks=several, PYTHONWARNINGS="default", **env)


def kill_when(job, ranks: int, run: Path, step: int) -> None:
    """Waits for a committed step of at least ``step``, and kills all ranks."""

    def reached() -> bool:
        with suppress(FileNotFoundError):  # what is looked at may be renamed just then
            found = deepfreeze.latest(run) if (run / "run.json").exists() else None
            return found is not None and found.step >= step
        return False

    job.until(reached)
    for pid in [job.pid(rank) for rank in range(ranks)] if ranks > 1 else [job.process.pid]:
        os.kill(pid, signal.SIGKILL)
    assert job.wait()


def to_the_end(name: str, ranks: int) -> str:
    """Runs a script to its end; returns what it printed."""
    with start(name, ranks) as job:
        assert job.wait() == 0, job.tails()
        printed = job.output()
    assert "CheckpointWarning" not in printed and "Traceback" not in printed, printed
    return printed


def epochs_in(log: Path) -> set[int]:
    """The epochs, from 0, of a file of Keras's CSVLogger."""
    rows = [row.split(",")[0] for row in log.read_text().splitlines()]
    assert rows.count("epoch") == 1 and rows[0] == "epoch", "the second attempt has appended to the first one's log"
    return set(map(int, rows[1:]))


@pytest.mark.full
@pytest.mark.skipif(kerases.KERAS_IS_2, reason="most scripts are written for Keras 3")
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ALL)
def test_a_killed_script_resumes_and_ends_at_the_step_asked_for(name, ranks, tmp_path, monkeypatch):
    """A script in the shape of other people's, with one line added, goes on after SIGKILL and trains as many steps as it was asked for."""
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    script = ALL[name]
    run, total, batches = Path("runs", script.run), script.steps(ranks), script.in_an_epoch(ranks)
    with start(name, ranks) as job:
        kill_when(job, ranks, run, total // 4)
        assert f"deepfreeze: {run} is new" in job.output()
    newest = deepfreeze.latest(run).step
    assert newest < total and verify(run).ok, "the kill came in the middle, and left whole checkpoints"

    printed = to_the_end(name, ranks)
    (resumed,) = RESUMED.finditer(printed)
    step, *position = (int(number) for number in resumed.groups() if number)
    assert len(position) == (3 if script.fits else 0)
    # A step that was in flight may have been finished from the local tier by this start.
    assert newest <= step < total
    if position:
        epoch, batch, of = position
        assert (epoch - 1) * batches + batch == step and of == batches
    assert printed.count("deepfreeze: ") == 2 and f"newest step {total}" in printed, "a line of rank 0 at either end"
    assert deepfreeze.latest(run).step == total
    assert verify(run).ok

    # Where the newest checkpoint was the last step of an epoch, the kill may have come before the script's own callbacks at its end.
    cut = step // batches - 1 if step % batches == 0 else None
    epochs = set(range(script.epochs)) - {cut}
    for file in script.files:
        assert all(Path(file.format(epoch=epoch, number=epoch + 1)).exists() for epoch in epochs), file
        if file.endswith((".csv", ".log")):
            assert epochs_in(Path(file)) - {cut} == epochs

    printed = to_the_end(name, ranks)
    assert f"resumed at step {total}" in printed and "newest step" not in printed
    assert deepfreeze.latest(run).step == total, "a finished script trains nothing more"
