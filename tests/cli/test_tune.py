"""``deepfreeze tune``: a store alone, and a user's program; what is kept, what is left, and what is refused."""

import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

import deepfreeze
from deepfreeze.cli import main as command_line
from deepfreeze.cli.programs import Program
from deepfreeze.events import Decision
from deepfreeze.plan import Budget
from deepfreeze.plan.budget_section import BudgetSection
from deepfreeze.plan.pccheck import ENDS, MOST_CHECKPOINTS, Setting
from deepfreeze.store.lock import Lock
from deepfreeze.store.plan import read_section
from deepfreeze.store.run import Run
from deepfreeze.tuning.engine_alone import Job
from tests.support import faults, files, jobs, killed, processes
from tests.support.ranks import until
from tests.support.seed import SEED

NOTHING = ["--", sys.executable, "-S", "-c"]  # a program without DeepFreeze follows


def main(*words):
    return command_line.main(["tune", *map(str, words)])


def content(folder):
    """All files below a folder, with their bytes."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def memory():
    """A folder in memory: what a disk gives does not matter here, and it may be busy."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="deepfreeze-test-") as folder:
        yield Path(folder)


@pytest.fixture
def run(memory):
    """A run with a checkpoint, alone in its folder."""
    folder = memory / "runs"
    folder.mkdir()
    files.write_checkpoint(files.write_run(folder / "mine"), 40, files.sample())
    return folder / "mine"


# A store alone.

BLOCKS = 8 * (4 << 20)  # bytes of the writers' blocks, which belong to the memory of captures


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_store_is_tuned_by_checkpoints_of_so_many_bytes(memory, capsys, ranks):
    """Eight writers are tried first, and the run need not exist. Nothing stays beside it."""
    assert main("--json", "--bytes", "100kB", "--ranks", ranks, memory / "run") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"] == str(memory / "run") and not found["stored"]
    assert (found["nbytes"], found["interval"], found["iteration"], found["profile"]) == (10**5, None, None, None)
    settings = [(one["uncommitted"], one["writers"], one["transfers"]) for one in found["tried"]]
    assert settings[:4] == [(1, 8, 1), (1, 1, 1), (1, 2, 1), (1, 4, 1)] and settings[4][0] == 2
    assert found["chosen"] in [
        {name: one[name] for name in ("writers", "transfers", "uncommitted")} for one in found["tried"]
    ]
    assert found["ended"] in ENDS and sum(one["checkpoints"] for one in found["tried"]) <= MOST_CHECKPOINTS
    assert all(one["period"] > 0 and one["under_way"] >= 1 for one in found["tried"])
    assert list(memory.iterdir()) == []


def test_a_tuned_store_is_shown_as_a_table_and_the_run_stays_as_it_is(run, capsys):
    before = content(run.parent)
    assert main("--bytes", "100kB", "--memory", f"{BLOCKS + 150_000}B", run) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"store        that of {run}", "checkpoints  100 kB, by 1 rank of this machine"]
    assert lines[2].startswith("chosen       1 checkpoint on its way at a time, ")
    assert lines[4] == "the search   was over because as many as there is room for were tried"
    assert [line.split()[0] for line in lines[6:]] == ["on", "1", "1", "1", "1"]
    assert sum(line.endswith("  chosen") for line in lines) == 1
    assert content(run.parent) == before


@pytest.mark.parametrize(
    ("memory", "storage", "uncommitted"),
    [
        (None, None, 4),
        (BLOCKS + 2 * 10**6, None, 2),
        (None, 4 * 10**6, 2),
        (BLOCKS + 9 * 10**6, 3 * 10**6, 1),
    ],
)
def test_memory_and_storage_bound_the_checkpoints_on_their_way(memory, storage, uncommitted):
    """Two checkpoints are kept, and have their part of the storage. Each rank's memory holds the rank's part."""
    job = Job(10**6, memory=memory, storage=storage)
    assert job.most(free=10**9) == Setting(8, uncommitted, uncommitted)
    most = 4 if memory is None else (memory - BLOCKS) // 10**6
    assert Job(4 * 10**6, 4, memory=memory).most(10**9).uncommitted == min(4, most)
    assert job.most(free=3 * 10**6).uncommitted == 1, "what is free bounds them too"


@pytest.fixture
def full(library):
    """Called with the steps for which the store has no room."""
    yield lambda *steps: faults.plan(",".join(f"fail=ENOSPC:pwrite:step-{step:010d}.partial:1+" for step in steps))
    faults.plan()


