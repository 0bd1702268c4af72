"""Starts a user's program several times in scratch runs, without a kill and with one, and says what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepfreeze.cli.programs import Program
from deepfreeze.errors import Error, ProgramError
from deepfreeze.events.event_files import EventFiles
from deepfreeze.format.position import Position
from deepfreeze.plan.rehearsal import Rehearsal
from deepfreeze.store.run import Run

_NONE = "give the program a deepfreeze.Checkpoint among the callbacks of fit, or a deepfreeze.capture, that trains so many steps"


@dataclass(frozen=True)
class Killed:
    """A kill of the program and the start after it. ``step``: the step of the newest checkpoint at the kill; ``position``: the training's
    position at that step, None for a hand-written loop; ``resumed``: the step from which the second start has gone on, None if it has
    begun anew."""

    step: int
    position: Position | None
    resumed: int | None


class Rehearsals:
    """Rehearsals of one program. ``run(name)`` is the run of the rehearsal ``name``; its programs' output is in the file NAME.log."""

    def __init__(
        self,
        command: Sequence[str],
        ranks: int | None,
        steps: int,
        at: int,
        seconds: float,
        folder: Path,
        tell: Callable[[str], None],
    ) -> None:
        """``command``: of the program; ``ranks``: with which a launcher starts it, None: it is started as it is; ``steps``, ``at``: as in
        ``Rehearsal``; ``seconds``: after which a program is ended; ``folder``: exists, and has no rehearsals; ``tell``: is called with a
        line before a program starts. ``InstallError`` without a launcher for ``ranks``."""
        self._program = Program(command, ranks, tell)
        self._steps, self._at, self._seconds = steps, at, seconds
        self._folder, self._tell = folder, tell

    def run(self, name: str) -> Path:
        """The directory of a rehearsal's run."""
        return self._folder / name

    def uninterrupted(self, name: str) -> set[int]:
        """Trains to the last step. Returns the steps of the checkpoints. ``ProgramError`` if the program fails, has no checkpoint, or ends
        before the last step."""
        self._tell(f"{name}: the program trains {self._steps} steps")
        code = self._start(name, kills=False)
        if code:
            raise self._failed(name, code)
        return self._trained(name)

    def killed(self, name: str) -> Killed:
        """Trains with a kill, and starts the program again, which trains to the last step. ``ProgramError`` as ``uninterrupted``, and if
        the kill came at the last step."""
        self._tell(f"{name}: the program is killed when step {self._at} is committed")
        code = self._start(name, kills=True)
        run = self._opened(name)
        newest = run.newest() if run is not None else None
        if run is None or newest is None or newest < self._at:
            raise self._failed(name, code)
        if newest >= self._steps:
            raise ProgramError(
                where=f"{self._program} ({name})",
                expected=f"a checkpoint from step {self._at} on and before step {self._steps}, to be killed at",
                found="none",
                todo="raise --steps",
            )
        position = Position.of(run.manifest(newest).values)
        events = EventFiles(run.path)
        events.new()
        self._tell(f"{name}: the program is started again, from step {newest} to step {self._steps}")
        code = self._start(name, kills=False)
        if code:
            raise self._failed(name, code)
        self._trained(name)
        begun = next((event for event in events.new() if event["kind"] == "attempt"), {})
        return Killed(newest, position, begun.get("resumed"))

    def compared(self, first: set[int], second: str) -> int:
        """The step at which the rehearsal ``second`` is compared with one whose checkpoints have the steps ``first``: the last step, or
        the last checkpoint's. ``ProgramError`` if they have no such step in common."""
        steps = self._trained(second)
        common = [step for step in first & steps if step >= self._steps]
        if common:
            return min(common)
        raise ProgramError(
            where=f"{self._program} ({second})",
            expected=f"a checkpoint of step {min(step for step in first if step >= self._steps)}, as without a kill",
            found=f"one of step {max(steps)}",
            todo="with steps_per_execution, choose --steps and --kill as multiples of it",
        )

    def _trained(self, name: str) -> set[int]:
        """The steps of the rehearsal's checkpoints. ``ProgramError`` if it has none, or none of the last step."""
        run = self._opened(name)
        steps = set(run.committed()) if run is not None else set()
        where, expected = f"{self._program} ({name})", f"a checkpoint of step {self._steps}"
        if not steps:
            raise ProgramError(where=where, expected=expected, found="none: the program never checkpoints", todo=_NONE)
        if max(steps) < self._steps:
            todo = f"pass --steps {max(steps)} at most, or have the program train longer"
            found = f"a program that ended at step {max(steps)}"
            raise ProgramError(where=where, expected=expected, found=found, todo=todo)
        return steps

    def _opened(self, name: str) -> Run | None:
        """The rehearsal's run; None if the program has not made it."""
        return Run.open(self.run(name)) if self.run(name).is_dir() else None

    def _start(self, name: str, kills: bool) -> int:
        """Starts the program and waits for its end. Returns its exit code."""
        rehearsal = Rehearsal(str(self.run(name)), self._steps, self._at, kills)
        todo = "if it needs longer, raise --timeout or lower --steps"
        return self._program.start(rehearsal.environment(), self._log(name), self._seconds, f" ({name})", todo)

    def _failed(self, name: str, code: int) -> Error:
        return self._program.failed(code, self._log(name), f" ({name})")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"
