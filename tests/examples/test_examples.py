"""The examples train alone, under horovodrun and under mpirun, with every rank on its own rows; models are seeded from
another's checkpoint; each README is short, and its commands exist."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import deepfreeze
from tests.support import processes

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
SMALL = {
    # An epoch is one step.
    "candle_nt3": {
        "run": "--ckpt_directory",
        "options": ["--batch_size", "63", "--epochs", "2", "--ckpt_save_interval", "1"],
    },
    "resnet50": {
        "run": "--run",
        "options": ["--batch", "2", "--rows", "16", "--steps", "2", "--every", "1"],
        "rows": 16,
    },
}
LAUNCHERS = {
    "alone": ([], 1),
    "horovodrun": (["horovodrun", "-np", "2"], 2),
    "mpirun": (["mpirun", "--oversubscribe", "-np", "2"], 2),
}


def environment():
    env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2")
    env["PATH"] = f"{BIN}{os.pathsep}{env['PATH']}"
    if os.geteuid() == 0:
        env["OMPI_ALLOW_RUN_AS_ROOT"] = env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return env


def train(example, launcher, run, *options):
    """Runs one job; returns (its output, rank 0's summary)."""
    prefix, _ = LAUNCHERS[launcher]
    summary = run.parent / "summary.json"
    command = [*prefix, sys.executable, str(ROOT / "examples" / example / "train.py")]
    command += [SMALL[example]["run"], str(run), "--json", str(summary), *SMALL[example]["options"], *options]
    done = processes.run(
        command,
        env=environment(),
        cwd=run.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout, json.loads(summary.read_text())


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.ranks
@pytest.mark.parametrize(
    ("example", "launcher"),
    [
        ("candle_nt3", "alone"),
        pytest.param("candle_nt3", "horovodrun", marks=pytest.mark.full),  # what `make demo` trains
        pytest.param("candle_nt3", "mpirun", marks=pytest.mark.full),
        pytest.param("resnet50", "horovodrun", marks=pytest.mark.full),
    ],
)
@pytest.mark.full
def test_example_runs(example, launcher, tmp_path):
    ranks = LAUNCHERS[launcher][1]
    output, summary = train(example, launcher, tmp_path / "run")

    assert summary["ranks"] == ranks
    assert summary["steps"] == 2
    assert summary["resumed_from"] is None
    assert summary["checkpoints"] == [1, 2]
    assert len(summary["blocking_seconds"]) == 2
    assert len(summary["bytes_per_rank"]) == ranks and min(summary["bytes_per_rank"]) > 0
    assert 0 <= summary["test_accuracy"] <= 1
    if example == "candle_nt3":
        told = re.findall(r"rank (\d) of (\d): 1 batches in each epoch of 63 tumours", output)
        assert sorted(told) == [(str(rank), str(ranks)) for rank in range(ranks)]
    else:
        told = re.findall(r"rank (\d) of (\d): rows (\d+)\.\.(\d+)", output)
        ranges = sorted((int(first), int(last)) for _, of, first, last in told if int(of) == ranks)
        assert [first for first, _ in ranges] == [0, *(last + 1 for _, last in ranges[:-1])], (
            "each rank has rows of its own"
        )
        assert ranges[-1][1] == SMALL[example]["rows"] - 1

    # Started again, the finished job has nothing left to train, and says the same of the same weights.
    if (example, launcher) == ("candle_nt3", "alone"):
        _, again = train(example, launcher, tmp_path / "run")
        assert again["resumed_from"] == 2
        assert again["test_accuracy"] == summary["test_accuracy"]


@pytest.mark.parametrize("example", SMALL)
def test_batches_depend_on_their_step_alone(example):
    script = (
        "import itertools, data, numpy as np\n"
        "x, y = np.arange(7), np.arange(7)\n"
        "whole = [b[0].tolist() for b in itertools.islice(data.batches(x, y, 3, 0, 1), 12)]\n"
        "later = [b[0].tolist() for b in itertools.islice(data.batches(x, y, 3, 5, 1), 7)]\n"
        "assert later == whole[5:], (whole, later)\n"
        "assert sorted(sum(whole, [])[:7]) == list(range(7))\n"
    )
    if example == "resnet50":
        script += (
            "parts = [data.rows_of(rank, 5, 63) for rank in range(5)]\n"
            "assert [row for part in parts for row in part] == list(range(63))\n"
        )
    processes.run([sys.executable, "-c", script], cwd=ROOT / "examples" / example, check=True, timeout=60)


def test_the_tumours_are_of_every_type():
    script = (
        "import data\n"
        "x, y, test_x, test_y = data.load()\n"
        "assert x.shape == (63, data.GENES, 1) and test_x.shape == (20, data.GENES, 1)\n"
        "assert set(y) == set(test_y) == set(range(data.CLASSES))\n"
    )
    processes.run([sys.executable, "-c", script], cwd=ROOT / "examples" / "candle_nt3", check=True, timeout=60)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("example", ["candle_nt3", pytest.param("resnet50", marks=pytest.mark.full)])
def test_readme_is_short_and_its_commands_exist(example):
    folder = ROOT / "examples" / example
    lines = (folder / "README.md").read_text().splitlines()
    assert len(lines) <= 30
    commands = [shlex.split(line) for line in lines if line.startswith("    ")]
    assert len(commands) >= 5
    known: dict[str, str] = {}
    for command in commands:
        programs = [word for word in command if word in ("python", "horovodrun", "mpirun", "deepfreeze")]
        assert programs and all(shutil.which(program, path=environment()["PATH"]) for program in programs), command
        if programs == ["deepfreeze"]:
            continue
        script = next(word for word in command if word.endswith(".py"))
        assert (ROOT / script).is_file(), script
        if script not in known:
            known[script] = run(script, "--help", cwd=ROOT).stdout
        options = [word for word in command[command.index(script) :] if word.startswith("--")]
        assert [option for option in options if option not in known[script]] == []


def run(script, *options, cwd):
    """One of the examples' programs, to its end."""
    command = [sys.executable, str(ROOT / script), *map(str, options)]
    done = processes.run(
        command, env=environment(), cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done


@pytest.mark.full
@pytest.mark.tensorflow
def test_a_base_goes_under_a_new_classifier_and_the_figure_is_drawn(tmp_path):
    """A trained base goes under a new classifier, and the figure is drawn from the JSON file."""
    small = ["--base-steps", 3, "--steps", 4, "--every", 2, "--images", 4, "--batch", 8, "--seeds", 1]
    output = run("examples/resnet50/transfer.py", "--out", tmp_path / "out", *small, cwd=tmp_path).stdout
    result = json.loads((tmp_path / "out" / "transfer.json").read_text())
    transferred, scratch = result["curves"]
    assert (transferred["beginning"], scratch["beginning"]) == ("transferred", "scratch")
    assert (transferred["parent"], scratch["parent"]) == ("base@3", None)
    # 13 convolutions, 9 normalisations of 4 weights each
    assert (transferred["weights"], scratch["weights"]) == (49, 0)
    for curve in result["curves"]:
        assert curve["steps"] == [0, 2, 4] and all(0 <= accuracy <= 1 for accuracy in curve["accuracy"])
    assert "49 loaded, 2 skipped, 2 missing" in output and "steps to accuracy" in output
    figure = tmp_path / "out" / "transfer.png"
    before = figure.read_bytes()
    assert before.startswith(b"\x89PNG")
    figure.unlink()
    run("examples/resnet50/transfer.py", "--draw", tmp_path / "out" / "transfer.json", cwd=tmp_path)
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert str(tmp_path) not in (tmp_path / "out" / "transfer.json").read_text()


@pytest.mark.full
@pytest.mark.tensorflow
def test_a_search_seeds_its_trials_from_one_ancestor(tmp_path):
    small = ["--trials", 4, "--jobs", 2, "--ancestor-steps", 1, "--steps", 1, "--batch", 1]
    arguments = ["examples/candle_nt3/search.py", "--out", "out", "--json", "table.json", *small]
    output = run(*arguments, cwd=tmp_path).stdout
    results = json.loads((tmp_path / "table.json").read_text())
    assert len(results) == 4
    ancestor = deepfreeze.latest(tmp_path / "out" / "ancestor")
    for result in results:
        parent = deepfreeze.latest(tmp_path / "out" / result["name"]).parent
        if result["seeded"]:
            assert parent.run_id == ancestor.run_id and parent.step == ancestor.step == 1
            # The hidden layer's width decides over its kernel and bias, and the kernel behind it.
            assert result["loaded"] == (10 if result["width"] == 20 else 7)
            assert len(result["fresh"]) == 10 - result["loaded"]
        else:
            assert parent is None and result["loaded"] == 0
    assert {result["seeded"] for result in results} == {True, False}
    assert {result["width"] for result in results if result["seeded"]} == {20, 40}
    table = output.splitlines()[-4:]
    assert sum("out/ancestor@1" in line for line in table) == 3 and sum(line.endswith("none") for line in table) == 1
    # The ancestor is there; the trials have no step left to train.
    again = run(*arguments, cwd=tmp_path).stdout
    assert "ancestor (" not in again and again.splitlines()[-4:] == table
