"""Every row of docs/guarantees.md names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "docs" / "guarantees.md").read_text()
IDS = sorted(set(re.findall(r"`(tests/[^`]+)`", TEXT)))
ROWS = [
    line
    for line in TEXT.splitlines()
    if line.startswith("|") and not re.match(r"\|[-|]+$|\| (failure|promise) \|", line)
]


@pytest.mark.parametrize("test", IDS)
def test_a_named_test_exists(test):
    file, _, function = test.partition("::")
    assert (ROOT / file).is_file(), file
    tree = ast.parse((ROOT / file).read_text())
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test


def test_every_row_has_a_test():
    assert len(ROWS) > 20
    for row in ROWS:
        assert "tests/" in row.rstrip("|").rpartition("|")[2], row
