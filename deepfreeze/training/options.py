"""The options of ``deepfreeze.Checkpoint`` and ``deepfreeze.capture``. They are checked before a run or a model is touched."""

from __future__ import annotations

import difflib
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

from deepfreeze import arguments
from deepfreeze.engine.options import Engine
from deepfreeze.errors import OptionError
from deepfreeze.events.events import Listener, as_listener
from deepfreeze.format.attachment_tree import OWN
from deepfreeze.format.levels import LEVELS
from deepfreeze.format.manifest_values import MAX_METADATA
from deepfreeze.freeze.settings import Replicas, SaverSettings
from deepfreeze.launch import time_to_come
from deepfreeze.plan.late_groups import UPDATE, WHEN
from deepfreeze.plan.placement import PLACEMENTS
from deepfreeze.state import attachments
from deepfreeze.state.keras_objects import is_optimizer
from deepfreeze.store.retention import text_of
from deepfreeze.store.rules import as_rule
from deepfreeze.training.input import is_input


@arguments.suggesting
@dataclass(frozen=True, kw_only=True)
class Capture:
    """How the training state is captured: ``Checkpoint(..., capture=deepfreeze.Capture(path="graph"))``.

    Args:
        path: "auto": captures are copied into the engine's memory if TensorFlow lets the engine register its op; "graph": TensorFlow's
            own ops copy them into TensorFlow's memory.
        placement: "per_layer": each rank's share is spread over the layers; "contiguous": each rank writes one range of the file.
        when: "update": a tensor is copied when its own step has updated it; "late": it is copied beside the forward and backward pass of
            the next step, and that step's update of the tensor waits for the copy; "auto": late for the tensors that are updated in the
            last fifth of a step. A late checkpoint is handed to the engine one step later, so a kill loses one step more. "late" is
            for a large first layer, for ``global_clipnorm`` and for gradient accumulation, where nothing of its own step is left beside
            which a copy could run. It has no effect on captures by TensorFlow's own ops, or between two executions.
        profile: measures the training's step, from its sixth step on until three checkpoints were captured and 30 more steps are done, and
            works out when each part of a checkpoint could be copied and written within the step, so that copies hold as little memory as
            can be. ``deepfreeze plan RUN --schedule`` shows it. Training goes on as before. Wants ``pip install "deepfreeze[plan]"``.

    Raises ``OptionError``.
    """

    path: str = "auto"
    placement: str = "per_layer"
    when: str = UPDATE
    profile: bool = False

    def __post_init__(self) -> None:
        arguments.one_of("Capture(path=)", self.path, ("auto", "graph"))
        arguments.one_of("Capture(placement=)", self.placement, PLACEMENTS)
        arguments.one_of("Capture(when=)", self.when, WHEN)
        arguments.one_of("Capture(profile=)", self.profile, (True, False))


