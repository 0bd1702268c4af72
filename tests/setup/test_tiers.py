"""Which tests a tier takes, that a hang is named, and that the table of costs keeps `make test` to its ten minutes."""

import itertools
import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.tiers import EVERY, Points

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
import costs  # noqa: E402  the tools are scripts beside each other, no package
from project import Failure  # noqa: E402

KINDS = """
import pytest

def test_quick():
    pass

@pytest.mark.slow
def test_slow():
    pass

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.full)])
def test_some(n):
    pass

def test_sweep(points):
    print("POINTS", points(range(10)))
"""
ENGINES = """
import os

def test_of_no_engine():
    pass

def test_of_the_tests_engine(testing_library):
    assert os.environ["DEEPFREEZE_JITTER"] == "20"
"""
FIXTURE = "import pytest\n\n@pytest.fixture\ndef testing_library():\n    pass\n"
HEAVY = """
import pytest

pytestmark = [pytest.mark.tensorflow]
raise AssertionError("imported")
"""
IMPORTS = "def test_that_imports_it():\n    import tensorflow\n"


def run(folder, *options, **env):
    """The output and the exit code of pytest on the tests of a folder, with the tiers and nothing else of this project."""
    plugins = ["-p", "tests.support.tiers", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    command = [sys.executable, "-m", "pytest", "-s", "-v", "-c", os.devnull, "--rootdir", folder, *plugins, *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    done = processes.run([*command, folder], env=env, cwd=folder, capture_output=True, text=True)
    return done.stdout + done.stderr, done.returncode


def ran(output):
    return [line.split("::")[1].split()[0] for line in output.splitlines() if re.match(r"test_\w+\.py::", line)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        pytest.param(["--tier", "check"], ["test_quick", "test_some[1]", "test_sweep"], marks=pytest.mark.full),
        (["--tier", "test"], ["test_quick", "test_slow", "test_some[1]", "test_sweep"]),
        pytest.param(["--tier", "full"], ["test_some[2]", "test_sweep"], marks=pytest.mark.full),
        pytest.param(
            [], ["test_quick", "test_slow", "test_some[1]", "test_some[2]", "test_sweep"], marks=pytest.mark.full
        ),
    ],
    ids=["check", "test", "full", "none"],
)
def test_a_tier_takes_the_tests_that_their_markers_say(tmp_path, options, wanted):
    (tmp_path / "test_kinds.py").write_text(KINDS)
    output, code = run(tmp_path, *options)
    assert code == 0 and ran(output) == wanted, output


@pytest.mark.slow
@pytest.mark.full
def test_jitter_reaches_the_tests_with_the_tests_engine_and_leaves_out_others(tmp_path):
    (tmp_path / "conftest.py").write_text(FIXTURE)
    (tmp_path / "test_engines.py").write_text(ENGINES)
    output, code = run(tmp_path, "--tier", "test", "--jitter", "20")
    assert code == 0 and ran(output) == ["test_of_the_tests_engine"], output


@pytest.mark.slow
def test_check_neither_imports_nor_lets_import_tensorflow(tmp_path):
    (tmp_path / "test_heavy.py").write_text(HEAVY)
    (tmp_path / "test_light.py").write_text(IMPORTS)
    output, code = run(tmp_path, "--tier", "check")
    assert code == 1 and ran(output) == ["test_that_imports_it"], output
    assert "needs the marker `tensorflow`" in output


@pytest.mark.slow
def test_the_parts_of_a_tier_are_all_of_it_and_the_seed_is_shown(tmp_path):
    cases = "import pytest\n\n@pytest.mark.full\n@pytest.mark.parametrize('n', range(20))\ndef test_it(n):\n    pass\n"
    (tmp_path / "test_cases.py").write_text(cases)
    found = [run(tmp_path, "--tier", "full", "--part", f"{k}/2", DEEPFREEZE_TEST_SEED="77")[0] for k in (1, 2)]
    assert sorted(name for output in found for name in ran(output)) == sorted(f"test_it[{n}]" for n in range(20))
    assert all("seed: 77 (DEEPFREEZE_TEST_SEED)" in output for output in found)
    wrong, code = run(tmp_path, "--tier", "full", "--part", "4/3")
    assert code == 4 and "expected K/N with K from 1 to N; found '4/3'" in wrong


def test_every_point_is_due_in_one_of_the_parts_and_none_is_twice():
    for size in (1, 7, 100):
        for every in (1, EVERY, 10):
            due = [Points(every, first)(range(size)) for first in range(every)]
            assert all(due) and set().union(*due) == set(range(size))
            assert size < every or sorted(itertools.chain(*due)) == list(range(size))


@pytest.mark.slow
@pytest.mark.timing
def test_a_hang_in_native_code_is_named_and_the_run_goes_on(tmp_path):
    hangs = "import ctypes\n\ndef test_hangs():\n    ctypes.PyDLL(None).pause()\n"  # with the interpreter's lock held
    (tmp_path / "test_hanging.py").write_text(hangs)
    (tmp_path / "test_other.py").write_text("def test_other():\n    pass\n")
    bounds = [f"faulthandler_timeout={2}", "faulthandler_exit_on_timeout=true"]
    output, code = run(tmp_path, "-n", "1", *(word for bound in bounds for word in ("-o", bound)))
    assert code == 1 and "crashed while running 'test_hanging.py::test_hangs'" in output, output
    assert "in test_hangs" in output, "the stack is shown"
    assert "1 failed, 1 passed" in output


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A project of two tests, and its table of costs."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_one():\n    pass\n\ndef test_two():\n    pass\n")
    monkeypatch.setattr(costs, "ROOT", tmp_path)
    monkeypatch.setattr(costs, "TABLE", tmp_path / "tests" / "costs.tsv")
    monkeypatch.setattr(costs, "MEASURED", tmp_path / "measured")
    return {
        ("tests/test_a.py::test_one", "test"): (1, 500.0, "one"),
        ("tests/test_a.py::test_two", "test"): (1, 80.0, ""),
    }


