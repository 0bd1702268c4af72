"""CANDLE's checkpoint parameters as options of ``deepfreeze.Checkpoint``. Pure: nothing is read or written here.

The parameters are those of candle_lib's ``ckpt_utils``. A parameter that is missing, or None, has CANDLE's default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepfreeze import arguments
from deepfreeze.errors import OptionError
from deepfreeze.plan.every import EveryEpoch, EverySteps
from deepfreeze.plan.never import Never
from deepfreeze.plan.policy import Policy
from deepfreeze.store.rules import Best, Epochs, Latest, Rule, Spaced

_KEEP_LIMIT = 1_000_000  # CANDLE's default, by which no checkpoint ever goes
_MOST = 2**31 - 1
# The metrics that CANDLE knows, and whether a smaller or a greater value is better.
_MODES = {"loss": "min", "accuracy": "max", "val_loss": "min", "val_accuracy": "max", "lr": "min"}
_WORDS = dict.fromkeys(("yes", "true", "t", "y", "1"), True) | dict.fromkeys(("no", "false", "f", "n", "0"), False)
_READ = {
    "ckpt_checksum", "ckpt_directory", "ckpt_keep_limit", "ckpt_keep_mode", "ckpt_metadata", "ckpt_restart_mode",
    "ckpt_save_best", "ckpt_save_best_metric", "ckpt_save_interval", "ckpt_save_weights_only", "ckpt_skip_epochs",
}  # fmt: skip


@dataclass(frozen=True)
class Translated:
    """Options of ``deepfreeze.Checkpoint``. ``run``: the run directory; ``options``: the others, by name; ``left_out``: the checkpoint
    parameters without a counterpart, as text."""

    run: str
    options: Mapping[str, Any]
    left_out: tuple[str, ...]


def translated(params: Any, steps_per_epoch: int | None = None) -> Translated:
    """The options that CANDLE's parameters stand for. ``params``: a mapping of names to values, of which only those of checkpoints are
    looked at; ``steps_per_epoch``: optimizer steps of an epoch, None to have ``fit`` say where epochs end. ``OptionError`` for a value that
    a parameter can't have."""
    expected = "a mapping of names to values, such as the dictionary that candle.finalize_parameters returns"
    arguments.require("params", params, isinstance(params, Mapping), expected)
    if steps_per_epoch is not None:
        steps_per_epoch = arguments.whole_number("steps_per_epoch=", steps_per_epoch, 1, _MOST)
    given = {name: value for name, value in params.items() if value is not None}
    options: dict[str, Any] = {
        "resume": _word(given, "ckpt_restart_mode", "auto", ("off", "auto", "required")),
        "state": "weights" if _boolean(given, "ckpt_save_weights_only", False) else "full",
        **_saving(given, steps_per_epoch),
    }
    # CANDLE's own code reads the second name, its documentation has the first.
    note = str(given.get("ckpt_metadata", given.get("metadata", "")))
    if note:
        options["metadata"] = {"metadata": note}
    _boolean(given, "ckpt_checksum", True)  # checksums are always on
    left_out = [name for name in given if str(name).startswith("ckpt_") and name not in _READ]
    if _word(given, "ckpt_keep_mode", "linear", ("linear", "all", "exponential")) == "exponential":
        left_out.append('ckpt_keep_mode="exponential"')
    return Translated(_run(given), options, tuple(left_out))


def _saving(given: Mapping[str, Any], steps: int | None) -> dict[str, Any]:
    """When a checkpoint is taken, and which ones stay. CANDLE also saves an epoch in which the metric has improved. The metric is known
    after the capture only: so each epoch is saved, and those stay that CANDLE would have saved."""
    interval = _number(given, "ckpt_save_interval", 1, low=0)
    skip = _number(given, "ckpt_skip_epochs", 0, low=0)
    limit = _number(given, "ckpt_keep_limit", _KEEP_LIMIT, low=1)
    best = _best(given) if _boolean(given, "ckpt_save_best", True) else None
    if interval == 0:
        # Nothing is saved, whatever ends the training, and nothing of earlier jobs goes.
        return {"every": Never(), "final": False, "signals": (), "ends_at": None, "keep": Latest(_KEEP_LIMIT)}
    if best is None:
        return {"every": _every(interval, skip, steps), "keep": Latest(limit)}
    return {"every": _every(1, skip, steps), "keep": Latest(limit, of=_each(interval, steps)) | best}


def _every(epochs: int, skip: int, steps: int | None) -> Policy:
    return EveryEpoch(epochs, skip) if steps is None else EverySteps(epochs * steps, skip * steps)


def _each(interval: int, steps: int | None) -> Rule | None:
    """The rule that wants one checkpoint for each ``interval`` epochs; None if all checkpoints are such."""
    if interval == 1:
        return None
    return Epochs(interval) if steps is None else Spaced(steps=interval * steps)


def _best(given: Mapping[str, Any]) -> Best:
    metric = given.get("ckpt_save_best_metric", "val_loss")
    if not isinstance(metric, str) or metric not in _MODES:
        raise OptionError(
            where=_where("ckpt_save_best_metric"),
            expected=f"a metric that CANDLE knows: {', '.join(_MODES)}",
            found=repr(metric)[:200],
            todo=f'set {_where("ckpt_save_best")} to False, and pass every="epoch" and keep=Latest(2) | Best(metric, "min" or "max")',
        )
    return Best(metric, _MODES[metric])


def _run(given: Mapping[str, Any]) -> str:
    """CANDLE's directory of checkpoints. A relative one is in the output directory, which has the experiment's and the run's id."""
    parts = [given.get("output_dir", ""), given.get("ckpt_directory", "save")]
    for name, value in zip(("output_dir", "ckpt_directory"), parts, strict=True):
        arguments.require(_where(name), value, isinstance(value, (str, os.PathLike)), "a path")
    return os.path.join(*map(os.fspath, parts))


def _number(given: Mapping[str, Any], name: str, default: int, low: int) -> int:
    value = given.get(name, default)
    if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
        value = int(value)
    return arguments.whole_number(_where(name), value, low, _MOST)


def _boolean(given: Mapping[str, Any], name: str, default: bool) -> bool:
    value = given.get(name, default)
    found = _WORDS.get(value.lower()) if isinstance(value, str) else value
    expected = f"True or False, or a word for one of them: {', '.join(_WORDS)}"
    arguments.require(_where(name), value, isinstance(found, bool), expected)
    return bool(found)


def _word(given: Mapping[str, Any], name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = given.get(name, default)
    found = value.lower() if isinstance(value, str) else value  # older versions of CANDLE had capitals
    arguments.require(_where(name), value, found in allowed, "one of " + ", ".join(map(repr, allowed)))
    return str(found)


def _where(name: str) -> str:
    return f'params["{name}"]'