@pytest.mark.parametrize("step", [0, 9], ids=["first", "several"])
def test_a_store_that_refuses_is_named_or_what_fitted_is_chosen(run, full, capsys, step):
    """The store is full from that step on. Nothing of the checkpoints stays, and the run's own is untouched."""
    before = content(run.parent)
    full(step, step + 1)
    assert main("--json", "--bytes", "100kB", run) == (0 if step else 1)
    said = capsys.readouterr()
    if step:
        found = json.loads(said.out)
        assert found["ended"] == "store" and found["chosen"]["uncommitted"] == 1
    else:
        assert said.out == "" and "expected a checkpoint to be committed; found " in said.err
        assert "No space left on device" in said.err
    assert content(run.parent) == before


@pytest.mark.slow
def test_a_tuning_that_is_killed_at_any_call_leaves_the_run_as_it_was(run, testing_library, monkeypatch):
    """Its scratch run stays beside the run, until the next tuning."""
    monkeypatch.setattr("veloc_bindings._library._loaded", None)
    choose, before, calls = random.Random(SEED), content(run), []

    def tune():
        assert main("--json", "--bytes", "100kB", run) == 0

    for call in killed.before_each_call(
        tune, engine=testing_library, points=lambda numbers: [choose.choice(numbers[:15])]
    ):
        assert content(run) == before, f"seed {SEED}, {call}"
        calls.append(call)
    assert len(calls) > 5 and calls[-1] == "the end", f"seed {SEED}: {calls}"
    tune()
    assert [path.name for path in run.parent.iterdir()] == ["mine"]


# The command line.


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "tune: expected the command line that starts the program; found none. Put it behind --: -- python train.py"),
        (["runs/nt3"], "expected the command line that starts the program; found runs/nt3."),
        (["--"], "expected the command line that starts the program; found --."),
        (["--ranks", 2, "--", "x"], "--ranks: expected --bytes beside it; found none. Use -np."),
        (["--memory", "1GB", "--", "x"], "--memory: expected --bytes beside it; found none. Leave it out: the program's"),
        (["--storage", "1GB", "--", "x"], "--storage: expected --bytes beside it; found none."),
        (["--bytes", "1MB"], "tune --bytes: expected one run, behind all options; found none."),
        (["--bytes", "1MB", "--", "python", "x"], "expected one run, behind all options; found -- python x."),
        (["--bytes", "1MB", "run", "--ranks", 2], "expected one run, behind all options; found run --ranks 2."),
        (["-np", 2, "--bytes", "1MB", "run"], "-np: expected a program, and no --bytes beside it; found --bytes. Use --ranks."),
        (["--keep", "kept", "--bytes", "1MB", "run"], "--keep: expected a program, and no --bytes beside it"),
        (["--overhead", 0.1, "--bytes", "1MB", "run"], "--overhead: expected a program, and no --bytes beside it"),
        (["--bytes", "1MB", "none/run"], "none/run: expected a directory "),
        (["--bytes", "2MB", "--memory", "1MB", "run"], "memory=: expected at least 35554432 bytes on this rank: 2000000 for its shard"),
        (["--bytes", "2MB", "--storage", "5MB", "run"], "storage: expected 6000000 bytes: 2 checkpoints that stay, and one"),
        (["--", "./no-such-program"], "./no-such-program: expected a program; found No such file or directory."),
        (["--keep", ".", "--", "x"], "--keep .: expected an empty folder; found one with files."),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_refused_with_exit_code_2(tmp_path, monkeypatch, capsys, options, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(*options) == 2
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "options", [["--overhead", "0"], ["--overhead", "2"], ["--bytes", "0"], ["--bytes", "many"], ["--memory", "-1"]]
)
def test_a_number_that_is_none_is_refused_with_exit_code_2(capsys, options):
    with pytest.raises(SystemExit, match="2"):
        main(*options, "run")
    assert f"error: argument {options[0]}: " in capsys.readouterr().err


# A program.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('what', 'went', 'wrong'); raise SystemExit(7)", "found one that failed with exit code 7; the end"),
        ("import os; os.kill(os.getpid(), 9)", "found one that failed with SIGKILL; the end"),
        ("pass", "expected a training with checkpoints; found none. Give the program a deepfreeze.Checkpoint"),
    ],
    ids=["fails", "killed", "no-checkpoint"],
)
def test_a_program_that_can_not_be_tuned_is_named_with_exit_code_1(capsys, text, said):
    assert main(*NOTHING, text) == 1
    told = capsys.readouterr()
    assert told.out == "" and said in told.err
    assert ("    what went wrong" in told.err) == ("went" in text), "the end of its output is shown"


