"""One word, one meaning: the glossary defines each word once, and no two classes have one name."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DESIGN = (ROOT / "docs" / "design.md").read_text()
GLOSSARY = DESIGN[DESIGN.index("## Words") : DESIGN.index("## The two paths")]
SOURCES = [path for package in ("deepfreeze", "veloc_bindings") for path in (ROOT / package).rglob("*.py")]


def test_every_word_of_the_glossary_is_defined_once():
    words = re.findall(r"\*\*([a-z -]+)\*\*", GLOSSARY)
    assert len(words) > 25 and sorted(set(words)) == sorted(words)
    assert {"plan", "slots", "transfer", "group", "place", "layout"} - set(words) == set(), "these had several meanings"


def test_no_two_classes_have_one_name():
    places = defaultdict(list)
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
    assert len(places) > 60
