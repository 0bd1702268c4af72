"""Pictures that a command draws into a PNG file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deepfreeze.errors import InstallError
from deepfreeze.exports.draft import Draft


def new_figure(width: float, height: float) -> Any:
    """An empty figure of matplotlib, of so many inches. InstallError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        todo = "install it (pip install matplotlib), or take --json and draw the picture yourself"
        raise InstallError(where="--plot", expected="the Python package matplotlib", found="none", todo=todo) from None
    return Figure(figsize=(width, height), layout="constrained")


def set_title(panel: Any, title: str, **options: Any) -> None:
    """Puts a run's path above a panel. A path may have bytes that are not UTF-8, and "$", which matplotlib takes for a formula's.
    ``options``: of matplotlib's ``set_title``."""
    panel.set_title(title.encode("utf-8", "backslashreplace").decode(), fontsize=9, parse_math=False, **options)


def publish(figure: Any, path: Path) -> None:
    """Writes the figure into a PNG file, which is replaced if it exists. RunError if the file can't be written, OptionError if ``path`` is
    a directory."""
    with Draft(path, overwrite=True) as draft:
        figure.savefig(draft.file, format="png", dpi=150)
        draft.publish()
