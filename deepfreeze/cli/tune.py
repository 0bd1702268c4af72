"""``deepfreeze tune``: finds out how an engine works best on a store, by a user's program or without one."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deepfreeze import arguments as checks
from deepfreeze import wording
from deepfreeze.cli import command, output, tune_program, tuned
from deepfreeze.cli.output import facts, line
from deepfreeze.errors import OptionError
from deepfreeze.plan.pccheck import MOST_CHECKPOINTS, Search
from deepfreeze.tuning import scratch

_SECONDS = 3600
_EXAMPLE = "for example deepfreeze tune --bytes 620MB runs/nt3"
_MORE = """
With a program: the program stays as it is. It is started once, in a scratch run beside its own run, and so on the same store. It trains
until its engine is tuned: some steps without checkpoints, then up to 40 checkpoints, which are real ones, with 1, 2, 4 and 8 writers, with
1, 2, ... of them on their way at once, and several transfers at a time. Training then ends as after a signal. The scratch run is deleted,
and the result goes into plan.json of the program's run, which is otherwise left alone. A job with every=deepfreeze.plan.Budget(...) begins
with it. While a job has the run's lock, the result is printed alone. Of a program that trains in several runs the first
one counts. What the program writes behind its training it writes in a tuning too. (PCcheck, ASPLOS 2025, section 4; the letters in brackets
are that paper's.)

With --bytes: what would the store of RUN give for checkpoints of so many bytes? No program and no model are needed, nothing is stored, and
RUN need not exist. There are no steps that could be slowed down, so there is no interval; divide the time of a checkpoint by that of a
step. Up to 4 checkpoints at once are tried. All ranks are on this machine.

{tuned.LEGEND.strip()}

On a machine that others use too, the times differ from one tuning to the next, and so may the choice. A job goes on measuring its interval.
What a tuning that was killed has left beside RUN (RUN.tune-...) goes with the next one.

Where the ranks are on several nodes, give the whole command line (srun -n 8 python train.py) and a --keep FOLDER that all nodes share. The
launcher must pass these variables to all ranks, as srun and horovodrun do; Open MPI's mpirun needs -x for each:
  DEEPFREEZE_TUNE           the end of the scratch run's name: RUN.tune-...
  DEEPFREEZE_TUNE_FILE      a file by which rank 0 tells of the runs
  DEEPFREEZE_TUNE_OVERHEAD  --overhead

exit codes:
  0  a setting was found; with a program, an interval too
  1  the program failed, hung, saved no checkpoint or ended before its engine was tuned; or the store failed
  2  the command line is wrong

examples:
  deepfreeze tune -- python train.py
  deepfreeze tune --overhead 0.02 -np 2 -- python train.py
  deepfreeze tune --bytes 620MB --ranks 4 /scratch/runs/nt3
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = """Finds out how many checkpoints should be on their way at once, with how many writers and transfers, and how often they pay: by
    measurement, with a training program, or with the bytes of a checkpoint alone."""
    short = "how do checkpoints go fastest to this store?"
    parser = command.add(commands, "tune", run, short=short, text=text, more=_MORE)
    overhead = "the longest that checkpoints may make the training, a fraction (the program's own Budget, or 0.03)"
    parser.add_argument("--overhead", metavar="P", type=_of(checks.fraction, "--overhead", float), help=overhead)
    parser.add_argument("-np", metavar="R", dest="launched", type=command.count, help="start the program with R ranks")
    keep = "keep the program's output in FOLDER, which must be new or empty"
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help=keep)
    timeout = f"end a program that runs for more than S seconds ({_SECONDS})"
    parser.add_argument("--timeout", metavar="S", type=command.count, default=_SECONDS, help=timeout)
    size = _of(checks.size, "a size")
    parser.add_argument(
        "--bytes", metavar="SIZE", type=size, help='without a program: of a checkpoint, such as 620MB or "1.5 GiB"'
    )
    parser.add_argument(
        "--ranks", metavar="R", type=command.count, help="with --bytes: ranks that save it together (1)"
    )
    memory = "with --bytes: what the captures of each rank may hold (as much as 4 of them need)"
    parser.add_argument("--memory", metavar="SIZE", type=size, help=memory)
    storage = "with --bytes: what the run may take (what is free)"
    parser.add_argument("--storage", metavar="SIZE", type=size, help=storage)
    parser.add_argument(
        "rest", metavar="RUN | -- PROGRAM", nargs=argparse.REMAINDER, help="the run; or how the program is started"
    )


