"""What the fuzzers begin with, and what they found, without a fuzzer; and that no file is ever run as a program."""

from __future__ import annotations

import ast
import traceback
from pathlib import Path

import pytest

from tests.hostile import seeds
from tests.hostile.targets import TARGETS
from tests.support import native, processes

ROOT = Path(__file__).resolve().parents[2]
CORPUS = {name: sorted(p for folder in target.folders for p in folder.iterdir()) for name, target in TARGETS.items()}
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
    # Keras's, which make what a configuration names, and those that turn its safe mode off.
    "deserialize",
    "deserialize_keras_object",
    "enable_unsafe_deserialization",
    "SafeModeScope",
}
# Of other modules: json gives plain values; these import this package's own modules, by names from its own source.
HARMLESS = {"json.loads", "importlib.import_module"}
# What one rank tells another is pickled. Ranks are one job of one user, and what they say is never read from a file.
BETWEEN_RANKS, PICKLING = "ranks/bounded.py", {"pickle", "pickle.loads"}


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_breaks_no_promise_of_a_python_reader(name):
    target = TARGETS[name]
    broken = {}
    for path in CORPUS[name]:
        data = path.read_bytes()
        try:
            for hostile in (data, target.repair(data, False), target.repair(data, True)):
                target.run(hostile)
        except BaseException:  # a MemoryError or a RecursionError is one as well
            broken[path.name] = traceback.format_exc()
    assert not broken, "\n".join(f"{file}: {error}" for file, error in broken.items())


@pytest.mark.parametrize("name", ["record", "slot", "manifest"])
def test_both_languages_take_and_refuse_the_same_files(testing_library, name):
    folder = seeds.NATIVE / name
    done = processes.run(
        [native.BUILD / f"{name}_replay", folder], capture_output=True, text=True, timeout=60, check=True
    )
    theirs = {line.partition(" ")[2]: line.partition(" ")[0] == "taken" for line in done.stdout.splitlines()}
    ours = {path.name: TARGETS[name].run(path.read_bytes()) for path in folder.iterdir()}
    assert theirs == ours and set(ours.values()) == {True, False}


def test_the_corpus_is_small_and_has_the_seeds():
    paths = [path for found in CORPUS.values() for path in found]
    assert all(CORPUS.values()) and len(paths) < 200 and sum(path.stat().st_size for path in paths) < 200_000
    for folder, make in seeds.SEEDS.items():
        for name, data in make().items():
            assert (folder / f"seed-{name.replace(' ', '-')}").read_bytes() == data, "python -m tests.hostile.seeds"


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def unsafe(path: Path) -> list[str]:
    """What a source imports, calls or allows that runs what a file tells it to."""
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
            if last in ("broadcast_object", "allgather_object"):  # Horovod's, which pickle
                wrong.append(name)
            wrong += [name for word in node.keywords if word.arg in ("allow_pickle", "safe_mode", "custom_objects")]
    return [one for one in wrong if one not in PICKLING or not str(path).endswith(BETWEEN_RANKS)]


def test_nothing_is_unpickled_or_evaluated(tmp_path):
    assert len(SOURCES) > 50
    assert {str(path.relative_to(ROOT)): wrong for path in SOURCES if (wrong := unsafe(path))} == {}
    lines = (
        "import pickle",
        "np.load(path, allow_pickle=True)",
        "eval(text)",
        "keras.config.enable_unsafe_deserialization()",
    )
    (tmp_path / "hostile.py").write_text("\n".join(lines))
    assert unsafe(tmp_path / "hostile.py") == ["pickle", "np.load", "np.load", "eval", lines[3].removesuffix("()")]
