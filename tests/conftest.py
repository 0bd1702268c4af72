"""What all tests share: tiers and costs (plugins of their own), the tests' engine, and the lines that sweeps end with."""

import gc
import importlib
import os
import sys
from collections.abc import Iterator

import pytest

from deepfreeze.process_state import PROCESS
from tests.support import kerases, native
from tests.support.horovod import Horovod, horovod

pytest_plugins = ["tests.support.tiers", "tests.support.costs"]

# Ranks that wait for each other poll, and keep the cores from those they wait for: there are more ranks than cores here.
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")


def pytest_sessionstart(session):
    """Stops the run if the engine is older than its sources: tests of an older engine prove nothing."""
    if not hasattr(session.config, "workerinput") and (wrong := native.complaint()):
        pytest.exit(wrong, returncode=pytest.ExitCode.USAGE_ERROR)


def pytest_collection_finish():
    """Exempts what was imported from garbage collection, which would go through TensorFlow's modules again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """Keras forgets a module's models at the module's end, and what is left is exempt from garbage collection. TensorFlow keeps the graph
    of each function that it has traced until the process ends. A search of all graphs after each module took a third of the tests'
    time."""
    yield
    for keras in [sys.modules[name] for name in ("keras", "tf_keras") if hasattr(sys.modules.get(name), "backend")]:
        keras.backend.clear_session()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def process():
    """Each test begins as a process that has trained nothing yet."""
    PROCESS.forget()


def pytest_terminal_summary(terminalreporter):
    """What the sweeps counted, at the end: nobody sees what a passing test prints. A test hands its line over by
    ``record_property("points", line)``, which reaches this process from others too."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    lines = [text for report in reports for name, text in report.user_properties if name == "points"]
    if lines:
        terminalreporter.section("sweeps", sep="-")
    for line in sorted(lines):
        terminalreporter.write_line(line)


@pytest.fixture(params=kerases.NAMES, scope="module")
def keras(request):
    """Every Keras that is installed here, imported: a test that asks for ``keras`` runs with each."""
    return importlib.import_module(request.param)


@pytest.fixture(params=kerases.NAMES, scope="module")
def api(request):
    """As ``keras``, for files that import ``keras`` themselves."""
    return importlib.import_module(request.param)


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """The path of each file that this process opens by ``os.open``, as all of a run's files are opened, in order."""
    paths = []
    really = os.open

    def noted(path, *arguments, **options):
        paths.append(os.fspath(path))
        return really(path, *arguments, **options)

    monkeypatch.setattr(os, "open", noted)
    return paths


@pytest.fixture(scope="session")
def testing_library() -> str:
    """Path of the engine whose system calls can be made to fail, delay or kill."""
    return str(native.testing_library())


@pytest.fixture
def library(testing_library, monkeypatch):
    """This process, and those it starts, use that engine."""
    monkeypatch.setenv("DEEPFREEZE_LIBRARY", testing_library)
    monkeypatch.setattr("veloc_bindings._library._loaded", None)
    return testing_library


@pytest.fixture(scope="session")
def two(testing_library) -> Iterator[Horovod]:
    """Two Horovod ranks that take cases; their engines' system calls can be made to fail."""
    with horovod(2, DEEPFREEZE_LIBRARY=testing_library) as job:
        yield job
