"""The lines of README's Install, each run for real: what they install reads checkpoints, one of them where there is no compiler."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import files, processes
from veloc_bindings import _library

ROOT = Path(__file__).resolve().parents[2]
LINES = re.findall(r"^    ((?:\w+=\w+ )?pip install .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
WITHOUT = "DEEPFREEZE_ENGINE=none"
# The packages that it needs are here; and what builds it, too.
OFFLINE = ["--no-deps", "--no-build-isolation", "--no-index"]
READ = """
import sys, deepfreeze
from deepfreeze.engine.backends import table as backends

assert deepfreeze.__file__.startswith(sys.argv[1]), deepfreeze.__file__
with deepfreeze.read(sys.argv[2]) as tensors:
    print(len(dict(tensors)), [info.step for info in deepfreeze.checkpoints(sys.argv[2])])
try:
    print(backends.chosen().load())
except deepfreeze.EngineError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy, as building leaves things behind; with the engine that was built here, and without what it is built from."""
    folder = tmp_path_factory.mktemp("source")
    for package in ("deepfreeze", "veloc_bindings"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "native" / "include", folder / "native" / "include")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder)
    shutil.copy(_library.find(), folder / "veloc_bindings" / _library.NAME)
    return folder


def installed(line, source, folder, **env):
    """Runs the line, into a folder of its own."""
    words = shlex.split(line)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    command = [sys.executable, "-m", *words, *OFFLINE, "--target", folder]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = processes.run(command, timeout=300, cwd=source, env=inherited | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_readme_says_how_to_install_it_with_and_without_the_engine():
    assert len(LINES) >= 3 and sum(line.startswith(WITHOUT) for line in LINES) == 1


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_what_is_installed_reads_checkpoints(line, source, tmp_path):
    without = line.startswith(WITHOUT)
    if without:
        (tmp_path / "nothing").mkdir()
        found = installed(line, source, tmp_path / "site", PATH=str(tmp_path / "nothing"))  # no compiler, no cmake
    else:
        found = installed(line, source, tmp_path / "site", DEEPFREEZE_LIBRARY=str(_library.find()))
    assert {"deepfreeze/py.typed", "deepfreeze/cli/main.py", "bin/deepfreeze"} <= found
    assert {name for name in found if name.endswith(".so")} == (
        set() if without else {"veloc_bindings/libdeepfreeze.so"}
    )
    wheel = next(name for name in found if name.endswith(".dist-info/WHEEL"))
    tag = "py3-none-any" if without else "linux"
    assert tag in (tmp_path / "site" / wheel).read_text()

    run = files.write_run(tmp_path / "run")
    files.write_checkpoint(run, 40)
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    env.pop("DEEPFREEZE_LIBRARY", None)
    command = [sys.executable, "-c", READ, str(tmp_path / "site"), str(run)]
    done = processes.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read, engine = done.stdout.splitlines()
    assert read == "5 [40]"
    assert ("expected the native engine" in engine and "no such file" in engine) if without else engine == "None"


def test_another_word_for_the_engine_is_refused_with_those_there_are(source):
    command = [sys.executable, "setup.py", "--version"]
    env = {**os.environ, "DEEPFREEZE_ENGINE": "no"}
    done = processes.run(command, cwd=source, env=env, capture_output=True, text=True)
    assert done.returncode == 1 and "expected build or none; found 'no'" in done.stderr
