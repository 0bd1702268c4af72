"""``deepfreeze ls``: lists the checkpoints of a run, or the runs in a directory."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from typing import Any

from deepfreeze import wording
from deepfreeze.cli import command, under_way
from deepfreeze.cli.output import complain, line, table
from deepfreeze.cli.target import step_of, target
from deepfreeze.errors import Error, NotFoundError
from deepfreeze.format import names
from deepfreeze.format.manifest_values import facts_of, text_of_logs
from deepfreeze.format.marks import Mark
from deepfreeze.store.catalog import CheckpointInfo, choose, describe, listed
from deepfreeze.store.run import Run
from deepfreeze.store.runs import RunInfo, runs
from deepfreeze.store.tags import by_checkpoint, read_marks, tags

_MOVED = f"damaged, moved to {names.DAMAGED_DIR}/"
_MORE = f"""
Of a run, "stays because" is what the rules of the last job (keep=) have said of a checkpoint after the last commit. "metrics" has what
the rules go by: the last epoch's or those that were logged, and how many steps later than the checkpoint they were taken. Without such
rules it has the logs of the last epoch that had ended when the checkpoint was taken. "metadata" has your own facts (metadata=). Below
the table stand the steps that can't be restored: those without a valid manifest, those that were moved to {names.DAMAGED_DIR}/, and
unfinished ones. Of a running job ls says how far each checkpoint is that has been on its way for a second or more: the bytes of rank 0 on
the local tier and in the store, the ranks whose parts are complete, and what it waits for.

Of a directory of runs, each run has a line: its newest step and how old that is, how many checkpoints it keeps, their size in all, what
the newest one holds, and what is not as it should be.

Where a terminal is too narrow, columns that matter less are left out: "metadata", "metrics", "written by" and
"ranks", of runs "kept".

ls reads no tensors; `deepfreeze verify` checks them.

exit codes:
  0  there is a checkpoint
  1  there is no checkpoint, or no such run
  2  the command line is wrong

examples:
  deepfreeze ls runs               all runs in this directory
  deepfreeze ls runs/nt3           all checkpoints of the run
  deepfreeze ls runs/nt3@40        is there a checkpoint of step 40?
  deepfreeze ls runs/nt3 --json    all that is known of each, for a program
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = """Lists a run's checkpoints, oldest first: those that can be restored, with their sizes, how many ranks wrote them, and
    when. Or lists the runs in a directory."""
    parser = command.add(commands, "ls", run, short="list the checkpoints of a run, or runs", text=text, more=_MORE)
    told = "a run, one of its checkpoints, or a directory of runs"
    parser.add_argument("target", metavar="RUN[@STEP]", type=target, help=told)


def run(arguments: argparse.Namespace) -> int:
    """Prints the list. Returns the exit code, 1 if there is no checkpoint."""
    path, step = arguments.target[0], step_of(arguments.target)
    try:
        opened_run = Run.open(path)
    except NotFoundError:
        found = runs(path) if step is None else []
        if not found:
            raise
        return _list(found, arguments.json)
    marks, tagged = _marks(opened_run), _tags(opened_run)
    infos = listed(opened_run, marks) if step is None else [_one(opened_run, step, marks)]
    notes = [_Notes.of(info, marks, tagged) for info in infos]
    if arguments.json:
        both = zip(infos, notes, strict=True)
        print(json.dumps([{**as_json(info), **asdict(own)} for info, own in both], indent=2))
        return 0 if infos else 1
    if infos:
        head = [">step", ">size", ">age", "committed (UTC)", "~state", "?>ranks", "?written by"]
        columns = {"~stays because": [own.because for own in notes], **_metrics(infos, notes)}
        columns["?~metadata"] = [", ".join(map(" ".join, facts_of(info.values))) for info in infos]
        shown = {name: cells for name, cells in columns.items() if any(cells)}
        now = time.time()
        rows = [(*_row(info, now), *(cells[n] for cells in shown.values())) for n, info in enumerate(infos)]
        table((*head, *shown), rows)
    else:
        line(f"{path}: no checkpoint yet")
    if opened_run.parent is not None:
        line(f"seeded from: {wording.near(str(opened_run.parent))}")
    invalid = [s for s in opened_run.step_dirs() if s not in {info.step for info in infos}] if step is None else []
    moved = [s for s, _ in opened_run.damaged()] if step is None else []
    unfinished = sorted({s for s, _ in opened_run.partials()}) if step is None else []
    for kind, steps in (("damaged, not counted", invalid), (_MOVED, moved), ("unfinished", unfinished)):
        if steps:
            line(f"{kind}: step {', '.join(map(str, steps))}")
    for text in under_way.lines(opened_run, time.time()) if step is None else []:
        line(text)
    return 0 if infos else 1


