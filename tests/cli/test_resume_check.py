"""``deepfreeze resume-check``: what a program does after a kill, and what keeps it from going on bit for bit."""

import json
import sys

import pytest

from deepfreeze.cli.main import main
from deepfreeze.cli.rehearsals import Rehearsals
from deepfreeze.errors import InstallError, ProgramError
from tests.support import jobs, kerases, processes
from tests.support.ranks import until


def check(tmp_path, *options, how="right", name="keras", status=0):
    """Runs the command on tests/jobs/rehearsed.py. Returns what it says, with --json as a mapping."""
    legacy = {"TF_USE_LEGACY_KERAS": "1"} if name == "tf_keras" else {}
    program = [sys.executable, jobs.JOBS / "rehearsed.py", how]
    command = [sys.executable, "-m", "deepfreeze", "resume-check", *options, "--", *program]
    done = processes.run(command, capture_output=True, cwd=tmp_path, env=jobs.environment(**legacy))
    assert done.returncode == status, done.stdout.decode() + done.stderr.decode()
    assert not (tmp_path / "runs").exists()
    said = done.stdout.decode()
    return json.loads(said) if "--json" in options else said


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("name", kerases.NAMES)
def test_resume_check_names_an_unseeded_shuffle(tmp_path, name):
    """Without any seed the program is not repeatable, which is said before a kill is tried. With a seed, the shuffle that begins again
    after the kill is named."""
    said = check(tmp_path, "--steps", "12", how="unseeded", name=name, status=5)
    assert said.startswith("not repeatable: two trainings without a kill differ at step 12. No kill was tried\n")
    assert "  weight dense" in said and "keras.utils.set_random_seed(1)" in said
    told = check(tmp_path, "--steps", "12", "--kill", "7", "--json", how="shuffled", name=name, status=3)
    assert (told["verdict"], told["step"], told["killed"], told["resumed"]) == ("differs", 12, 7, 7)
    assert {one["kind"] for one in told["tensors"]} >= {"weight", "optimizer"}
    assert told["causes"][0].startswith("the input's order is not repeated: training was killed at batch 7 of epoch 1")


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("name", kerases.NAMES)
@pytest.mark.parametrize(("how", "killed"), [("right", 6), ("loop", 6), ("executions", 8), ("data", 6)])
def test_an_input_that_follows_from_the_step_goes_on_bit_for_bit(tmp_path, how, killed, name):
    """An execution of steps 4 to 6 captures step 4, which the program asks for, and the next checkpoint is the one of step 8."""
    said = check(tmp_path, "--steps", "12", "--kill", "6", "--keep", "kept", how=how, name=name)
    assert said.startswith(f"goes on bit for bit: killed at step {killed}, and the same at step 12 (")
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        *(f"{one}{end}" for one in ("uninterrupted", "repeated", "killed") for end in ("", ".log"))
    }


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.tensorflow
def test_what_else_keeps_a_program_from_going_on_is_named(tmp_path):
    told = check(tmp_path, "--steps", "6", "--json", how="forgets", status=3)
    assert told["states"] == [{"kind": "extra", "name": "count", "ranks": [0]}]
    assert [one for one in told["tensors"] if one["kind"] != "metric"] == [], "Keras 2 saves running means, too"
    assert told["causes"][0] == (
        "extra['count'], rank 0: load_state_dict() does not bring back all that the state depends on"
    )
    told = check(tmp_path, "--steps", "6", "--json", how="anew", status=3)
    assert told["resumed"] is None and told["causes"][0].startswith("the program did not resume")


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.ranks
@pytest.mark.skipif(not jobs.has("horovodrun"), reason="horovodrun is not installed")
def test_all_ranks_of_a_job_are_killed_and_go_on(tmp_path):
    told = check(tmp_path, "--steps", "8", "--kill", "3", "-np", "2", "--json", how="ranks")
    assert (told["verdict"], told["killed"], told["resumed"]) == ("resumes", 3, 3)


def rehearsals(tmp_path, program, seconds=60, ranks=None):
    lines = []
    return Rehearsals([sys.executable, "-c", program], ranks, 4, 2, seconds, tmp_path, lines.append), lines


def test_a_program_that_never_checkpoints_is_refused(tmp_path, capsys):
    assert main(["resume-check", "--", sys.executable, "-S", "-c", "pass"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "expected a checkpoint of step 20; found none: the program never checkpoints" in said.err


def test_the_end_of_a_failed_programs_output_is_shown(tmp_path):
    made, lines = rehearsals(tmp_path, "print('what', 'went', 'wrong'); raise SystemExit(7)")
    with pytest.raises(ProgramError, match="failed with exit code 7"):
        made.uninterrupted("first")
    assert lines == ["first: the program trains 4 steps", "    what went wrong"]
    with pytest.raises(ProgramError, match="failed with exit code 7"):
        made.killed("second")


@pytest.mark.slow
def test_a_program_that_hangs_is_ended(tmp_path):
    """And so is a process that it has started."""
    child = "import subprocess as sp; inner = sp.Popen(['sleep', '60']); print(inner.pid, flush=True); inner.wait()"
    made, lines = rehearsals(tmp_path, child, seconds=0.5)
    with pytest.raises(ProgramError, match="expected an end within 500 ms; found a program that was still running"):
        made.uninterrupted("first")
    until(lambda: not processes.lives(int(lines[-1])))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--steps", "1", "--", "x"], "--steps: expected at least 2 steps"),
        (["--steps", "8", "--kill", "8", "--", "x"], "--kill: expected a step below the last one, 8; found 8."),
        ([], "resume-check: expected the command line that starts the program; found none."),
        (["--keep", ".", "--", "x"], "--keep .: expected an empty folder; found one with files."),
        (["--", "./no-such-program"], "./no-such-program: expected a program; found No such file or directory."),
    ],
    ids=["steps", "kill", "program", "keep", "missing"],
)
def test_a_wrong_command_line_is_said_with_exit_code_2(tmp_path, monkeypatch, capsys, options, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(["resume-check", *options]) == 2
    assert said in capsys.readouterr().err


def test_ranks_without_a_launcher_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InstallError, match="horovodrun or mpirun on PATH"):
        rehearsals(tmp_path, "pass", ranks=2)
