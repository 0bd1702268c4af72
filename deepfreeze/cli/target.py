"""The argument that names a run or a checkpoint: RUN, or RUN@STEP."""

from __future__ import annotations

import argparse
import os

from deepfreeze.format.names import MAX_STEP

Target = tuple[str, int | None]  # (run, step)


def target(text: str) -> Target:
    """Takes RUN@STEP apart into (run, step); step is None for RUN alone. A text that is the path of a directory is a RUN, also if its name
    ends like "@40"."""
    run, at, digits = text.rpartition("@")
    if not at or os.path.isdir(text):
        return text, None
    if not run or not digits.isascii() or not digits.isdigit() or int(digits) > MAX_STEP:
        raise argparse.ArgumentTypeError(f"{text!r} is neither RUN nor RUN@STEP, with STEP a number like 40")
    return run, int(digits)
