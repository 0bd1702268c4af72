"""The job scripts of docs/guide/cluster.md, run by bash with stand-ins for what a cluster has: which codes they end with, when they
put the job back into the queue, and what a signal does."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from pathlib import Path

import pytest

from tests.support import processes

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guide" / "cluster.md").read_text()
NAMES = ("train.sbatch", "train.pbs")
SCRIPTS = {
    name: re.search(rf"^<!-- file: {re.escape(name)} -->\n```bash\n(.*?)^```$", PAGE, re.M | re.S)[1] for name in NAMES
}
LAUNCHERS = {"train.sbatch": "srun", "train.pbs": "mpirun"}
REQUEUE = {"train.sbatch": "scontrol requeue 4711", "train.pbs": "qsub {here}/train.pbs"}
# Notes its arguments and the job's variables, then ends with CODE; as a training does, it ends with 75 where USR1 reaches it.
LAUNCHER = """#!/bin/bash
trap 'echo heard >>"$LOG"; exit 75' USR1
echo "$(basename "$0") $* RUN=$RUN LOCAL_TIER=$LOCAL_TIER in $PWD" >>"$LOG"
for _ in $(seq "${TENTHS:-0}"); do sleep 0.1; done
exit "${CODE:-0}"
"""
# Whether the newest attempt has ended its training, for `deepfreeze log RUN --ended`.
DEEPFREEZE = """#!/bin/bash
[ "$*" = "log $RUN --ended" ] || exit 2
exit "${NOT_ENDED:-0}"
"""
NOTES = '#!/bin/bash\necho "$(basename "$0") $*" >>"$LOG"\n'


@pytest.fixture
def submit(tmp_path):
    """Starts a script as its scheduler would, in a login environment of its own."""
    home, programs = tmp_path / "home", tmp_path / "bin"
    (home / "venv" / "bin").mkdir(parents=True)
    programs.mkdir()
    (home / "venv" / "bin" / "activate").write_text('echo activated >>"$LOG"\n')
    stubs = {"srun": LAUNCHER, "mpirun": LAUNCHER, "scontrol": NOTES, "qsub": NOTES, "deepfreeze": DEEPFREEZE}
    for name, text in stubs.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def submit(script, **more):
        env = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(home), "LOG": str(tmp_path / "log")}
        env |= {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "4711", "SLURM_CPUS_PER_TASK": "8"}
        env |= {"PBS_O_WORKDIR": str(tmp_path), **{name: str(value) for name, value in more.items()}}
        return started.enter_context(processes.child(["bash", "-c", SCRIPTS[script]], env=env, cwd="/"))

    with contextlib.ExitStack() as started:
        yield submit


def log(folder):
    file = folder / "log"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize("script", NAMES)
@pytest.mark.parametrize("code", [0, 1, 75, 143])
def test_a_job_that_was_stopped_goes_back_into_the_queue_and_no_other(script, code, submit, tmp_path):
    assert submit(script, CODE=code).wait(60) == code
    first, launched, *rest = log(tmp_path)
    assert first == "activated" and launched.startswith(LAUNCHERS[script]) and "python train.py" in launched
    assert launched.endswith(f"RUN={tmp_path}/runs/train LOCAL_TIER=auto in {tmp_path}")
    assert rest == ([REQUEUE[script].format(here=tmp_path)] if code == 75 else [])


@pytest.mark.parametrize("script", NAMES)
def test_a_launcher_that_hides_a_kill_does_not_end_the_job(script, submit, tmp_path):
    """Its code is 0, and the newest attempt has not ended its training: the job has failed, and does not go back into the queue."""
    assert submit(script, CODE=0, NOT_ENDED=1).wait(60) == 1
    assert len(log(tmp_path)) == 2
    assert submit(script, CODE=75, NOT_ENDED=1).wait(60) == 75, "what a signal has stopped is no failure"


@pytest.mark.parametrize(("script", "variable"), [("train.sbatch", "SLURM_TMPDIR"), ("train.pbs", "TMPDIR")])
def test_the_nodes_own_directory_is_the_local_tier(script, variable, submit, tmp_path):
    """The nodes own directory is the local tier where the cluster names it."""
    assert submit(script, **{variable: "/nvme/job"}).wait(60) == 0
    assert "LOCAL_TIER=/nvme/job " in log(tmp_path)[1]


def test_what_mpirun_has_to_pass_on_is_named():
    assert {"RUN", "LOCAL_TIER", "PATH"} <= set(re.findall(r"-x (\w+)", SCRIPTS["train.pbs"]))


def traps(pid, number):
    """Whether a process has a handler for a signal."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return int(caught.split()[1], 16) >> (number - 1) & 1


@pytest.mark.timing
def test_a_signal_to_the_pbs_script_reaches_the_ranks_and_requeues(submit, tmp_path):
    """A signal to the PBS script reaches the ranks, and the job goes back into the queue."""
    job = submit("train.pbs", TENTHS=600, CODE=3)
    end = time.monotonic() + 60
    while (len(log(tmp_path)) < 2 or not traps(job.pid, signal.SIGUSR1)) and time.monotonic() < end:
        time.sleep(0.05)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(60) == 75, "the trap ended the first wait, with 138"
    assert log(tmp_path)[2:] == ["heard", f"qsub {tmp_path}/train.pbs"]


@pytest.mark.timing
def test_the_walltime_is_announced_to_the_ranks_beforehand(submit, tmp_path, monkeypatch):
    """The line with ``timeout``, in seconds in place of minutes."""
    monkeypatch.setitem(SCRIPTS, "train.pbs", SCRIPTS["train.pbs"].replace(" 230m ", " 1s "))
    assert submit("train.pbs", TENTHS=600, CODE=3).wait(60) == 75
    assert log(tmp_path)[2:] == ["heard", f"qsub {tmp_path}/train.pbs"]
