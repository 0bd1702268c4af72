"""Which tests a run takes, and which points of a sweep. CONTRIBUTING.md has the tiers and the markers."""

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
LONGEST_NAME = 70  # characters of a test's name; the docstring has the sentence
LONGEST_ID = 32  # characters of a parameter's id that is made from a text
WITHOUT_TENSORFLOW = str(Path(__file__).with_name("without_tensorflow"))


class Points:
    """Takes the points of a sweep that are due in this run: every ``every``-th, from ``first`` on."""

    def __init__(self, every: int, first: int) -> None:
        self.every, self.first = every, first

    def __call__(self, sweep: Iterable) -> list:
        """Those of the sweep's points that are due, in order; of a sweep too short to have one due, the first."""
        there = list(sweep)
        return there[self.first :: self.every] or there[:1]

    def __str__(self) -> str:
        return "every point" if self.every == 1 else f"one point of {self.every}, from point {self.first} on"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options ``--tier`` and ``--part``."""
    group = parser.getgroup("tiers")
    group.addoption("--tier", choices=["check", "test", "full"], help="full: what `make test` leaves out")
    group.addoption("--part", metavar="K/N", type=_part, help="with --tier full: the K-th of N parts of it, from 1 on")


def _part(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"expected K/N with K from 1 to N; found {text!r}")
    return int(number) - 1, int(of)


def pytest_configure(config: pytest.Config) -> None:
    """In `make check` no process can import TensorFlow: a test that tries lacks a marker."""
    if config.getoption("--tier") == "check":
        sys.path.insert(0, WITHOUT_TENSORFLOW)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [WITHOUT_TENSORFLOW, os.environ.get("PYTHONPATH", "")]))


def pytest_report_header() -> str:
    """The seed, to repeat the run with."""
    return f"seed: {SEED} (DEEPFREEZE_TEST_SEED)"


def module_markers(path: Path) -> set[str]:
    """The names of the markers that a test file gives to all its tests, read without importing it."""
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
    """A file of which nothing would be run is not imported, nor the ``conftest.py`` of a folder of such files: to import
    TensorFlow takes longer than `make check` may."""
    too_much = TOO_MUCH.get(config.getoption("--tier") or "")
    if not too_much:
        return None
    files = [collection_path] if collection_path.match("test_*.py") else list(collection_path.rglob("test_*.py"))
    return True if files and all(too_much & module_markers(file) for file in files) else None


def tier(item: pytest.Item) -> str:
    """The first tier that runs this test."""
    own = {marker.name for marker in item.iter_markers()}
    return next((name for name, too_much in TOO_MUCH.items() if not own & too_much), "full")


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Leaves out what is not of the tier, or not of the part. Names are held to what can be read and typed."""
    if wrong := [
        item.nodeid for item in items if " " in item.nodeid or len(getattr(item, "originalname", "")) > LONGEST_NAME
    ]:
        listed = "\n".join(wrong)
        raise pytest.UsageError(
            f"names of {LONGEST_NAME} characters at most, and ids without spaces, are wanted:\n{listed}"
        )
    wanted, part = config.getoption("--tier"), config.getoption("--part")
    kept, left = [], []
    for item in items:
        (kept if wanted is None or _is_due(item, wanted, part) else left).append(item)
    if left:
        items[:] = kept
        config.hook.pytest_deselected(items=left)


def pytest_make_parametrize_id(val: object) -> str | None:
    """A short word without spaces for any text: the id is typed in command lines and read in lists."""
    text = val.decode("latin-1") if isinstance(val, bytes) else val
    if not isinstance(text, str):
        return None
    return re.sub(r"[^\w.]+", "-", text, flags=re.ASCII).strip("-")[:LONGEST_ID].rstrip("-") or "empty"


def _is_due(item: pytest.Item, wanted: str, part: tuple[int, int] | None) -> bool:
    if wanted != "full":
        return tier(item) in ("check", wanted)
    if "points" in getattr(item, "fixturenames", ()):
        return True  # and of its points those that are of the part
    of_part = part is None or zlib.crc32(item.nodeid.encode()) % part[1] == part[0]
    return of_part and (tier(item) == "full" or hasattr(getattr(item, "function", None), "hypothesis"))


@pytest.fixture(scope="session")
def points(request: pytest.FixtureRequest) -> Points:
    """``for point in points(all_of_them)``: every 5th, where the seed says, and in `make test-all` each."""
    config: Any = request.config
    if config.getoption("--tier") == "full":
        first, every = config.getoption("--part") or (0, 1)
        return Points(every, first)
    return Points(EVERY, SEED % EVERY)
