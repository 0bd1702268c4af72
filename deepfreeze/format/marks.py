"""``marks.json`` and ``tags/NAME``: what a run knows of its committed checkpoints beside their manifests (docs/format.md, "Marks and
tags")."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deepfreeze.format.sealed_json import KEY, seal, unseal
from deepfreeze.format.strict_json import Fields, is_printable, short

FORMAT = 1
MAX_MARKS = 64 << 20  # bytes, enough for a hundred thousand checkpoints: a bound on what a reader allocates
MAX_TAG = 4096  # bytes of a tag's file


@dataclass(frozen=True)
class Mark:
    """What is known of one committed checkpoint. ``time``: of the commit, in seconds since 1970, UTC; ``diverged``: whether the ranks'
    weights differed; ``epoch``, ``measured`` and ``metrics``: as in ``store.retention.Committed``; ``reason``: why it stays, as text."""

    step: int
    attempt: str
    time: int
    diverged: bool = False
    epoch: int | None = None
    measured: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class MarksFile:
    """The content of marks.json. ``rule``: the retention rule of the job that wrote it, as text; ``removing``: the steps of checkpoints
    that may be going at this moment; ``marks``: one for each checkpoint, sorted by step."""

    run_id: str
    rule: str = ""
    removing: tuple[int, ...] = ()
    marks: tuple[Mark, ...] = ()

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        top = {"format": FORMAT, "run_id": self.run_id, "rule": self.rule, "removing": list(self.removing)}
        return seal(json.dumps(top | {"checkpoints": [_mark_to_json(mark) for mark in self.marks]}).removesuffix("}"))

    @classmethod
    def from_bytes(cls, data: bytes, where: object) -> MarksFile:
        """Parses the file's bytes. CorruptError (at ``where``) if they are damaged, NewerError if a newer version wrote them."""
        top = unseal(data, where, MAX_MARKS)
        top.version(FORMAT)
        top.keys("format", "run_id", "rule", "removing", "checkpoints", KEY)
        marks = tuple(
            _mark(Fields(one, where, f"checkpoints[{number}]")) for number, one in enumerate(top.items("checkpoints"))
        )
        removing = Fields({str(n): step for n, step in enumerate(top.items("removing"))}, where, "removing")
        steps = tuple(removing.integer(key) for key in removing.plain())
        rule = "" if top.plain()["rule"] == "" else top.text("rule")
        return cls(top.hexadecimal("run_id", 32), rule, steps, marks)


def _mark_to_json(mark: Mark) -> dict[str, Any]:
    value: dict[str, Any] = {"step": mark.step, "attempt": mark.attempt, "time": mark.time, "diverged": mark.diverged}
    optional = {"epoch": mark.epoch, "measured": mark.measured, "reason": mark.reason or None}
    metrics = {name: value for name, value in mark.metrics.items() if math.isfinite(value)}
    return value | {name: own for name, own in (optional | {"metrics": metrics or None}).items() if own is not None}


def _mark(fields: Fields) -> Mark:
    given = fields.plain()
    optional = [name for name in ("epoch", "measured", "reason", "metrics") if name in given]
    fields.keys("step", "attempt", "time", "diverged", *optional)
    diverged = given["diverged"]
    if not isinstance(diverged, bool):
        raise fields.error("diverged to be true or false", repr(diverged)[:80])
    metrics = fields.child("metrics") if "metrics" in given else Fields({}, fields.where)
    for name in metrics.plain():
        if not is_printable(name):
            raise fields.error("metrics with printable names", short(name))
    return Mark(
        step=fields.integer("step"),
        attempt=fields.hexadecimal("attempt", 32),
        time=fields.integer("time"),
        diverged=diverged,
        epoch=fields.integer("epoch") if "epoch" in given else None,
        measured=fields.integer("measured") if "measured" in given else None,
        metrics={name: metrics.number(name) for name in metrics.plain()},
        reason=fields.text("reason") if "reason" in given else "",
    )


@dataclass(frozen=True)
class TagFile:
    """The content of ``tags/NAME``: the checkpoint that has the tag."""

    run_id: str
    step: int
    attempt: str

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        value = {"format": FORMAT, "run_id": self.run_id, "step": self.step, "attempt": self.attempt}
        return seal(json.dumps(value).removesuffix("}"))

    @classmethod
    def from_bytes(cls, data: bytes, where: object) -> TagFile:
        """Parses the file's bytes. CorruptError (at ``where``) if they are damaged, NewerError if a newer version wrote them."""
        top = unseal(data, where, MAX_TAG)
        top.version(FORMAT)
        top.keys("format", "run_id", "step", "attempt", KEY)
        return cls(top.hexadecimal("run_id", 32), top.integer("step"), top.hexadecimal("attempt", 32))
