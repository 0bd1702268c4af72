"""``deepfreeze tune -- PROGRAM``: tunes the engine of a user's program in a scratch run, and keeps the result in the program's own."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from deepfreeze.cli import output, programs, tuned
from deepfreeze.cli.output import facts, line
from deepfreeze.cli.plan_sentences import every, percent, seconds
from deepfreeze.cli.programs import Program
from deepfreeze.errors import Error, LockedError, ProgramError
from deepfreeze.plan.budget_section import SECTION, BudgetSection
from deepfreeze.store.plan import put_section, read_section
from deepfreeze.store.run import Run
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.tuning import scratch
from deepfreeze.tuning.program_run import ProgramRun, Told

_LONGER = "have the program train longer: some steps without checkpoints come first, and then up to 40 checkpoints"


def tune(arguments: argparse.Namespace, words: list[str]) -> int:
    """Tunes the program that the command line ``words`` starts, keeps the result in its run, and prints it. Returns the exit code.
    ``ProgramError`` if nothing came of it, ``OptionError`` if the program can't be started."""
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
    """The keeping of a result in the program's run. ``why_not``: the reason why it was not kept, None if it was; ``replaced``: the interval
    that was there before, and the step up to which a training had learned it."""

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
