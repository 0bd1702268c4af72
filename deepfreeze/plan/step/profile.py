"""The profile of a step, from which its plan follows: how long each window takes, how busy the cores are in it, how fast the store takes
bytes then, and in which window each tensor is updated.

A training measures its own; ``StepProfile.load`` takes one that was made elsewhere, for example for a GPU (docs/format.md, "Step profile").
With several ranks each figure is the slowest rank's, and a tensor has the most bytes that any rank saves of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deepfreeze.errors import RunError
from deepfreeze.format.strict_json import Fields, parse_object
from deepfreeze.plan.step.parts import joined
from deepfreeze.plan.step.question import PHASES, Question, SavedTensor, StepWindow

FORMAT = 1
MOST_WINDOWS, MOST_TENSORS = 1024, 100_000
# A step whose longest tenth and shortest tenth differ by more than this part of the median changes from batch to batch. It is planned with
# its windows in the shortest fifth of the steps.
STEADY = 0.5
_MAX_SECONDS, _MAX_RATE, _MAX_BYTES = 1e6, 1e15, 1 << 60
_MAX_CAPACITY = 1 << 44  # bytes of a window: more is as good as no bound, and sums of it are exact
_TODO = "correct the profile, or measure it again"
# By how much a window may seem to begin before or behind the end of the one before it, in seconds.
_JITTER = 1e-6


@dataclass(frozen=True)
class ProfiledWindow:
    """A window of a step.

    - ``phase``: one of ``PHASES``; "between": between two steps. ``begin``: seconds from the beginning of the step.
    - ``seconds``: the median; ``shortest``: in the shortest fifth of the steps; ``spread``: 90th percentile minus 10th, over the median.
    - ``busy``: the share of the cores that training uses, from 0 to 1; ``base``: bytes in memory beside copies, 0 if it is not known.
    - ``rate``: bytes that the store takes in a second while training runs; ``copy_rate``: bytes that training copies in a
      second of a core, 0 if copies take it no time."""

    name: str
    phase: str
    begin: float
    seconds: float
    shortest: float
    spread: float
    busy: float
    base: int
    rate: float
    copy_rate: float


@dataclass(frozen=True)
class StepProfile:
    """``name``: what was measured, in words. ``structure``: the hash of the training state's structure, 64 digits, all 0 if it was made
    elsewhere. ``spread``: of the whole step, as of a window. ``tensors``: those that are saved."""

    name: str
    structure: str
    world_size: int
    spread: float
    windows: tuple[ProfiledWindow, ...]
    tensors: tuple[SavedTensor, ...]

    @property
    def seconds(self) -> float:
        """Of a step."""
        return sum(window.seconds for window in self.windows)

    @property
    def nbytes(self) -> int:
        """Bytes of a checkpoint."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def is_steady(self) -> bool:
        """False if the step changes from batch to batch. A short window may change as it likes: the next ones make up for it."""
        return self.spread <= STEADY

    @property
    def hash(self) -> str:
        """64 digits that are the same for profiles that are equal."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def question(
        self,
        *,
        every: int = 1,
        memory: int | None = None,
        cyclic: bool = True,
        direct: bool = False,
        faster: float = 1.0,
        at_least: int = 0,
        carry: int = 0,
    ) -> Question:
        """The question that a plan answers. ``faster``: by so much the store is faster than measured; ``at_least``: tensors of fewer bytes
        that are updated in one window are treated as one, until they have as many."""
        counted = [one.seconds if self.is_steady else one.shortest for one in self.windows]
        windows = [
            StepWindow(
                seconds=seconds,
                capacity=_nbytes(seconds * one.rate * faster),
                busy=one.busy,
                base=one.base,
                copy_capacity=_nbytes(seconds * one.copy_rate) if one.copy_rate else None,
                name=one.name,
                phase=one.phase,
            )
            for one, seconds in zip(self.windows, counted, strict=True)
        ]
        return Question(tuple(windows), tuple(joined(self.tensors, at_least)), every, memory, cyclic, direct, carry)

    def to_json(self) -> dict[str, Any]:
        """The profile, as objects for ``json``."""
        return {
            "format": FORMAT,
            "name": self.name,
            "structure": self.structure,
            "world_size": self.world_size,
            "spread": self.spread,
            "windows": [asdict(window) for window in self.windows],
            "tensors": [asdict(tensor) for tensor in self.tensors],
        }

    def save(self, path: str | Path) -> None:
        """Writes the profile into a file, which is replaced if it exists."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> StepProfile:
        """The profile in a file. RunError if it can't be read, CorruptError if it is no profile."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise RunError(
                where=path, expected="a step's profile", found=error.strerror or str(error), todo="correct the path"
            ) from None
        return cls.from_json(parse_object(data, path, _TODO), path)

    @classmethod
    def from_json(cls, value: Mapping[str, Any], where: object = "profile") -> StepProfile:
        """The profile from what ``to_json`` has made. ``where``: the file, for messages. CorruptError for anything else."""
        given = Fields(value, where, todo=_TODO)
        given.version(FORMAT)
        given.keys("format", "name", "structure", "world_size", "spread", "windows", "tensors")
        windows = tuple(_window(one) for one in given.children("windows"))
        if not 1 <= len(windows) <= MOST_WINDOWS:
            raise given.error(f"from 1 to {MOST_WINDOWS} windows", str(len(windows)))
        end = windows[0].begin
        for number, window in enumerate(windows):
            if abs(window.begin - end) > _JITTER * (1 + number):
                expected = f"windows[{number}] to begin where the one before it ends, at {end:g} s"
                raise given.error(expected, f"a begin at {window.begin:g} s")
            end = window.begin + window.seconds
        tensors = tuple(_tensor(one, len(windows)) for one in given.children("tensors"))
        if not 1 <= len(tensors) <= MOST_TENSORS:
            raise given.error(f"from 1 to {MOST_TENSORS} tensors", str(len(tensors)))
        names = [tensor.name for tensor in tensors]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise given.error("a name for each tensor", f"{twice} twice")
        return cls(
            given.text("name"),
            given.hexadecimal("structure", 64),
            given.integer("world_size", 1, 1 << 20),
            given.number("spread", 0.0, _MAX_SECONDS),
            windows,
            tensors,
        )


def _nbytes(nbytes: float) -> int:
    """So many bytes of a window, or as many as are as good as no bound."""
    return min(_MAX_CAPACITY, int(nbytes))


def _window(given: Fields) -> ProfiledWindow:
    given.keys("name", "phase", "begin", "seconds", "shortest", "spread", "busy", "base", "rate", "copy_rate")
    seconds = given.number("seconds", 0.0, _MAX_SECONDS)
    return ProfiledWindow(
        name=given.text("name"),
        phase=given.one_of("phase", PHASES),
        begin=given.number("begin", 0.0, _MAX_SECONDS),
        seconds=seconds,
        shortest=given.number("shortest", 0.0, seconds),
        spread=given.number("spread", 0.0, _MAX_SECONDS),
        busy=given.number("busy", 0.0, 1.0),
        base=given.integer("base", 0, _MAX_BYTES),
        rate=given.number("rate", 0.0, _MAX_RATE),
        copy_rate=given.number("copy_rate", 0.0, _MAX_RATE),
    )


def _tensor(given: Fields, windows: int) -> SavedTensor:
    """A tensor that is updated in one of so many windows."""
    given.keys("name", "nbytes", "update", "ready")
    last = max(0, windows - 1)
    update = given.integer("update", 0, last)
    ready = None if given.plain()["ready"] is None else given.integer("ready", update, last)
    return SavedTensor(given.text("name"), given.integer("nbytes", 1, _MAX_BYTES), update, ready)
