"""What the fuzzers begin with, and what they found, without a fuzzer; and that no file is ever run as a program."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from tests.hostile import seeds
from tests.hostile.targets import TARGETS
from tests.support import native

ROOT = Path(__file__).resolve().parents[2]
CORPUS = [
    (name, path) for name, target in TARGETS.items() for folder in target.folders for path in sorted(folder.iterdir())
]
SOURCES = sorted(path for package in ("deepfreeze", "veloc_bindings") for path in (ROOT / package).rglob("*.py"))
# They run what a file tells them to, or may.
RUNNERS = {
    "pickle",
    "_pickle",
    "cPickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "yaml",
    "code",
    "runpy",
    "imp",
}
CALLS = {"eval", "exec", "compile", "__import__", "np.load", "numpy.load"}
LOADERS = {
    "loads",
    "load_model",
    "model_from_json",
    "model_from_config",
    "fromfile",
    "genfromtxt",
    "import_module",
}
# Of other modules: json gives plain values; these import this package's own modules, by names from its own source.
HARMLESS = {"json.loads", "importlib.import_module"}
# Horovod pickles what one rank tells another. Ranks are one job of one user, and what they say is never read from a file.
BETWEEN_RANKS = {"broadcast_object": "core/world.py", "allgather_object": "core/world.py"}


@pytest.mark.parametrize(("name", "path"), CORPUS, ids=lambda value: value.name if isinstance(value, Path) else value)
def test_the_corpus_breaks_no_promise_of_a_python_reader(name, path):
    target = TARGETS[name]
    data = path.read_bytes()
    target.run(data)
    for sizes in (False, True):
        target.run(target.repair(data, sizes))


@pytest.mark.parametrize("name", ["record", "slot", "manifest"])
def test_both_languages_take_and_refuse_the_same_files(testing_library, name):
    folder = seeds.NATIVE / name
    done = subprocess.run(
        [native.BUILD / f"{name}_replay", folder], capture_output=True, text=True, timeout=60, check=True
    )
    theirs = {line.partition(" ")[2]: line.partition(" ")[0] == "taken" for line in done.stdout.splitlines()}
    ours = {path.name: TARGETS[name].run(path.read_bytes()) for path in folder.iterdir()}
    assert theirs == ours and set(ours.values()) == {True, False}


def test_the_corpus_is_small_and_has_the_seeds():
    assert sum(path.stat().st_size for _, path in CORPUS) < 200_000 and len(CORPUS) < 200
    for folder, make in seeds.SEEDS.items():
        for name, data in make().items():
            assert (folder / f"seed-{name.replace(' ', '-')}").read_bytes() == data, "python -m tests.hostile.seeds"


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_unpickled_or_evaluated(path):
    wrong = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            wrong += [alias.name for alias in node.names if alias.name.split(".")[0] in RUNNERS]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in RUNNERS:
            wrong.append(str(node.module))
        elif isinstance(node, ast.Call):
            name = _called(node)
            last = name.rpartition(".")[2]
            if name in CALLS or (last in LOADERS and name not in HARMLESS):
                wrong.append(name)
            if last in BETWEEN_RANKS and not str(path).endswith(BETWEEN_RANKS[last]):
                wrong.append(name)
            wrong += [name for word in node.keywords if word.arg in ("allow_pickle", "safe_mode", "custom_objects")]
    assert wrong == []
