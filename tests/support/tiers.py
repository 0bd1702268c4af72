"""Chooses the tests of a run by its tier, and the points of a sweep. CONTRIBUTING.md explains tiers, markers and sweeps."""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.seed import SEED

# tier: the markers of tests that are too much for it
TOO_MUCH = {"check": {"tensorflow", "ranks", "slow", "full"}, "test": {"full"}}
EVERY = 5  # that many points of a sweep make one in `make test`
LONGEST_NAME = 73  # characters of a test's name; the docstring has the sentence
LONGEST_ID = 32  # characters of a parameter's id that is made from a text
WITHOUT_TENSORFLOW = str(Path(__file__).with_name("without_tensorflow"))


class Points:
    """Chooses the points of a sweep that this run tries: every ``every``-th, beginning with number ``first`` (from 0)."""

    def __init__(self, every: int, first: int) -> None:
        self.every, self.first = every, first

    def __call__(self, sweep: Iterable) -> list:
        """The chosen points, in order; of a sweep with ``first`` points or fewer, its first point."""
        there = list(sweep)
        return there[self.first :: self.every] or there[:1]

    def __str__(self) -> str:
        return "every point" if self.every == 1 else f"one point of {self.every}, from point {self.first} on"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options ``--tier``, ``--part`` and ``--jitter``."""
    group = parser.getgroup("tiers")
    group.addoption("--tier", choices=["check", "test", "full"], help="full: what `make test` leaves out")
    group.addoption("--part", metavar="K/N", type=_part, help="the K-th of N parts of the tests, from 1 on")
    group.addoption(
        "--jitter",
        metavar="MS",
        type=int,
        help="runs the tests with the tests' engine; its system calls come up to MS late",
    )


def _part(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"expected K/N with K from 1 to N; found {text!r}")
    return int(number) - 1, int(of)


def pytest_configure(config: pytest.Config) -> None:
    """In `make check` makes TensorFlow and Keras impossible to import, also in child processes: a test that needs them lacks a marker.
    ``--jitter`` makes one of eight system calls of the tests' engine come late, in child processes too: a test that relies on an order
    which the engine does not promise fails then."""
    if config.getoption("--jitter"):
        os.environ["DEEPFREEZE_JITTER"] = str(config.getoption("--jitter"))
    if config.getoption("--tier") == "check":
        sys.path.insert(0, WITHOUT_TENSORFLOW)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [WITHOUT_TENSORFLOW, os.environ.get("PYTHONPATH", "")]))


def pytest_report_header() -> str:
    """Shows the seed, with which the run can be repeated."""
    return f"seed: {SEED} (DEEPFREEZE_TEST_SEED)"


def module_markers(path: Path) -> set[str]:
    """The names of the markers in a test file's ``pytestmark``, read without importing the file."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets):
            found |= {
                inner.attr
                for inner in ast.walk(node.value)
                if isinstance(inner, ast.Attribute)
                and isinstance(inner.value, ast.Attribute)
                and inner.value.attr == "mark"
            }
    return found


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out files of which this tier runs nothing before they are imported, and folders of such files with their ``conftest.py``:
    importing TensorFlow would take longer than `make check` may."""
    too_much = TOO_MUCH.get(config.getoption("--tier") or "")
    if not too_much:
        return None
    files = [collection_path] if collection_path.match("test_*.py") else list(collection_path.rglob("test_*.py"))
    return True if files and all(too_much & module_markers(file) for file in files) else None


def tier(item: pytest.Item) -> str:
    """The tier of a test: "check", "test" or "full", the first one that runs it."""
    own = {marker.name for marker in item.iter_markers()}
    return next((name for name, too_much in TOO_MUCH.items() if not own & too_much), "full")


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Leaves out the tests that are not of this run's tier or part. Refuses names that are too long, and ids with spaces."""
    if wrong := [
        item.nodeid for item in items if " " in item.nodeid or len(getattr(item, "originalname", "")) > LONGEST_NAME
    ]:
        listed = "\n".join(wrong)
        raise pytest.UsageError(
            f"names of {LONGEST_NAME} characters at most, and ids without spaces, are wanted:\n{listed}"
        )
    kept, left = [], []
    for item in items:
        (kept if _is_due(item, config) else left).append(item)
    if left:
        items[:] = kept
        config.hook.pytest_deselected(items=left)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Makes a short word without spaces of a parameter that is a text: ids are typed in command lines and read in lists."""
    text = val.decode("latin-1") if isinstance(val, bytes) else val
    if not isinstance(text, str):
        return None
    return re.sub(r"[^\w.]+", "-", text, flags=re.ASCII).strip("-")[:LONGEST_ID].rstrip("-") or "empty"


def _is_due(item: pytest.Item, config: pytest.Config) -> bool:
    wanted, part = config.getoption("--tier"), config.getoption("--part")
    fixtures = getattr(item, "fixturenames", ())
    if config.getoption("--jitter") and "testing_library" not in fixtures:
        return False
    of_part = part is None or zlib.crc32(item.nodeid.encode()) % part[1] == part[0]
    if wanted != "full":
        return of_part and (wanted is None or tier(item) in ("check", wanted))
    if "points" in fixtures:
        return True  # and of its points those that are of the part
    return of_part and (tier(item) == "full" or hasattr(getattr(item, "function", None), "hypothesis"))


@pytest.fixture(scope="session")
def points(request: pytest.FixtureRequest) -> Points:
    """``for point in points(all_of_them)`` gives every fifth point, beginning where the seed says, and in `make test-all` all points."""
    config: Any = request.config
    if config.getoption("--tier") == "full":
        first, every = config.getoption("--part") or (0, 1)
        return Points(every, first)
    return Points(EVERY, SEED % EVERY)
