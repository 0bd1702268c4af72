"""Whether a chain of killed attempts has ended as an undisturbed training would."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.soak.chains import Attempt, Chain
from tests.support import trained
from tests.support.trained import Step


def wrong(chain: Chain, folder: Path, ended: int, whole: Path | None) -> list[str]:
    """What is wrong with the ``chain`` whose attempt number ``ended``, the last one, has ended in ``folder``. ``whole``: where the attempt
    ``chain.undisturbed`` has trained; None if there is none."""
    attempts = chain.attempts[: ended + 1]
    steps = history(folder, ended)
    ends = _ends(folder, ended, attempts[-1].ranks)
    found = [*_items(chain, attempts, steps, len(ends[0]["epochs"])), *_states(chain, ends, len(steps))]
    if whole is not None:
        # Other ranks round sums in another way, so callbacks may end one of the trainings earlier.
        pairs = zip(steps, history(whole, 0))
        other = [f"first at step {one.number}: {one}, undisturbed {two}" for one, two in pairs if one != two]
        found += other[:1]
        if chain.one_world:
            found += _as_undisturbed(ends, _ends(whole, 0, attempts[-1].ranks))
    return found


def history(folder: Path, ended: int) -> list[Step]:
    """The steps with which the training in ``folder`` has ended, whose last attempt is number ``ended``."""
    return trained.history(trained.steps(folder, attempt) for attempt in range(ended + 1))


def _items(chain: Chain, attempts: Sequence[Attempt], steps: list[Step], epochs: int) -> list[str]:
    """No item twice in an epoch; and none left out, but for those at the end of an epoch that do not fill a batch, if they are dropped."""
    found = []
    if (numbers := [step.number for step in steps]) != list(range(1, len(steps) + 1)):
        found.append(f"the steps are {numbers}")
    if (begun := sorted({step.epoch for step in steps})) != list(range(epochs)):
        found.append(f"items of the epochs {begun} were trained, and History has {epochs} epochs")
    fewest = chain.items - (max(attempt.shared for attempt in attempts) - 1 if chain.last == "drop" else 0)
    for epoch in range(epochs):
        times = Counter(item for step in steps if step.epoch == epoch for item in step.items)
        if again := sorted(item for item, count in times.items() if count > 1):
            where = [step.number for step in steps if step.epoch == epoch and set(again) & set(step.items)]
            found.append(f"epoch {epoch}: {len(again)} items trained more than once, in the steps {where}: {again[:8]}")
        if len(times) < fewest:
            never = sorted(set(range(chain.items)) - set(times))
            found.append(f"epoch {epoch}: {len(never)} of {chain.items} items never trained: {never[:8]}")
    return found


def _states(chain: Chain, ends: list[dict[str, Any]], steps: int) -> list[str]:
    """Each rank's history has all epochs, and its callbacks are as if they had seen this history from its beginning."""
    found = []
    for rank, end in enumerate(ends):
        epochs, replayed = len(end["epochs"]), dict(end["replayed"])
        stopped = replayed.pop("stopped")
        lengths = {name: len(values) for name, values in end["history"].items()}
        if end["epochs"] != list(range(epochs)) or set(lengths.values()) != {epochs}:
            found.append(f"rank {rank}: History has the epochs {end['epochs']}, and of each metric so many: {lengths}")
        if epochs != chain.epochs and not stopped:
            found.append(f"rank {rank}: training ended after {epochs} of {chain.epochs} epochs")
        if end["updates"] != steps:
            found.append(f"rank {rank}: the optimizer counts {end['updates']} updates, the history has {steps}")
        if end["states"] != replayed:
            found.append(f"rank {rank}: callbacks end with {end['states']}, by this history with {replayed}")
    return found


def _as_undisturbed(ends: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[str]:
    pairs = enumerate(zip(ends, others, strict=True))
    return [
        f"rank {rank}: {name} is {end[name]}, undisturbed {other[name]}"
        for rank, (end, other) in pairs
        for name in ("epochs", "history", "states", "weights")
        if end[name] != other[name]
    ]


def _ends(folder: Path, attempt: int, ranks: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"end-{attempt}-{rank}.json").read_text()) for rank in range(ranks)]
