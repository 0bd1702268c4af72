"""The eight models of Checkflow's experiment, layer by layer, and what a step of each takes on the paper's GPU by the roofline.

One operator runs after the other: forward, layer by layer; then for each layer, from the last one to the first, its backward operator and,
right behind it, the update of its weights. An operator takes as long as its arithmetic or its memory traffic, or at least ``LEAST``
microseconds: the launch of a kernel and all that the roofline does not know.

The paper publishes neither its profile nor the least time of an operator, so figures from this profile are compatible with the paper's or
not; they don't repeat them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from benchmarks.report import ROOT
from deepfreeze.plan.step.question import Question, SavedTensor, StepWindow

TABLE = ROOT / "benchmarks" / "published" / "checkflow_models.csv"
FLOAT = 4  # bytes
# RTX 3090: what its sheet says, and the part of it that kernels reach.
FLOPS, BANDWIDTH = 0.6 * 35.6e12, 0.8 * 936e9


@dataclass(frozen=True)
class Layer:
    """``weight_bytes``; ``outputs``: elements for each sample; ``macs``: multiply-adds of the forward operator for each sample."""

    name: str
    weight_bytes: int
    outputs: int
    macs: int


@dataclass(frozen=True)
class Operator:
    """``seconds``: how long it takes; ``base``: bytes in memory while it runs."""

    name: str
    seconds: float
    base: int


@cache
def models() -> dict[str, tuple[Layer, ...]]:
    """The layers of each model, in the order in which they run."""
    made: dict[str, list[Layer]] = {}
    with TABLE.open(newline="") as file:
        for row in csv.DictReader(file):
            numbers = (
                int(row[key]) for key in ("weight_bytes", "output_elements_per_sample", "forward_macs_per_sample")
            )
            made.setdefault(row["model"], []).append(Layer(row["layer"], *numbers))
    return {model: tuple(layers) for model, layers in made.items()}


def operators(layers: tuple[Layer, ...], batch: int, least: float) -> Iterator[tuple[Operator, Layer | None]]:
    """The operators of a step in their order; an update with its layer, any other with None. ``least``: seconds.

    Memory: the weights, the outputs of the layers until their backward operators, and the gradient at hand."""
    weights = sum(layer.weight_bytes for layer in layers)
    outputs = [layer.outputs * FLOAT * batch for layer in layers]
    kept = 0
    for number, layer in enumerate(layers):
        kept += outputs[number]
        inputs = outputs[number - 1] if number else 0
        traffic = layer.weight_bytes + inputs + outputs[number]
        yield Operator(layer.name, _seconds(layer.macs * batch, traffic, least), weights + kept), None
    for number in reversed(range(len(layers))):
        layer, inputs = layers[number], outputs[number - 1] if number else 0
        # The gradients of input and of weights, each of which costs as much as the forward operator.
        traffic = 2 * (layer.weight_bytes + inputs + outputs[number])
        gradient = layer.weight_bytes
        seconds = _seconds(2 * layer.macs * batch, traffic, least)
        yield Operator(f"{layer.name}, backward", seconds, weights + kept + gradient), None
        if layer.weight_bytes:
            # Reads weight and gradient, writes the weight: plain SGD.
            seconds = _seconds(0, 3 * layer.weight_bytes, least)
            yield Operator(f"{layer.name}, update", seconds, weights + kept + gradient), layer
        kept -= outputs[number]


def question(model: str, batch: int, rate: float, least: float, **options: object) -> Question:
    """The question that a plan of the model's step answers, with a link of ``rate`` bytes a second. ``options``: of ``Question``."""
    windows, tensors = [], []
    for number, (operator, updated) in enumerate(operators(models()[model], batch, least)):
        windows.append(
            StepWindow(operator.seconds, int(operator.seconds * rate), 1.0, operator.base, name=operator.name)
        )
        if updated is not None:
            tensors.append(SavedTensor(updated.name, updated.weight_bytes, number))
    return Question(tuple(windows), tuple(tensors), **options)  # type: ignore[arg-type]


def _seconds(macs: float, traffic: float, least: float) -> float:
    return max(2 * macs / FLOPS, traffic / BANDWIDTH, least)
