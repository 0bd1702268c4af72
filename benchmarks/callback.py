"""How long does the callback take after an execution of the train function? python -m benchmarks.callback --help

One rank, and two models: of 60 kB, where the callback's own work is all there is, and of 41 MB, both with Adam. A checkpoint in every tenth
step. ``--tree`` measures another version of the project, in a clone of its own, by this version's program.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from benchmarks import report
from benchmarks.report import ROOT, Report, say, span, table

# By model: units of its hidden layers, and steps of a training.
MODELS = {"60 kB": (64, 2000), "41 MB": (1840, 300)}
_QUICK_STEPS = 60
WHEN = {"at": "at a checkpoint", "between": "between checkpoints"}


def measure(args: argparse.Namespace) -> Report:
    """A training for each model and sample; the samples of a row are the medians of its trainings."""
    found = Report("callback", "How long does the callback take after an execution?", {"every": 10})
    program = [args.tree / ".venv" / "bin" / "python", Path(__file__).with_name("callback_rank.py")]
    taken: dict[str, list[dict[str, list[float]]]] = {model: [] for model in MODELS}
    for number in range(args.samples):
        for model, (units, steps) in MODELS.items():
            say(f"training {number + 1} of {args.samples}, {model}")
            options = ["--units", units, "--steps", _QUICK_STEPS if args.quick else steps]
            if args.folder:
                options += ["--folder", args.folder.resolve()]
            command = list(map(str, [*program, *options]))
            done = subprocess.run(command, cwd=args.tree, stdout=subprocess.PIPE, check=True)
            taken[model].append(json.loads(done.stdout))
    for model, trainings in taken.items():
        row = found.row(model=model)
        for when in WHEN:
            row.add(when, "s", [_median(one[when]) for one in trainings])
    return found


def _median(samples: list[float]) -> float:
    return sorted(samples)[len(samples) // 2]


def tables(found: Report) -> str:
    """A line for each model."""
    lines = [
        [row.labels["model"], *(span(row, when, 1e6, 0) for when in WHEN)]
        for row in (found.find(model=model) for model in MODELS)
    ]
    return table(["model", *(f"{text}, us" for text in WHEN.values())], lines)


def draw(found: Report, path: Path) -> None:
    """The medians of the trainings, one curve for each model and moment."""
    curves = {
        f"{row.labels['model']}, {text}": [one * 1e6 for one in row.samples(when)]
        for row in found.rows
        for when, text in WHEN.items()
    }
    report.distributions(path, "The callback after an execution", ("us", "part of the trainings"), curves)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="a clone in which `make setup` was run (default: this version)"
    )


if __name__ == "__main__":
    report.run("callback", __doc__ or "", measure, tables, draw, _options)
