"""Checks a plan of a step against the rules, one by one. It knows nothing of the solver and of its programs: it counts bytes window by
window, part by part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.question import Question

# By what part of it a bound may be exceeded: the solver's arithmetic has fractions.
TOLERANCE = 1e-6


def violations(question: Question, parts: Sequence[PlannedPart]) -> list[str]:
    """The rules that the plan breaks, a sentence each; an empty list if it keeps all of them."""
    return [*_each_byte_once(question, parts), *_windows(question, parts), *_bounds(question, parts)]


def _each_byte_once(question: Question, parts: Sequence[PlannedPart]) -> list[str]:
    wrong = [
        f"a part is of tensor {part.tensor}, which there is not"
        for part in parts
        if not 0 <= part.tensor < len(question.tensors)
    ]
    own: dict[int, list[PlannedPart]] = defaultdict(list)
    for part in parts:
        own[part.tensor].append(part)
    for index, tensor in enumerate(question.tensors):
        at = 0
        for part in sorted(own[index], key=lambda part: part.begin):
            if part.begin != at or part.nbytes < 0:
                wrong.append(
                    f"{tensor.name}: a part has bytes {part.begin} to {part.begin + part.nbytes}, behind byte {at}"
                )
            at = part.begin + part.nbytes
        if at != tensor.nbytes:
            wrong.append(f"{tensor.name}: the parts end at byte {at} of {tensor.nbytes}")
    return wrong


def _windows(question: Question, parts: Sequence[PlannedPart]) -> list[str]:
    wrong = []
    per_step = len(question.windows)
    for part in parts:
        if not 0 <= part.tensor < len(question.tensors):
            continue
        tensor = question.tensors[part.tensor]
        name = f"{tensor.name}, from byte {part.begin} on"
        # From which window on the tensor has the value that is saved; and the window that writes to it next.
        ready = tensor.update if tensor.ready is None else tensor.ready
        earliest = ready - per_step if question.cyclic else 0
        changes = tensor.update if question.cyclic or tensor.ready is None else max(1, tensor.update)
        latest = question.horizon - 1 + (tensor.update if question.cyclic else 0)
        if part.copy is None:
            if not question.direct:
                wrong.append(f"{name}: written without a copy")
            changing = question.cyclic and tensor.ready is None  # in the earliest window
            if not earliest + changing <= part.write < changes:
                wrong.append(f"{name}: written without a copy in window {part.write}, updated in {tensor.update}")
            continue
        if not earliest <= part.copy:
            wrong.append(f"{name}: copied in window {part.copy}, before it has its value")
        if not part.copy < changes:
            wrong.append(f"{name}: copied in window {part.copy}, updated in {tensor.update}")
        if not part.copy < part.write:
            wrong.append(f"{name}: written in window {part.write}, copied in {part.copy}")
        if part.write > latest:
            wrong.append(f"{name}: written in window {part.write}, behind {latest}")
    return wrong


def _bounds(question: Question, parts: Sequence[PlannedPart]) -> list[str]:
    horizon = question.horizon
    rate, memory = [0] * horizon, [question.window(number).base for number in range(horizon)]
    change: dict[int, int] = defaultdict(
        int
    )  # window -> bytes of copies that are made in it, less those that are gone by then
    for part in parts:
        rate[part.write % horizon] += part.nbytes
        if part.copy is not None:
            change[part.copy] += part.nbytes
            change[part.write + 1] -= part.nbytes
    copies = 0
    for number in range(min(change, default=0), max(change, default=0)):
        copies += change[number]
        memory[number % horizon] += copies
    wrong = []
    # What the windows before have left over, in a cycle also those of the period before.
    left = 0
    for number in range(-horizon if question.cyclic else 0, 0):
        left = min(question.carry, max(0, left + question.window(number).capacity - rate[number % horizon]))
    for number in range(horizon):
        most = question.window(number).capacity + left
        left = min(question.carry, max(0, most - rate[number]))
        if rate[number] > most * (1 + TOLERANCE):
            wrong.append(f"window {number}: {rate[number]} bytes are written, of {most} that the store takes")
        if question.memory is not None and memory[number] > question.memory * (1 + TOLERANCE):
            wrong.append(f"window {number}: {memory[number]} bytes in memory, of {question.memory}")
    return wrong
