"""`make demo`: trains NT3 on 2 Horovod ranks with checkpoints, kills the job, starts it again, and opens its last checkpoint with stock
Keras. With --announce it only says how long that takes, before `make setup` runs."""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

from project import LOGS, ROOT, VENV, Failure, environment, main, say, tail

EXAMPLE = ROOT / "examples" / "candle_nt3"
RUN = ROOT / "runs" / "demo"
SUMMARY = LOGS / "demo.json"
RANKS = 2
STEPS, EPOCH = 128, 4  # on two ranks an epoch has four steps
INTERVAL = 2  # epochs between checkpoints
KILL_AFTER = 56  # killed once a checkpoint of this step or a later one is committed ...
MORE_STEPS = 3  # ... and so many steps more are done, which are then lost
LIMIT = 900  # seconds; a job that takes longer hangs
COMMITTED = re.compile(r"step-(\d{10,})")
PROGRESS = re.compile(r"step (\d+) of \d+: ")


def train(log):
    """Starts the job in a process group of its own; its output goes to a log."""
    command = [
        str(VENV / "bin" / "horovodrun"),
        "-np",
        str(RANKS),
        str(VENV / "bin" / "python"),
        str(EXAMPLE / "train.py"),
    ]
    command += [
        "--ckpt_directory",
        str(RUN),
        "--ckpt_save_interval",
        str(INTERVAL),
        "--epochs",
        str(STEPS // EPOCH),
        "--report",
        "1",
        "--json",
        str(SUMMARY),
    ]
    with open(log, "wb") as out:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment(),
            cwd=ROOT,
            start_new_session=True,
        )


def committed():
    """The newest committed step in the run directory, or 0."""
    found = [COMMITTED.fullmatch(path.parent.name) for path in RUN.glob("step-*/manifest.json")]
    return max((int(match[1]) for match in found if match), default=0)


def done(log):
    """The last step in the job's log, or 0."""
    return max(map(int, PROGRESS.findall(log.read_text(errors="replace"))), default=0)


def descendants(root):
    """The ids of `root` and all its descendants, from /proc: mpirun puts its ranks into other process groups and sessions."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    parents[int(entry)] = int(stat.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return below


def kill(job):
    """Kills every process of the job (SIGKILL: no handler runs, nothing is flushed). Returns how many there were."""
    victims = descendants(job.pid)
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    job.wait()
    until = time.monotonic() + 30
    while not all(gone(pid) for pid in victims):
        if time.monotonic() > until:
            raise Failure("processes of the killed job are still there after 30 s")
        time.sleep(0.05)
    return len(victims)


def gone(pid):
    """Whether a process has ended, including one that its parent has not waited for yet."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def wait_for(job, log, reached, what):
    begun = time.monotonic()
    while not reached():
        if job.poll() is not None:
            raise Failure(
                f"the job ended with {job.returncode} before {what}. The end of {log.relative_to(ROOT)}:\n{tail(log)}"
            )
        if time.monotonic() - begun > LIMIT:
            kill(job)
            raise Failure(f"after {LIMIT} s still not {what}. The end of {log.relative_to(ROOT)}:\n{tail(log)}")
        time.sleep(0.05)


def first_attempt():
    log = LOGS / "demo-first.log"
    job = train(log)
    try:
        wait_for(job, log, lambda: committed() >= KILL_AFTER, f"a checkpoint of step {KILL_AFTER} was committed")
        newest = committed()
        wait_for(job, log, lambda: done(log) >= newest + MORE_STEPS, f"step {newest + MORE_STEPS} was done")
        if job.poll() is not None or done(log) >= STEPS:
            raise Failure(f"the job was too fast to be killed in the middle: it is at step {done(log)} of {STEPS}")
        step = done(log)
        say(
            f"      SIGKILL to all {kill(job)} processes at step {step}; newest committed checkpoint: step {committed()}"
        )
    except BaseException:
        kill(job)
        raise
    for line in sorted(re.findall(r"rank \d+ of \d+: \d+ batches .*", log.read_text(errors="replace"))):
        say(f"      {line}")
    return step, committed()


