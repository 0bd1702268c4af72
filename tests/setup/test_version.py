"""The version has one place, deepfreeze/__init__.py: the package, the engine and the changelog agree with it."""

import re
from importlib.metadata import metadata
from pathlib import Path

import deepfreeze
import veloc_bindings
from tests.support.pyproject import project

ROOT = Path(__file__).resolve().parents[2]


def test_the_package_and_the_engine_have_the_version_of_the_module():
    assert "version" not in project() and project()["dynamic"] == ["version"]
    assert metadata("deepfreeze")["Version"] == deepfreeze.__version__ == veloc_bindings.version()


def test_the_changelog_begins_with_this_version():
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == deepfreeze.__version__


def test_the_license_comes_with_the_package():
    license = (ROOT / "LICENSE").read_text()
    assert "Apache License" in license and "Version 2.0" in license
    assert metadata("deepfreeze")["License-Expression"] == "Apache-2.0"
