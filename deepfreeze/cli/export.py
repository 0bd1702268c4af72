"""``deepfreeze export``: writes a checkpoint as a file for other programs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from deepfreeze import wording
from deepfreeze.cli import command
from deepfreeze.cli.ls import as_json
from deepfreeze.cli.output import bar, line
from deepfreeze.cli.target import target
from deepfreeze.exports.export import export

_MORE = """
formats, by the suffix of PATH:
  .weights.h5    the checkpoint's model file, for Keras's load_weights
  .safetensors   the weights by name; with --optimizer also the optimizer's variables, the metrics' states and rank 0's random seeds
  .keras         a whole model for keras.saving.load_model, unless the job ran with save_config=False

Keras can't load a checkpoint of layout plain-h5 (`deepfreeze show` prints the layout): it can only
be written as .safetensors.

Every byte is compared with its checksum while it is copied. PATH gets its name only when the file
is whole and durable: an export that is interrupted or finds damage leaves PATH as it was before.

exit codes:
  0  PATH is written
  1  there is no such checkpoint, it is damaged, or the format can't hold it; or PATH can't be written, or exists
  2  the command line is wrong

examples:
  deepfreeze export runs/nt3 nt3.weights.h5              the newest checkpoint
  deepfreeze export runs/nt3@40 nt3.safetensors          the one of step 40
  deepfreeze export runs/nt3@40 nt3.keras --overwrite    replace nt3.keras
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = "Writes one checkpoint, the newest if no STEP is given, into one file that other programs open."
    short = "write a checkpoint as .weights.h5, .safetensors or .keras"
    parser = command.add(commands, "export", run, short=short, text=text, more=_MORE)
    parser.add_argument("target", metavar="RUN[@STEP]", type=target, help="a run, or one of its checkpoints")
    parser.add_argument("path", metavar="PATH", type=Path, help="the file to write; its suffix chooses the format")
    parser.add_argument("--overwrite", action="store_true", help="replace PATH if it exists")
    parser.add_argument(
        "--optimizer", action="store_true", help="with .safetensors: all tensors, not the weights alone"
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes the file and prints its size. Returns the exit code."""
    path, step = arguments.target
    options = {"overwrite": arguments.overwrite, "optimizer": arguments.optimizer}
    with bar(arguments.path.name, shown=not arguments.json) as progress:
        info = export(path, arguments.path, step, progress=progress, **options)
    nbytes = arguments.path.stat().st_size
    if arguments.json:
        written = {"path": str(arguments.path), "nbytes": nbytes, "checkpoint": as_json(info)}
        print(json.dumps(written, indent=2))
    else:
        line(f"{arguments.path}: step {info.step} of {info.run}, {wording.size(nbytes)}")
    return 0