def _of(check: Any, name: str, first: Any = str) -> Any:
    """The type of an argument that a function of ``deepfreeze.arguments`` checks."""

    def checked(text: str) -> Any:
        try:
            return check(name, first(text))
        except (OptionError, ValueError):
            expected = "fraction above 0 and up to 1" if first is float else 'size, such as 620MB or "1.5 GB" in quotes'
            raise argparse.ArgumentTypeError(f"{text!r} is no {expected}") from None

    return checked


def run(arguments: argparse.Namespace) -> int:
    """Tunes and prints. Returns the exit code."""
    try:
        if arguments.bytes is None:
            return tune_program.tune(arguments, _program(arguments))
        return _alone(arguments, _run(arguments))
    except OptionError as error:
        output.complain(error)
        return 2


def _program(arguments: argparse.Namespace) -> list[str]:
    for name in ("ranks", "memory", "storage"):
        if getattr(arguments, name) is not None:
            todo = "leave it out: the program's own options count" if name != "ranks" else "use -np"
            raise OptionError(where=f"--{name}", expected="--bytes beside it", found="none", todo=todo)
    rest: list[str] = arguments.rest
    if rest[:1] != ["--"] or not rest[1:]:
        expected, todo = (
            "the command line that starts the program",
            "put it behind --: -- python train.py; or give --bytes and RUN",
        )
        raise OptionError(where="tune", expected=expected, found=" ".join(rest)[:100] or "none", todo=todo)
    return rest[1:]


def _run(arguments: argparse.Namespace) -> str:
    for name, option in (("launched", "-np"), ("keep", "--keep"), ("overhead", "--overhead")):
        if getattr(arguments, name) is not None:
            todo = "leave it out" if name != "launched" else "use --ranks"
            raise OptionError(where=option, expected="a program, and no --bytes beside it", found="--bytes", todo=todo)
    if len(arguments.rest) != 1 or arguments.rest[0].startswith("-"):
        found = " ".join(arguments.rest)[:100] or "none"
        raise OptionError(where="tune --bytes", expected="one run, behind all options", found=found, todo=_EXAMPLE)
    return str(arguments.rest[0])


# Without a program.


def _alone(arguments: argparse.Namespace, place: str) -> int:
    from deepfreeze.tuning.engine_alone import EngineAlone, Job  # the other commands need no engine

    job = Job(arguments.bytes, arguments.ranks or 1, memory=arguments.memory, storage=arguments.storage)
    with scratch.scratch(place) as path:
        most = job.most(_free(Path(path).parent))
        with (
            output.bar("tuning", shown=not arguments.json) as progress,
            EngineAlone(path, job, most, output.notify) as engine,
        ):
            found = engine.search(most, lambda taken: progress(taken * job.nbytes, (MOST_CHECKPOINTS + 1) * job.nbytes))
    best = found.best
    assert best is not None  # the first checkpoint that fails raises
    if arguments.json:
        print(json.dumps(_found_json(place, found, job.nbytes), indent=2))
        return 0
    facts([
        ("store", f"that of {place}"),
        ("checkpoints", f"{wording.size(job.nbytes)}, by {wording.count(job.ranks, 'rank')} of this machine"),
        ("chosen", tuned.setting(best.setting)),
        ("that is", f"{tuned.pace(best)}: {wording.size(job.nbytes / best.period)}/s"),
        ("the search", f"was over because {tuned.ENDS[found.ended or 'limit']}"),
    ])  # fmt: skip
    line("")
    tuned.trials(found.tried, best.setting, training=False)
    return 0


def _free(folder: Path) -> int:
    free = os.statvfs(folder)
    return free.f_bavail * free.f_frsize


def _found_json(place: str, found: Search, nbytes: int) -> dict[str, Any]:
    best = found.best
    return {
        "run": place,
        "stored": False,
        "interval": None,
        "chosen": None if best is None else asdict(best.setting),
        "ended": found.ended,
        "iteration": None,
        "nbytes": nbytes,
        "tried": [_flat(asdict(one)) for one in found.tried],
        "profile": None,
    }


def _flat(tried: dict[str, Any]) -> dict[str, Any]:
    return {**tried.pop("setting"), **tried}
