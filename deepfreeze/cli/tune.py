"""``deepfreeze tune``: finds out how an engine works best on a store, by a user's program or without one."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deepfreeze import arguments as checks
from deepfreeze import wording
from deepfreeze.cli import command, output, programs, tuned
from deepfreeze.cli.output import facts, line
from deepfreeze.cli.plan_sentences import every, percent, seconds
from deepfreeze.cli.programs import Program
from deepfreeze.errors import Error, LockedError, OptionError, ProgramError
from deepfreeze.plan.budget_section import SECTION, BudgetSection
from deepfreeze.plan.pccheck import MOST_CHECKPOINTS, Search
from deepfreeze.store.plan import put_section, read_section
from deepfreeze.store.run import Run
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.tuning import scratch
from deepfreeze.tuning.program_run import ProgramRun, Told

_SECONDS = 3600
_LONGER = "have the program train longer: some steps without checkpoints come first, and then up to 40 checkpoints"
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
            raise argparse.ArgumentTypeError(
                f"{text!r} is no {'fraction from 0 to 1' if first is float else 'size'}"
            ) from None

    return checked


def run(arguments: argparse.Namespace) -> int:
    """Tunes and prints. Returns the exit code."""
    try:
        if arguments.bytes is None:
            return _with_program(arguments, _program(arguments))
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


# With a program.


def _with_program(arguments: argparse.Namespace, words: list[str]) -> int:
    program = Program(words, arguments.launched, _tell)
    with programs.folder(arguments.keep, "deepfreeze-tune-") as folder:
        file, log = folder / "runs.jsonl", folder / "program.log"
        tuning = ProgramRun(scratch.new_name(), str(file), arguments.overhead)
        _tell("the program is started, and trains until its engine is tuned")
        try:
            todo = "if it needs longer, raise --timeout"
            code = program.start(tuning.environment(), log, arguments.timeout, "", todo, _Progress(file).look)
            told, section = _result(program, file, code, log)
        except KeyboardInterrupt:
            _tell("interrupted: nothing is stored")
            raise
        finally:
            _clear(file)
    found = _Stored.of(told, section)
    _print(arguments, told, section, found)
    return 0 if section.auto is not None else 1


class _Progress:
    """Tells of each trial when it is over, as far as the program has written it."""

    def __init__(self, file: Path) -> None:
        self._file, self._told = file, 0

    def look(self) -> None:
        """Looks once."""
        told = next(iter(Told.read(self._file)), None)
        if told is None:
            return
        with contextlib.suppress(Error):
            found = read_section(Run.open(told.scratch), SECTION)
            tried = BudgetSection.from_json(found).tried if found is not None else ()
            for one in tried[self._told :]:
                _tell(f"tried {one.setting}: a checkpoint in {seconds(one.period)} (Tw / N)")
            self._told = len(tried)


def _result(program: Program, file: Path, code: int, log: Path) -> tuple[Told, BudgetSection]:
    """The first run that rank 0 has told of, and what was found there. ``code``: the program's exit code. A program may fail after its
    training, because a model that has hardly trained is not good enough for it: then the result counts. ``ProgramError`` if there is
    none."""
    told = next(iter(Told.read(file)), None)
    found = None
    if told is not None:
        with contextlib.suppress(Error):
            found = read_section(Run.open(told.scratch), SECTION)
    section = BudgetSection.from_json(found) if found is not None else None
    if code and (section is None or section.auto is None):
        raise program.failed(code, log, "")
    if told is None:
        todo = "give the program a deepfreeze.Checkpoint among the callbacks of fit, or a deepfreeze.capture"
        raise ProgramError(where=str(program), expected="a training with checkpoints", found="none", todo=todo)
    if section is None:
        expected, before = "a training in which an engine is tuned", "one that ended before any setting was tried"
        raise ProgramError(where=str(program), expected=expected, found=before, todo=_LONGER)
    if code:
        _tell(f"the program failed with exit code {code} when its engine was tuned; the result counts all the same")
    return told, section


def _clear(file: Path) -> None:
    for told in Told.read(file):
        scratch.remove(told.scratch, told.local)
        scratch.remove_left(os.path.realpath(told.run))


@dataclass(frozen=True)
class _Stored:
    """Whether a result was kept in the program's run: ``why_not``: None if it was; ``replaced``: the interval that was there before, and
    the step up to which a training had learned it."""

    why_not: str | None
    replaced: tuple[int, int] | None = None

    @classmethod
    def of(cls, told: Told, section: BudgetSection) -> _Stored:
        """Keeps the section, unless a job has the run, or the search was not over."""
        if section.auto is None:
            return cls(f"the training ended before the search was over; {_LONGER}")
        try:
            kept = WritableRun.open_or_make(told.run)
            with kept.store.lock():
                replaced = None
                with contextlib.suppress(Error):
                    before = read_section(kept, SECTION)
                    auto = BudgetSection.from_json(before).auto if before is not None else None
                    replaced = (auto.interval, auto.last_step) if auto is not None and auto.windows else None
                put_section(kept, SECTION, section.begun().to_json(), notify=output.notify)
            return cls(None, replaced)
        except LockedError:
            return cls("a job trains in that run now")
        except Error as error:
            return cls(str(error))


def _print(arguments: argparse.Namespace, told: Told, section: BudgetSection, stored: _Stored) -> None:
    auto = section.auto
    if arguments.json:
        plain = section.to_json()
        values = {
            "run": told.run,
            "every": told.every,
            "stored": stored.why_not is None,
            "why_not": stored.why_not,
            "interval": None if auto is None else auto.interval,
            "overhead": None if auto is None else auto.overhead,
            **{name: plain[name] for name in ("chosen", "ended", "iteration", "nbytes", "tried")},
            "limits": {**asdict(section.limits.most), "bound": section.limits.bound},
            "profile": None if auto is None else asdict(auto.profile),
        }
        print(json.dumps(values, indent=2))
        return
    rows = [("run", told.run), ("limits", tuned.limits(section.limits))]
    if section.chosen is not None:
        rows.append(("chosen", tuned.setting(section.chosen)))
    rows.append(("interval", tuned.interval(section)))
    if auto is not None:
        cost = f"a checkpoint makes training {seconds(auto.terms.cost)} longer (To); the budget is {percent(auto.overhead)}"
        rows.append(("because", cost))
    rows += [
        ("the search", tuned.outcome(section)),
        ("stored", f"in {told.run}/plan.json" if stored.why_not is None else f"no: {stored.why_not}"),
    ]
    if stored.replaced is not None:
        interval, step = stored.replaced
        rows.append(("in place of", f"{every(interval)}, which a training had measured up to step {step}"))
    if not told.every.startswith("Budget("):
        rows.append(
            ("note", f"the program has every={told.every}; jobs take this on with every=deepfreeze.plan.Budget(...)")
        )
    facts(rows)
    line("")
    tuned.trials(section.tried, section.chosen)


def _tell(text: str) -> None:
    output.notify("info", text)