def test_costs_within_the_bound_pass_and_survive_the_file(table):
    costs.check(table)
    costs.write(table)
    assert costs.read() == table


def test_make_test_may_not_exceed_its_ten_minutes(table):
    table["tests/test_a.py::test_two", "test"] = (1, 90.0, "")
    with pytest.raises(
        Failure, match=r"`make test` would take longer than 600 s.*\n +500.0 s +tests/test_a.py::test_one"
    ):
        costs.check(table)
    table["tests/test_a.py::test_two", "full"] = table.pop(("tests/test_a.py::test_two", "test"))
    costs.check(table)


def test_a_test_without_a_row_and_a_row_without_a_test_are_named(table):
    table["tests/test_a.py::test_old", "test"] = table.pop(("tests/test_a.py::test_two", "test"))
    with pytest.raises(Failure) as caught:
        costs.check(table)
    assert str(caught.value).splitlines() == [
        "tests/test_a.py::test_two has no row: run it, then make costs",
        "tests/test_a.py::test_old has a row and is no test: make costs",
    ]


def test_what_a_run_measured_is_taken_where_it_tells_something_new(table):
    costs.MEASURED.mkdir()
    row = {"cases": 1, "promise": "says so"}
    some = {
        "tests/test_a.py::test_one\ttest": {**row, "seconds": 510.0},  # noise
        "tests/test_a.py::test_two\tcheck": {**row, "seconds": 1.0},  # now in another tier
        "tests/test_a.py::test_gone\tcheck": {**row, "seconds": 1.0},
    }
    (costs.MEASURED / "some.json").write_text(json.dumps(some))
    taken = costs.take(table)
    assert taken == {
        ("tests/test_a.py::test_one", "test"): (1, 500.0, "says so"),
        ("tests/test_a.py::test_two", "check"): (1, 1.0, "says so"),
    }
