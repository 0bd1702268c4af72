"""The texts that messages can be made of: the strings of each function in the sources, with those of the constants and functions that it
uses. tests/docs holds the messages that pages quote against them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CONSTANT = re.compile(r"_?[A-Z][A-Z_]+")


class Place(NamedTuple):
    """A function or a constant."""

    name: str
    text: str  # its strings, in their order; a value put into one is a gap
    used: set[str]  # the names that it uses


def _strings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _strings(part.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _strings(child)


def _python(path: Path) -> Iterator[Place]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            name = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        else:
            continue
        if isinstance(node, ast.FunctionDef) or CONSTANT.fullmatch(name):
            used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            used |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
            yield Place(name, "\n".join(_strings(node)), used)


def _native(path: Path) -> Iterator[Place]:
    """The constants of a C++ file, and the functions: those end with a brace at the beginning of a line."""
    text = re.sub(r"//.*|^#include.*", "", path.read_text(), flags=re.M)
    for body in re.split(r"^\}|^((?:constexpr|const|static) [^{]*?;$)", text, flags=re.M):
        named = re.search(r"(\w+)(?:\(|\[\] =| =)", body or "")
        if named:
            said = re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r'"\s*\n\s*"', "", body))
            yield Place(named[1], "\n".join(said), set(re.findall(r"\w+", body)))


@cache
def places() -> list[str]:
    """One text for each function: its strings, in lower case, with those of the constants and functions that it uses. From other files
    these are constants, and in C++ functions whose name is defined once."""
    python = [p for package in ("deepfreeze", "veloc_bindings") for p in sorted((ROOT / package).rglob("*.py"))]
    native = [p for p in sorted((ROOT / "native").rglob("*.cc")) if p.parent.name not in ("testing", "fuzz")]
    files = [*(list(_python(path)) for path in python), *(list(_native(path)) for path in native)]
    every = [place for file in files for place in file]
    shared = {place.name: place.text for place in every if CONSTANT.fullmatch(place.name)}
    in_native = [place for file in files[len(python) :] for place in file]
    times = Counter(place.name for place in in_native)
    shared |= {place.name: place.text for place in in_native if times[place.name] == 1}
    found = []
    for number, file in enumerate(files):
        known = {name: text for name, text in shared.items() if number >= len(python) or CONSTANT.fullmatch(name)}
        known |= {place.name: place.text for place in file}
        for place in file:
            taken = [known[name] for name in sorted(place.used - {place.name}) if name in known]
            found.append("\n".join([*taken, place.text, *taken]).lower())
    return found
