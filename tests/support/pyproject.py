"""pyproject.toml, read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # the package that became a module of Python


def project() -> dict[str, Any]:
    """The table ``project``."""
    return tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