@pytest.mark.slow
def test_a_program_that_hangs_is_ended_after_the_timeout(capsys):
    assert (
        main("--timeout", 1, *NOTHING, "import os, time; print('pid', os.getpid(), flush=True); time.sleep(100)") == 1
    )
    told = capsys.readouterr().err
    assert (
        "expected an end within 1 s; found a program that was still running, and was ended. If it needs longer" in told
    )
    pid = int(told.partition("    pid ")[2].split()[0])
    assert not processes.lives(pid)


class InProcess:
    """A program's training, in this process: a second TensorFlow costs seconds. ``policy``: of its ``Checkpoint``; ``over``: is asked after
    each step, with the number of checkpoints that were committed so far, whether the program ends by itself."""

    def __init__(self, run):
        self.run, self.policy, self.over = run, 10, lambda step, committed: False
        self.checkpoint, self.events = None, []  # of the last training

    def start(self, variables, log, seconds, which, todo, look):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            self.train()
        return 0

    def train(self):
        import keras

        from tests.support import trainings

        keras.backend.clear_session()  # as a new process: the layers have the names of the last training's
        model = trainings.dense(keras)
        events = self.events = []
        checkpoint = self.checkpoint = deepfreeze.Checkpoint(
            self.run, self.policy, verbose=0, resume_epochs=False, listeners=[events.append]
        )

        def ended(batch, logs):
            time.sleep(0.003)
            model.stop_training |= self.over(batch + 1, len(checkpoint.stats.committed))

        last = keras.callbacks.LambdaCallback(on_train_batch_end=ended)
        data = trainings.data(1).repeat()
        model.fit(data, steps_per_epoch=10**9, verbose=0, shuffle=False, callbacks=[checkpoint, last])


@pytest.fixture
def program(run, monkeypatch):
    """A program that trains in ``run``, as ``main(*PROGRAM)`` starts it."""
    made = InProcess(run)
    monkeypatch.setattr(Program, "start", lambda self, *arguments: made.start(*arguments))
    return made


PROGRAM = ["--", "python", "train.py"]


def section(run):
    found = read_section(Run.open(run), "budget")
    return None if found is None else BudgetSection.from_json(found)


@pytest.mark.tensorflow
def test_the_real_run_gets_a_section_of_its_plan_and_nothing_else(run, program, capsys):
    """The program's own policy is that of every second step. Its checkpoints stay, and the scratch run goes. A real job with ``Budget``
    begins with what was found, and tries nothing."""
    program.run, program.policy, program.over = run.parent / "new", 2, lambda step, committed: step == 4
    program.train()
    before = content(run.parent)
    assert len(deepfreeze.checkpoints(program.run)) == 2
    program.over = lambda step, committed: False
    assert main("--json", "--overhead", 0.5, *PROGRAM) == 0
    told = json.loads(capsys.readouterr().out)
    after = content(run.parent)
    assert after.pop("new/plan.json") and after == before
    found = section(program.run)
    assert told["stored"] and told["run"] == str(program.run) and told["interval"] == found.auto.interval >= 1
    assert told["chosen"] == vars(found.chosen) and len(told["tried"]) == len(found.tried) >= 4
    assert found.auto.overhead == 0.5 and found.auto.step == 0 and found.auto.decisions == ()
    assert program.checkpoint.stats.stopped == "tune" and len(program.checkpoint.stats.steps) <= 41
    # The real job.
    program.policy, program.over = Budget(0.5), lambda step, committed: committed > 1
    program.train()
    (first, *_) = [one for one in program.events if isinstance(one, Decision)]
    assert (first.after, first.reason) == (found.auto.interval, "resumed")
    assert first.step == program.checkpoint.stats.resumed + 1, "nothing is tried"
    assert program.policy.setting == found.chosen and program.policy.order == 0
    assert section(program.run).tried == found.tried, "the table stays"