def second_attempt(newest):
    log = LOGS / "demo-second.log"
    SUMMARY.unlink(missing_ok=True)
    job = train(log)
    try:
        wait_for(job, log, lambda: job.poll() == 0, "its end")
    except BaseException:
        kill(job)
        raise
    if not SUMMARY.is_file():
        raise Failure(f"the resumed job wrote no summary. The end of {log.relative_to(ROOT)}:\n{tail(log)}")
    summary = json.loads(SUMMARY.read_text())
    if summary["resumed_from"] is None or summary["resumed_from"] < newest:
        raise Failure(
            f"the second attempt resumed at {summary['resumed_from']}, but step {newest} was committed before the kill"
        )
    if summary["steps"] != STEPS:
        raise Failure(f"the job ended at step {summary['steps']}; {STEPS} were asked for")
    return summary


def reload():
    """Loads the last checkpoint's file with stock Keras, in a process that never imports DeepFreeze, and tests the model."""
    file = RUN / f"step-{STEPS:010d}" / "model.weights.h5"
    if not file.is_file():
        raise Failure(f"{file.relative_to(ROOT)}: there is no checkpoint of the last step")
    command = [str(VENV / "bin" / "python"), str(EXAMPLE / "evaluate.py"), str(file), "--json"]
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failure(f"stock Keras cannot load {file.relative_to(ROOT)}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def checks(summary, loaded):
    if min(summary["bytes_per_rank"]) <= 0 or len(summary["bytes_per_rank"]) != RANKS:
        raise Failure(f"not every rank has written: bytes per rank {summary['bytes_per_rank']}")
    if loaded["test_accuracy"] != summary["test_accuracy"]:
        raise Failure(f"test accuracy {summary['test_accuracy']} before, {loaded['test_accuracy']} after the reload")
    if abs(loaded["test_loss"] - summary["test_loss"]) > 1e-5 * abs(summary["test_loss"]):
        raise Failure(f"test loss {summary['test_loss']} before, {loaded['test_loss']} after the reload")


def table(summary, loaded, killed):
    blocking = [1000 * seconds for seconds in summary["blocking_seconds"]]
    rows = [
        ("steps", f"{summary['steps']} on {RANKS} ranks, {1000 * summary['step_seconds']:.0f} ms each (median)"),
        ("checkpoints since the resume", f"{len(blocking)}, every {INTERVAL * EPOCH} steps"),
        ("blocking time per checkpoint", f"median {statistics.median(blocking):.1f} ms, max {max(blocking):.1f} ms"),
        (
            "bytes per rank and checkpoint",
            ", ".join(f"rank {rank}: {size:,}" for rank, size in enumerate(summary["bytes_per_rank"])),
        ),
        ("killed at step", str(killed)),
        ("resumed at step", str(summary["resumed_from"])),
        ("test accuracy before the reload", repr(summary["test_accuracy"])),
        ("test accuracy after it, stock Keras", repr(loaded["test_accuracy"])),
    ]
    width = max(len(name) for name, _ in rows)
    say("\n" + "\n".join(f"  {name:<{width}}  {value}" for name, value in rows))


def announce():
    say("The demo takes about two minutes: it trains, is killed, resumes, and loads the result with stock Keras.")
    if not VENV.exists():
        say("Setting up, this first time, takes about five minutes more.")


def demo():
    if sys.argv[1:] == ["--announce"]:
        return announce()
    LOGS.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(RUN, ignore_errors=True)
    RUN.parent.mkdir(exist_ok=True)
    say(f"[1/4] training NT3 on {RANKS} Horovod ranks, a checkpoint every {INTERVAL * EPOCH} of {STEPS} steps")
    killed, newest = first_attempt()
    say("[2/4] starting it again")
    summary = second_attempt(newest)
    say(f"      resumed at step {summary['resumed_from']}, trained to step {summary['steps']}")
    say("[3/4] loading the last checkpoint with stock Keras, in a process that never imports deepfreeze")
    loaded = reload()
    say("[4/4] comparing")
    checks(summary, loaded)
    table(summary, loaded, killed)
    return look()


def look():
    """Commands for the run that is there now."""
    command, run = os.path.relpath(VENV / "bin" / "deepfreeze"), os.path.relpath(RUN)
    say("\nLook at the run that the demo has made:\n")
    for words in (f"ls {run}", f"show {run}", f"log {run}"):
        say(f"  {command} {words}")


if __name__ == "__main__":
    main(demo)
