"""A scratch run in which a program's engine is tuned: what ``deepfreeze tune`` asks of the program that it starts, by environment
variables.

``deepfreeze.Checkpoint`` and ``deepfreeze.capture`` heed the variables, so that the program itself stays as it is:

- ``DEEPFREEZE_TUNE``: the end of the scratch run's name. The run lies beside the program's own, and so on the same store. Without it the
  other variables mean nothing.
- ``DEEPFREEZE_TUNE_FILE``: a file, to which rank 0 appends a line for each run that the program trains in: a ``Told``,
  as a JSON object.
- ``DEEPFREEZE_TUNE_OVERHEAD``: the budget of ``Budget(overhead=)``. Without it the program's own ``Budget`` holds, or the default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from deepfreeze.errors import OptionError
from deepfreeze.plan.budget import Budget
from deepfreeze.plan.policy import Policy, parts
from deepfreeze.tuning import scratch

_NAME, _FILE, _OVERHEAD = "DEEPFREEZE_TUNE", "DEEPFREEZE_TUNE_FILE", "DEEPFREEZE_TUNE_OVERHEAD"


@dataclass(frozen=True)
class Told:
    """The program's ``run``; the ``scratch`` run in its place; the program's own ``every``, as text; its option ``local``."""

    run: str
    scratch: str
    every: str
    local: str | None

    @classmethod
    def read(cls, file: Path) -> list[Told]:
        """The runs that the program has told of so far, in order; [] if it has opened none."""
        names = [field.name for field in fields(cls)]
        try:
            found = [json.loads(line) for line in file.read_text().splitlines()]
            return list(dict.fromkeys(cls(**{name: one[name] for name in names}) for one in found))
        except (OSError, ValueError, KeyError, TypeError):
            return []


@dataclass
class ProgramRun:
    """The variables' values: ``scratch``: the end of the name; ``file``; ``overhead``: None if it is not given. A training asks the methods
    as it asks those of ``Rehearsal``."""

    scratch: str
    file: str
    overhead: float | None = None
    name = "tune"  # ``stats.stopped`` of a training that has ended because it was tuned
    keeps = 0
    resume = "auto"
    _own: Policy | None = None
    _budget: Budget | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ProgramRun | None:
        """The tuning that the environment asks for; None if it asks for none. ``OptionError`` for a name, or a number, that is none."""
        name = environment.get(_NAME)
        if not name:
            return None
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            raise _wrong(_NAME, "the end of a run's name: letters, digits, _ and -", name)
        file, overhead = environment.get(_FILE, ""), environment.get(_OVERHEAD, "")
        if not file:
            raise _wrong(_FILE, "a file", "nothing")
        try:
            return cls(name, file, float(overhead) if overhead else None)
        except ValueError:
            raise _wrong(_OVERHEAD, "a fraction", overhead) from None

    def environment(self) -> dict[str, str]:
        """The variables, for the program's environment."""
        return {_NAME: self.scratch, _FILE: self.file, _OVERHEAD: "" if self.overhead is None else repr(self.overhead)}

    def place(self, run: str) -> str:
        """The path of the scratch run of a program that trains in ``run``: beside the directory that ``run`` leads to, if that is a
        link."""
        return scratch.beside(run, self.scratch)

    def policy(self, own: Policy) -> Policy:
        """The policy in place of the program's ``own``."""
        budget = next((part for part in parts(own) if isinstance(part, Budget)), None)
        if self.overhead is not None or budget is None:
            mtbf = None if budget is None else budget.mtbf
            budget = Budget(mtbf=mtbf) if self.overhead is None else Budget(self.overhead, mtbf)
        self._own, self._budget = own, budget
        budget.take_time()
        return budget

    def opens(self, run: str, local: object) -> None:
        """Rank 0 is about to open the scratch run of a program that trains in ``run``: tells of both. ``local``: the option of this name.
        ``OptionError`` if the file can't be written."""
        told = Told(run, self.place(run), str(self._own), None if local is None else str(local))
        try:
            with open(self.file, "a") as file:
                file.write(json.dumps(asdict(told)) + "\n")
        except OSError as error:
            raise _wrong(_FILE, "a file that rank 0 can write", f"{self.file} ({error.strerror})") from error

    def ends(self, step: int) -> bool:
        """Whether training ends when ``step`` is done: the engine is tuned, and the ranks have agreed on an interval."""
        return self._budget is not None and self._budget.interval > 0

    def kills_at(self, step: int, began: int) -> bool:
        """No step kills the program."""
        return False


def _wrong(name: str, expected: str, found: str) -> OptionError:
    todo = f"unset {_NAME}, or let deepfreeze tune set all three variables"
    return OptionError(where=name, expected=expected, found=found[:100], todo=todo)
