"""The argument that names a run or a checkpoint: RUN, RUN@STEP, or RUN@TAG."""

from __future__ import annotations

import argparse
import os

from deepfreeze.format.names import MAX_STEP, is_tag
from deepfreeze.store.catalog import numbered
from deepfreeze.store.run import Run

Target = tuple[str, int | str | None]  # (run, step or tag)


def target(text: str) -> Target:
    """Takes RUN@STEP apart into (run, step), and RUN@TAG into (run, tag); the second is None for RUN alone. A text that is the path of a
    directory is a RUN, also if its name ends like "@40"."""
    run, at, name = text.rpartition("@")
    if not at or os.path.isdir(text):
        return text, None
    if run and name.isascii() and name.isdigit() and int(name) <= MAX_STEP:
        return run, int(name)
    if not run or not is_tag(name):
        message = f"{text!r} is neither RUN nor RUN@STEP nor RUN@TAG, with STEP a number like 40, TAG a name like best"
        raise argparse.ArgumentTypeError(message)
    return run, name


def step_of(given: Target) -> int | None:
    """The step of a target, also where it was given by a tag; None for RUN alone. NotFoundError if there is no such tag."""
    run, step = given
    return numbered(Run.open(run), step) if isinstance(step, str) else step
