"""Ranks that are played in one process, for the tests of one part of a training (``deepfreeze.training.part``)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from deepfreeze.training.begun import Begun, Fitting


class PlayedRanks:
    """The ranks of a job. A test makes a part for each, calls the parts' methods in step, and has the ranks meet. ``words``: the fields of
    the control word, by name; ``said``, ``noted``: the lines that each rank has said, and given to the log."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.words: dict[str, _Word] = {}
        self.said: list[list[str]] = [[] for _ in range(size)]
        self.noted: list[list[str]] = [[] for _ in range(size)]

    def begun(self, rank: int, verbose: int = 0, position: Any = None, storage: Any = None) -> Begun:
        """What a part of this rank is made with."""
        world = SimpleNamespace(rank=rank, size=self.size)
        open_run: Any = SimpleNamespace(attempt=SimpleNamespace(world=world))
        agreement: Any = SimpleNamespace(field=lambda name: _Field(self.words.setdefault(name, _Word()), rank))
        events: Any = SimpleNamespace(
            tell=lambda message, said: (self.said if said else self.noted)[rank].append(message)
        )
        options: Any = SimpleNamespace(verbose=verbose)
        counted: Any = None
        policy: Any = None
        return Begun(open_run, agreement, policy, Fitting(None, counted, position, "", 1), options, events, storage)

    def meet(self) -> None:
        """The ranks agree on what they have proposed so far."""
        for word in self.words.values():
            word.agreed = max(word.proposals.values(), default=0)


class _Word:
    """A field of all ranks: the greatest proposal, as of the last meeting."""

    def __init__(self) -> None:
        self.proposals: dict[int, int] = {}
        self.agreed = 0


class _Field:
    """One rank's side of a field, as ``deepfreeze.ranks.control_word.Field``."""

    def __init__(self, word: _Word, rank: int) -> None:
        self._word, self._rank = word, rank

    def propose(self, value: int) -> None:
        self._word.proposals[self._rank] = value

    @property
    def agreed(self) -> int:
        return self._word.agreed
