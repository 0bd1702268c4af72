"""What a command is about: RUN, or RUN@STEP."""

from __future__ import annotations

import argparse
import os

from deepfreeze.format.names import MAX_STEP

Target = tuple[str, int | None]


def target(text: str) -> Target:
    """Takes RUN@STEP apart: (run, step), step None if there is none. A directory whose own name ends so is a run."""
    run, at, digits = text.rpartition("@")
    if not at or os.path.isdir(text):
        return text, None
    if not run or not digits.isascii() or not digits.isdigit() or int(digits) > MAX_STEP:
        raise argparse.ArgumentTypeError(f"{text!r} is neither RUN nor RUN@STEP, with STEP a number like 40")
    return run, int(digits)