def _one(run: Run, step: int, marks: dict[int, Mark]) -> CheckpointInfo:
    return describe(run, choose(run, step), marks=marks)


@dataclass(frozen=True)
class _Notes:
    """What the run knows of a checkpoint beside its manifest; the fields are those of ``--json``."""

    tags: tuple[str, ...] = ()
    reason: str = ""
    steps_between: int | None = None  # from the checkpoint to its metrics

    @classmethod
    def of(cls, info: CheckpointInfo, marks: dict[int, Mark], tagged: dict[tuple[int, str], tuple[str, ...]]) -> _Notes:
        own, mark = tagged.get((info.step, info.attempt), ()), marks.get(info.step)
        reason = "" if mark is None or mark.attempt != info.attempt else mark.reason
        return cls(own, reason, None if info.measured is None else info.measured - info.step)

    @property
    def because(self) -> str:
        said = self.reason.split("; ") if self.reason else []
        return "; ".join([*said, *(f"tag {name}" for name in self.tags if f"tag {name}" not in self.reason)])


def _metrics(infos: list[CheckpointInfo], notes: list[_Notes]) -> dict[str, list[str]]:
    """The column of metrics: those that retention was told; without any, those of the last epoch. It is left out where there is no room,
    unless a checkpoint stays for a metric."""
    judged = [text_of_metrics(info) for info in infos]
    if any(name in own.reason for info, own in zip(infos, notes, strict=True) for name in info.metrics):
        return {"~metrics": judged}
    return {"?~metrics": judged if any(judged) else [text_of_logs(info.values) for info in infos]}


def _marks(run: Run) -> dict[int, Mark]:
    try:
        found = read_marks(run)
    except Error as error:
        complain(error)
        return {}
    return {} if found is None else {mark.step: mark for mark in found.marks}


def _tags(run: Run) -> dict[tuple[int, str], tuple[str, ...]]:
    try:
        return by_checkpoint(tags(run))
    except Error as error:
        complain(error)
        return {}


def text_of_metrics(info: CheckpointInfo) -> str:
    """A checkpoint's own metrics, such as "epoch 3, 5 steps later: loss 0.5, mae 0.25"; "" if there are none."""
    between = 0 if info.measured is None else info.measured - info.step
    parts = [f"epoch {info.epoch}"] if info.epoch is not None else []
    parts += [f"{wording.count(between, 'step')} later"] if between else []
    values = ", ".join(f"{name} {value:.4g}" for name, value in info.metrics.items())
    return ": ".join(filter(None, [", ".join(parts), values]))


def as_json(info: CheckpointInfo) -> dict[str, Any]:
    """A checkpoint's description as plain JSON values."""
    return {**asdict(info), "run": str(info.run), "path": str(info.path)}


def _state(info: CheckpointInfo) -> str:
    return f"{info.state}, ranks differed" if info.diverged else info.state


def _row(info: CheckpointInfo, now: float) -> tuple[str, ...]:
    when = info.created.replace("T", " ").rstrip("Z")
    size, age = wording.size(info.nbytes), wording.age(info.created, now)
    return (str(info.step), size, age, when, _state(info), str(info.world_size), _writer(info) or "?")


def _writer(info: CheckpointInfo) -> str:
    """Keras and its version; "" if the run's structure file could not be read."""
    return f"{info.framework['api']} {info.framework['keras']}" if info.framework else ""


def _list(found: list[RunInfo], json_wanted: bool) -> int:
    """Prints the runs of a directory. Returns the exit code, 1 if none has a checkpoint."""
    if json_wanted:
        print(json.dumps([_run_as_json(info) for info in found], indent=2))
    else:
        now = time.time()
        heads = ["~run", ">newest", ">age", "?>kept", ">size", "~holds", "~state"]
        rows = [_run_row(info, now) for info in found]
        table(heads if any(row[-1] for row in rows) else heads[:-1], rows)
    return 0 if any(info.newest for info in found) else 1


def _run_as_json(info: RunInfo) -> dict[str, Any]:
    return {**asdict(info), "run": str(info.run), "newest": None if info.newest is None else as_json(info.newest)}


def _run_row(info: RunInfo, now: float) -> tuple[str, ...]:
    counts = (("damaged", info.damaged), ("unfinished", info.unfinished))
    state = ["ranks differed"] if info.diverged else []
    state += [f"{number} {what}" for what, number in counts if number]
    if info.newest is None:
        state = [info.problem or "no checkpoint yet", *state]
        return (str(info.run), "", "", "", "", "", ", ".join(state))
    holds = ", ".join(filter(None, [info.newest.state, _writer(info.newest)]))
    newest, age = str(info.newest.step), wording.age(info.newest.created, now)
    return (str(info.run), newest, age, str(info.checkpoints), wording.size(info.nbytes), holds, ", ".join(state))
