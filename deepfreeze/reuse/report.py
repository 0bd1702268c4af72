"""The report of a ``transfer``, or of its dry run: fields and JSON for programs, a table for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deepfreeze import wording
from deepfreeze.store.catalog import CheckpointInfo

_MOST_ROWS = 200  # of each kind in the table; ResNet-50, which has 107 layers, is shown whole
_KINDS = ("loaded", "mismatched", "skipped", "missing", "untouched")


@dataclass(frozen=True)
class Matched:
    """A weight of the checkpoint and the variable of the model that has its name. ``name``, ``dtype``, ``shape``, ``nbytes`` (bytes): in
    the checkpoint; ``target``, ``target_dtype``, ``target_shape``: the name, dtype and shape of the variable."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    target: str
    target_dtype: str
    target_shape: tuple[int, ...]

    @property
    def cast(self) -> bool:
        """Whether the values are converted, from one floating-point type to another."""
        return self.dtype != self.target_dtype

    def __str__(self) -> str:
        target = "" if self.target == self.name else f"{self.target} "
        saved, own = f"{self.dtype}{list(self.shape)}", f"{self.target_dtype}{list(self.target_shape)}"
        return f"{self.name} is {saved} in the checkpoint and {target}{own} in the model"


@dataclass(frozen=True)
class NotCopied:
    """A weight of the checkpoint that was not copied. ``reason``: "excluded" or "not included" (by the options ``exclude`` and
    ``include``), or "not in the model"."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    reason: str


@dataclass(frozen=True)
class TransferReport:
    """What ``transfer`` did with each weight, or in a dry run would do. ``str()`` is a table with a row for each layer.

    Every weight of the checkpoint is in one of the first three fields, in the order of the model file. Every weight of the model is in
    one of ``loaded``, ``mismatched``, ``missing`` and ``untouched``.

    - ``loaded``: the weights that were copied into the model.
    - ``mismatched``: weights that have another shape or dtype in the model, and were not copied.
    - ``skipped``: weights of the checkpoint that were not chosen, or that the model does not have.
    - ``missing``: names of the model's weights that were chosen and that the checkpoint does not have.
    - ``untouched``: names of the model's weights that were not chosen.
    - ``info``: the checkpoint. ``dry_run``: True if nothing was read or changed.
    """

    info: CheckpointInfo
    dry_run: bool
    loaded: tuple[Matched, ...]
    mismatched: tuple[Matched, ...]
    skipped: tuple[NotCopied, ...]
    missing: tuple[str, ...]
    untouched: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the checkpoint's weights that were copied, or in a dry run would be."""
        return sum(matched.nbytes for matched in self.loaded)

    def to_json(self) -> dict[str, Any]:
        """All fields and ``nbytes`` as plain JSON values."""
        info = {**asdict(self.info), "run": str(self.info.run), "path": str(self.info.path)}
        weights = {kind: [asdict(one) for one in getattr(self, kind)] for kind in ("loaded", "mismatched", "skipped")}
        for one in weights["loaded"] + weights["mismatched"]:
            one.update(shape=list(one["shape"]), target_shape=list(one["target_shape"]))
        for one in weights["skipped"]:
            one.update(shape=list(one["shape"]))
        names = {"missing": list(self.missing), "untouched": list(self.untouched)}
        return {"info": info, "dry_run": self.dry_run, "nbytes": self.nbytes, **weights, **names}

    def __str__(self) -> str:
        what = "dry run, nothing read or changed" if self.dry_run else f"{wording.size(self.nbytes)} read"
        counts = ", ".join(f"{len(getattr(self, kind))} {kind}" for kind in _KINDS if getattr(self, kind))
        title = f"{self.info.run}@{self.info.step}: {counts} ({what})"
        rows = [("", "checkpoint", "model", "weights", "size", ""), *self._rows()]
        widths = [max(len(row[n]) for row in rows) for n in range(5)]
        lines = []
        for row in rows:
            cells = [text.rjust(width) if n in (3, 4) else text.ljust(width)
                     for n, (text, width) in enumerate(zip(row, widths, strict=False))]  # fmt: skip
            lines.append("  ".join([*cells, row[5]]).rstrip())
        return "\n".join([title, *lines])

    def _rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """(kind, name in the checkpoint, name in the model, number of weights, size, note) of each row: a row for each layer and kind, and
        for each mismatched weight."""
        loaded = [
            (
                (_layer(one.name), _layer(one.target), f"{one.dtype} to {one.target_dtype}" if one.cast else ""),
                one.nbytes,
            )
            for one in self.loaded
        ]
        mismatched = [
            (
                (
                    one.name,
                    one.target,
                    f"{one.dtype}{list(one.shape)}, in the model {one.target_dtype}{list(one.target_shape)}",
                ),
                one.nbytes,
            )
            for one in self.mismatched
        ]
        skipped = [((_layer(one.name), "", one.reason), one.nbytes) for one in self.skipped]
        missing = [(("", _layer(name), "not in the checkpoint"), 0) for name in self.missing]
        untouched = [(("", _layer(name), "not asked for"), 0) for name in self.untouched]
        kinds = zip(_KINDS, (loaded, mismatched, skipped, missing, untouched), strict=True)
        return [row for kind, items in kinds for row in _grouped(kind, items)]


def _grouped(kind: str, items: Iterable[tuple[tuple[str, str, str], int]]) -> list[tuple[str, str, str, str, str, str]]:
    """The rows of one kind. ``items``: ((name in the checkpoint, name in the model, note), bytes) of each weight; those with the same
    three texts make one row."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for key, nbytes in items:
        groups.setdefault(key, []).append(nbytes)
    rows = [
        (kind, saved, own, str(len(sizes)), wording.size(sum(sizes)) if saved else "", note)
        for (saved, own, note), sizes in groups.items()
    ]
    more = len(rows) - _MOST_ROWS
    return rows if more <= 0 else [*rows[:_MOST_ROWS], (kind, f"and {more} more", "", "", "", "")]


def _layer(name: str) -> str:
    """The name of a weight's layer; of a weight that belongs to no layer its own name."""
    return name.rpartition("/")[0] or name


def listed(texts: Sequence[str], most: int = 10) -> str:
    """The first ``most`` texts, and how many more there are, as one text for a message."""
    more = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more