@pytest.mark.tensorflow
@pytest.mark.parametrize("over", [0, pytest.param(5, marks=pytest.mark.full)])
def test_a_program_that_ends_before_its_engine_is_tuned_says_the_best_so_far(run, program, capsys, over):
    """With exit code 1, and nothing is stored. It ends before the first checkpoint, or behind two of the search and two of the profile."""
    before, program.over = content(run.parent), lambda step, committed: committed >= over
    assert main(*PROGRAM) == 1
    told = capsys.readouterr()
    if over == 0:
        assert (
            "expected a training in which an engine is tuned; found one that ended before any setting was" in told.err
        )
        assert told.out == ""
    else:
        assert "interval    not chosen\n" in told.out and "chosen      1 checkpoint on its way" in told.out
        assert (
            "stored      no: the training ended before the search was over; have the program train longer" in told.out
        )
    assert content(run.parent) == before


@pytest.mark.full
@pytest.mark.tensorflow
def test_while_a_job_has_the_run_the_result_is_printed_alone(run, program, capsys):
    with Lock.acquire(run):
        before = content(run.parent)
        assert main(*PROGRAM) == 0
        assert content(run.parent) == before
    told = capsys.readouterr().out
    assert "\nstored      no: a job trains in that run now\n" in told and "\nchosen      " in told


@pytest.mark.full
@pytest.mark.tensorflow
def test_a_first_run_is_made_for_its_plan(run, program, capsys):
    program.run = run.parent / "new"
    assert main("--overhead", 0.5, *PROGRAM) == 0
    assert {path.name for path in program.run.iterdir()} == {"run.json", "plan.json", "lock"}
    assert f"\nstored      in {program.run}/plan.json\n" in capsys.readouterr().out
    program.policy, program.over = Budget(0.5), lambda step, committed: committed > 1
    program.train()
    assert program.checkpoint.stats.committed and program.policy.setting == section(program.run).chosen


@pytest.mark.full
@pytest.mark.tensorflow
def test_an_interrupted_tuning_leaves_no_scratch_run(run, program, capsys):
    def interrupt(step, committed):
        raise KeyboardInterrupt

    before, program.over = content(run.parent), interrupt
    assert main(*PROGRAM) == 130
    assert content(run.parent) == before


def started(tmp_path, how, *options, code=0):
    """Tunes tests/jobs/tuned.py in a process of its own. Returns what it prints as JSON."""
    line = [sys.executable, "-m", "deepfreeze", "tune", "--json", "--overhead", "0.5", *options, "--"]
    line += [sys.executable, jobs.JOBS / "tuned.py", how]
    done = processes.run(line, capture_output=True, cwd=tmp_path, env=jobs.environment())
    assert done.returncode == code, done.stdout.decode() + done.stderr.decode()
    return json.loads(done.stdout)


def left(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("how", ["fit", "loop", "two"])
def test_a_users_program_is_tuned_as_it_is(tmp_path, how):
    """Of one that trains in two runs the first one counts."""
    (tmp_path / "runs").mkdir()
    told = started(tmp_path, how)
    assert told["stored"] and told["interval"] >= 1 and told["run"] == str(tmp_path / "runs" / "mine")
    assert left(tmp_path) == ["runs"] and left(tmp_path / "runs") == ["mine"]
    assert left(tmp_path / "runs" / "mine") == ["lock", "plan.json", "run.json"]


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.ranks
@pytest.mark.skipif(not jobs.has("horovodrun"), reason="horovodrun is not installed")
def test_all_ranks_of_a_program_are_tuned_together(tmp_path):
    (tmp_path / "runs").mkdir()
    told = started(tmp_path, "ranks", "-np", "2")
    assert told["stored"] and section(tmp_path / "runs" / "mine").conditions.world_size == 2
    assert left(tmp_path / "runs") == ["mine"]


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_program_and_its_tuning_killed_half_way_leave_the_run_as_it_was(run):
    before, choose = content(run), random.Random(SEED)
    line = [sys.executable, "-m", "deepfreeze", "tune", "--", sys.executable, jobs.JOBS / "tuned.py", "fit"]
    folder = run.parent.parent
    with processes.child(line, cwd=folder, env=jobs.environment()) as process:
        until(lambda: list(run.parent.glob("mine.tune-*/step-*")))
        time.sleep(choose.uniform(0, 0.3))
        os.kill(process.pid, signal.SIGKILL)
    assert content(run) == before, f"seed {SEED}"
    assert [path.name for path in Path(run.parent).glob("mine.tune-*")], "nobody was left to delete it"
    assert main("--bytes", "100kB", run) == 0
