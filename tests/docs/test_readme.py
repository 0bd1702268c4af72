"""What README.md tells people to do can be done: its commands and its code run, its files, links and names exist.

Run as a program (``test_readme.py FOLDER``), this file runs the code that needs no Horovod."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import traceback
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import deepfreeze
from deepfreeze.cli.main import main, parser
from tests.support import configs, files, jobs, processes, readme
from tests.support.pyproject import project
from tests.support.readme import ALONE, BLOCKS, INLINE, LAUNCHED, NT3, ROOT, SNIPPETS, TEXT, starting

DOCS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_make_target_exists():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {word for command in starting("make") for word in command[1:] if "=" not in word}
    assert {"demo", "test"} <= wanted <= targets
    # They run for minutes, and are steps of the CI run themselves. Here: make knows how.
    for target in sorted(wanted):
        done = execute(["make", "-n", target], MAKEFLAGS="")
        assert "tools/" in done.stdout or target == "help", target
    assert "make soak" in execute(["make", "help"], MAKEFLAGS="").stdout


def execute(words, cwd=ROOT, **env):
    """Runs a command to its end."""
    done = processes.run(
        words, cwd=cwd, env=jobs.environment(**env), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=jobs.LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done


def test_every_command_line_of_ours_is_understood():
    for command in starting("deepfreeze"):
        parser().parse_args(command[1:])


def test_every_command_line_of_ours_works_on_such_a_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "runs").mkdir()
    run = files.write_run(tmp_path / "runs" / "nt3")
    for step, seed in ((20, 0), (30, 1), (40, 2), (50, 3)):
        files.write_checkpoint(run, step, files.sample(seed=seed))
    configs.write_config(run)
    files.write_events(run)
    monkeypatch.chdir(tmp_path)
    commands = [command for command in starting("deepfreeze") if command[1] != "build-horovod"]  # make setup tries that
    assert {command[1] for command in commands} == {"ls", "log", "show", "verify", "diff", "export", "tag", "prune"}
    for command in commands:
        assert main(command[1:]) == 0, command
        assert capsys.readouterr().out, command
    assert [info.step for info in deepfreeze.checkpoints(run)] == [40, 50]  # what prune --yes leaves
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "nt3.weights.h5", "nt3.safetensors", "nt3.keras"}


def test_every_program_that_is_called_is_tried():
    """deepfreeze and python: here, and in a bare environment by tests/setup/test_wheel.py. mpirun and horovodrun: here.
    pip: tests/setup. make: by CI, in a checkout."""
    programs = {command.split()[0] for command in readme.COMMANDS if re.match(r"[a-z]+ ", command)}
    assert programs == {"deepfreeze", "python", "mpirun", "horovodrun", "pip", "make"}


def test_every_extra_exists():
    named = {e for command in starting("pip", "install") for e in re.findall(r"[a-z]+", command[2].partition("[")[2])}
    assert named and named <= set(project()["optional-dependencies"])


def test_every_module_that_is_run_runs():
    for command in starting("python", "-m"):
        assert "usage: " in execute([sys.executable, *command[1:]]).stdout


# The code


def run_alone(folder: Path) -> None:
    """The first snippet, then each of the others on a copy of what it left; what went wrong, in results.json."""
    results = []
    for number, program in enumerate(readme.programs()):
        here = folder / str(number)
        (here / "runs").mkdir(parents=True)
        if number:
            shutil.copytree(folder / "0" / "runs", here / "runs", dirs_exist_ok=True)
        os.chdir(here)
        try:
            exec(compile(program, "README.md", "exec"), {})
            results.append(None)
        except BaseException:
            results.append(f"{program}\n{traceback.format_exc()}")
    (folder / "results.json").write_text(json.dumps(results))


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.full
def test_every_snippet_for_one_process_runs(tmp_path):
    jobs.run(__file__, tmp_path)
    assert json.loads((tmp_path / "results.json").read_text()) == [None] * (1 + len(ALONE))
    ends = {name: deepfreeze.latest(tmp_path / name).step for name in ("0/runs/nt3", "1/runs/nt3", "2/runs/own")}
    assert ends == {"0/runs/nt3": 40, "1/runs/nt3": 60, "2/runs/own": 60}


@pytest.mark.full
@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.parametrize("launchers", [1, pytest.param(3, marks=pytest.mark.full)], ids=["one", "all"])
def test_every_snippet_for_horovod_runs_however_it_is_launched(tmp_path, launchers):
    """By README's own command lines. A job that was launched by one goes on when it is launched by another, if it is asked for
    more epochs."""
    keras3, keras2 = LAUNCHED
    assert "tf_keras" in keras2 and "`TF_USE_LEGACY_KERAS=1`" in TEXT
    (mpirun,), (horovodrun,), (alone,) = starting("mpirun"), starting("horovodrun"), starting("python", "train.py")
    jobs_of = [
        (mpirun, "keras", keras3, {}, (40, 2)),
        (horovodrun, "tf_keras", keras2, {"TF_USE_LEGACY_KERAS": "1"}, (40, 2)),
        (alone, "keras", keras3.replace("model.fit(x, y, ", "model.fit(x, y, epochs=2, "), {}, (80, 1)),
    ]
    for command, kind, snippet, env, end in jobs_of[:launchers]:
        (tmp_path / kind / "runs").mkdir(parents=True, exist_ok=True)
        (tmp_path / kind / "train.py").write_text(NT3.replace("KERAS", kind) + snippet)
        execute(command, tmp_path / kind, **env)
        info = deepfreeze.latest(tmp_path / kind / "runs" / "nt3")
        assert (info.step, info.world_size, info.framework["api"]) == (*end, kind)


def test_every_name_of_ours_exists():
    used = set(re.findall(r"\bdeepfreeze\.([A-Za-z_]+)", "\n".join([*SNIPPETS, *INLINE])))
    assert "Checkpoint" in used
    assert used - {"data"} <= set(deepfreeze.__all__)


def test_the_table_has_every_option_of_checkpoint_and_its_default():
    rows = re.findall(r"^\| `(?:(\w+)\()?(\w+)(?:=\))?` \| `?([^`|]+?)`? \|", TEXT, re.MULTILINE)
    from deepfreeze.training.options import Options

    groups = {
        "": Options(),
        "Engine": deepfreeze.Engine(),
        "Replicas": deepfreeze.Replicas(),
        "Capture": deepfreeze.Capture(),
    }
    wanted = [(group, name) for group, made in groups.items() for name in made.__dataclass_fields__]
    assert sorted((group, option) for group, option, _ in rows) == sorted([("", "every"), *wanted]), (
        "every option is there"
    )
    for group, option, default in rows:
        if (group, option) != ("", "every"):
            shown = groups[default[:-2]] if re.match(r"\w+\(\)", default) else ast.literal_eval(default)
            assert shown == getattr(groups[group], option), option


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        assert "://" in target or (document.parent / target).exists(), f"{document.name}: {target}"


def test_every_file_named_in_the_text_exists():
    tree = next(block for block in BLOCKS if block.startswith("deepfreeze/"))
    named = {line.split()[0] for line in tree.splitlines()} | {c for c in INLINE if re.fullmatch(r"[a-z_]+/[\w./]+", c)}
    named -= {c for c in named if c.startswith("runs/")}
    assert "native/" in named
    for path in named:
        assert (ROOT / path).exists(), path


def test_the_picture_is_well_formed():
    assert ElementTree.parse(ROOT / "docs" / "paths.svg").getroot().tag.endswith("svg")


if __name__ == "__main__":
    run_alone(Path(sys.argv[1]))