@dataclass(frozen=True)
class Options:
    """The options, with their defaults. ``deepfreeze.Checkpoint`` describes them. ``of`` makes a rule of ``keep``."""

    resume: str = "auto"
    keep: Any = 2
    keep_pending: int = 4
    storage: Any = None
    memory: Any = None
    wait_for: str = "captured"
    local: str | os.PathLike | None = "auto"
    on_error: str = "raise"
    final: bool = True
    state: str = "full"
    extra: Any = None
    rng: str | None = None
    data: Any = None
    resume_epochs: bool = True
    metadata: Any = None
    optimizer: Any = None
    save_config: bool = True
    signals: Sequence[Any] = ("SIGTERM",)
    ends_at: Any = "auto"
    verbose: int = 1
    logs: bool = False
    timeout: float = 600.0
    engine: Engine = Engine()
    replicas: Replicas = Replicas()
    capture: Capture = Capture()
    listeners: Sequence[Any] = ()
    world: Any = None

    @staticmethod
    def of(**given: Any) -> Options:
        """The options with the values ``given``, by name. numpy's numbers become Python's own, and ``local`` becomes an absolute path.
        ``OptionError`` for an unknown name (the message has the nearest known one) and for a value that an option can't have."""
        known = {field.name: field.default for field in fields(Options)}
        for name in given:
            if name not in known:
                raise _unknown(name, ["every", *known])
        made: dict[str, Any] = known | given
        for name, allowed in _CHOICES.items():
            arguments.one_of(f"{name}=", made[name], allowed)
        for name, kind in _OF_PARTS.items():
            expected = (
                f"a deepfreeze.{kind.__name__}, for example deepfreeze.{kind.__name__}({fields(kind)[0].name}=...)"
            )
            arguments.require(f"{name}=", made[name], isinstance(made[name], kind), expected)
        made["keep"] = as_rule(made["keep"])
        made["keep_pending"] = arguments.whole_number("keep_pending=", made["keep_pending"], 0, 1024)
        # Users of Keras are used to verbose=True and verbose=False.
        verbose = int(made["verbose"]) if isinstance(made["verbose"], bool) else made["verbose"]
        made["verbose"] = arguments.whole_number("verbose=", verbose, 0, 1)
        if made["storage"] is not None:
            made["storage"] = arguments.size("storage=", made["storage"])
        if made["memory"] is not None:
            made["memory"] = arguments.size("memory=", made["memory"])
            _refuse_counts(made["engine"])
        made["timeout"] = arguments.seconds("timeout=", made["timeout"])
        made["listeners"] = _listeners(made["listeners"])
        made["signals"] = _signals(made["signals"])
        made["ends_at"] = _ends_at(made["ends_at"])
        arguments.require("extra=", made["extra"], _is_named(made["extra"]), "a mapping of names to objects")
        own = [name for name in made["extra"] or () if name.startswith(OWN)]
        arguments.require(
            "extra=", own, not own, f'names that do not begin with "{OWN}", as those of DeepFreeze\'s own states do'
        )
        arguments.require("data=", made["data"], made["data"] is None or is_input(made["data"]), _INPUT)
        if made["data"] is not None and not made["resume_epochs"]:
            todo = "leave resume_epochs=False out, or data="
            raise OptionError(where="data=", expected="resume_epochs=True", found="resume_epochs=False", todo=todo)
        made["metadata"] = _metadata(made["metadata"])
        expected = "one of the model's own optimizers, model.generator_optimizer for example"
        good = made["optimizer"] is None or is_optimizer(made["optimizer"])
        arguments.require("optimizer=", made["optimizer"], good, expected)
        arguments.require("local=", made["local"], _is_local(made["local"]), '"auto", a directory or None')
        if made["local"] not in (None, "auto"):
            # Made absolute now, because the program may change its working directory later.
            made["local"] = os.path.abspath(made["local"])
        return Options(**made)

    def shared(self) -> dict[str, str]:
        """The values that must be the same on all ranks, by name ("keep", "engine.slots"), as text. Of ``local`` only whether there is a
        local tier (its path may differ between nodes), and of ``extra`` only the names and the kinds of the objects."""
        kinds = {name: attachments.kind(thing) for name, thing in sorted((self.extra or {}).items())}
        found = {"local": "None" if self.local is None else "given", "extra": repr(kinds)}
        for name in (field.name for field in fields(self) if field.name not in _PER_RANK):
            value = getattr(self, name)
            if isinstance(value, Engine) and self.memory is None:
                value = value.counted()  # a rank that gives the default number agrees with one that gives none
            if name in _OF_PARTS:
                found |= {f"{name}.{field.name}": repr(getattr(value, field.name)) for field in fields(value)}
            else:
                found[name] = text_of(value) if name == "keep" else repr(value)
        return found

    def saver(self) -> SaverSettings:
        """The options that the saver and its engine are given."""
        return SaverSettings(
            **{field.name: getattr(self, field.name) for field in fields(SaverSettings) if field.name != "tuned"}
        )

    def with_optimizer(self, optimizer: Any) -> Options:
        """The same options, with ``optimizer`` as the one whose updates are the steps."""
        return replace(self, optimizer=optimizer)


