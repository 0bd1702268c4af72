"""Every row of docs/guarantees.md names tests that exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "docs" / "guarantees.md").read_text()
IDS = sorted(set(re.findall(r"`(tests/[^`]+)`", TEXT)))
ROWS = [
    line
    for line in TEXT.splitlines()
    if line.startswith("|") and not re.match(r"\|[-|]+$|\| (failure|promise) \|", line)
]


@functools.cache
def functions_of(file: str) -> set[str]:
    path = ROOT / file
    tree = ast.parse(path.read_text() if path.is_file() else "")
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_named_test_exists():
    named = [test.partition("::") for test in IDS]
    assert len(named) > 100
    assert [f"{file}::{function}" for file, _, function in named if function not in functions_of(file)] == []


def test_every_row_has_a_footnote_that_names_its_tests():
    notes = dict(re.findall(r"^\[\^(\d+)\]: (.+)$", TEXT, re.MULTILINE))
    named = [re.search(r"\| \[\^(\d+)\] \|$", row) for row in ROWS]
    assert len(ROWS) > 20 and all(named), [row for row, number in zip(ROWS, named, strict=True) if not number]
    assert [number[1] for number in named if number] == list(notes), "each footnote once, in order"
    assert all("`tests/" in text for text in notes.values())