# Options that may differ between ranks, or are objects without a text to compare.
_PER_RANK = frozenset(
    {"ends_at", "local", "world", "optimizer", "extra", "data", "verbose", "logs", "listeners", "metadata"}
)
_OF_PARTS: dict[str, Any] = {"engine": Engine, "replicas": Replicas, "capture": Capture}
_CHOICES: dict[str, tuple] = {
    "resume": ("auto", "required", "off"),
    "wait_for": tuple(LEVELS),
    "on_error": ("raise", "warn"),
    "final": (True, False),
    "state": ("full", "weights"),
    "rng": (None, "all"),
    "save_config": (True, False),
    "resume_epochs": (True, False),
    "logs": (True, False),
}
_NOT_HERE = 'not here (see "Coming from Keras\'s ModelCheckpoint" in the guide): '
# Advice for a user who passes an option of a part by itself, or an option of another library.
_ADVICE = {
    field.name: f"pass {name}=deepfreeze.{kind.__name__}({field.name}=...)"
    for name, kind in _OF_PARTS.items()
    for field in fields(kind)
    if field.name != "every"
} | {
    "filepath": _NOT_HERE + "run= names the directory of the run",
    "path": "did you mean run=, or capture=deepfreeze.Capture(path=...)",
    "save_freq": "did you mean every=",
    "max_to_keep": "did you mean keep=",
    "save_best_only": _NOT_HERE
    + 'keep=deepfreeze.store.Latest(2) | deepfreeze.store.Best("val_loss", "min") keeps the best one',
    "monitor": _NOT_HERE + 'keep=deepfreeze.store.Best("val_loss", "min") names a metric',
    "mode": _NOT_HERE + 'keep=deepfreeze.store.Best("val_loss", "min") has it',
    "save_weights_only": _NOT_HERE + 'state="weights" saves the weights alone',
}


def _unknown(name: str, known: list[str]) -> OptionError:
    near = difflib.get_close_matches(name, [*known, *_ADVICE], 1)
    todo = _ADVICE.get(name) or (_ADVICE.get(near[0]) if near else None)
    return arguments.unknown(f"{name}=", "Checkpoint", known, todo)


def _refuse_counts(engine: Engine) -> None:
    """``OptionError`` if the engine has a number of captures beside ``memory=``."""
    for name in ("in_flight", "slots"):
        if getattr(engine, name) is not None:
            raise OptionError(
                where=f"memory= and Engine({name}=)",
                expected=f"one of the two: the number of captures in memory, and with it {name}, follows from memory=",
                found="both",
                todo=f"leave Engine({name}=) out, or memory=",
            )


def _is_named(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and all(isinstance(name, str) for name in value))


_INPUT = (
    "an input that knows its place, such as deepfreeze.data.Resumable(x, batch_size=32, seed=1); an IteratorState belongs in "
    "extra= of deepfreeze.capture"
)


def _metadata(value: Any) -> Any:
    """A copy of the user's facts, which may change after this call."""
    expected = f"a mapping of names to text, numbers, True, False, None, or lists and mappings of these; {MAX_METADATA} bytes as JSON"
    try:
        text = None if value is None else json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        text = ""
    good = text is None or (_is_named(value) and 0 < len(text) <= MAX_METADATA)
    arguments.require("metadata=", value, good, expected)
    return None if text is None else json.loads(text)


def _listeners(value: Any) -> tuple[Listener, ...]:
    found = [as_listener(one) for one in value] if isinstance(value, Sequence) else [None]
    expected = "a list of functions of an event, or of objects with a method on(event)"
    arguments.require("listeners=", value, all(one is not None for one in found), expected)
    return tuple(one for one in found if one is not None)


def _signals(value: Any) -> tuple[str, ...]:
    """The names of the signals, without repetitions."""
    good = isinstance(value, Sequence) and not isinstance(value, str)
    arguments.require(
        "signals=", value, good, 'a list of signals, such as ["SIGTERM"] or [signal.SIGUSR2]; [] for none'
    )
    return tuple(dict.fromkeys(arguments.signal_number("signals=", one).name for one in value))


def _ends_at(value: Any) -> Any:
    if value in ("auto", None):
        return value
    good = arguments.is_number(value, Real) and math.isfinite(value)
    arguments.require("ends_at=", value, good, '"auto", None, or a time in Unix seconds, such as time.time() + 3600')
    return time_to_come("ends_at=", float(value), time.time())


def _is_local(value: Any) -> bool:
    # "" is refused: os.path.abspath would make the working directory of it, and the user's shell variable was probably not set.
    return value is None or (isinstance(value, (str, os.PathLike)) and os.fspath(value) not in ("", b""))
