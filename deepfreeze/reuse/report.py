"""What ``transfer`` did, or in a dry run would do: for programs as fields and JSON, for people as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deepfreeze.store.catalog import CheckpointInfo

_MOST_ROWS = 200  # of one kind in the table; a ResNet-50 has 107 layers
_KINDS = ("loaded", "mismatched", "skipped", "missing", "untouched")


@dataclass(frozen=True)
class Matched:
    """A weight of the checkpoint (``name``, ``dtype``, ``shape``, ``nbytes`` there) and the variable of the model that it is
    for (``target``, ``target_dtype``, ``target_shape``)."""

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
class Skipped:
    """A weight of the checkpoint that is not for this model, and the ``reason``: "excluded" or "not included" (by the
    caller), or "not in the model"."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    reason: str


@dataclass(frozen=True)
class TransferReport:
    """Every weight of the checkpoint is in one of ``loaded``, ``mismatched`` and ``skipped``, in the file's order; every
    weight of the model that was not loaded is named in one of ``mismatched``, ``missing`` and ``untouched``.

    ``loaded``: given to the model (in a dry run: would be). ``mismatched``: of another shape or kind in the model, and left
    alone. ``skipped``: not asked for, or not in the model. ``missing``: the model's names of what was asked for and is not in
    the checkpoint. ``untouched``: the model's names of what was not asked for. ``info``: the checkpoint. ``str()`` is a
    table with a row for each layer.
    """

    info: CheckpointInfo
    dry_run: bool
    loaded: tuple[Matched, ...]
    mismatched: tuple[Matched, ...]
    skipped: tuple[Skipped, ...]
    missing: tuple[str, ...]
    untouched: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the checkpoint's weights that were read (in a dry run: would be)."""
        return sum(one.nbytes for one in self.loaded)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, all fields and ``nbytes``."""
        info = {**asdict(self.info), "run": str(self.info.run), "path": str(self.info.path)}
        weights = {kind: [asdict(one) for one in getattr(self, kind)] for kind in ("loaded", "mismatched", "skipped")}
        for one in weights["loaded"] + weights["mismatched"]:
            one.update(shape=list(one["shape"]), target_shape=list(one["target_shape"]))
        for one in weights["skipped"]:
            one.update(shape=list(one["shape"]))
        names = {"missing": list(self.missing), "untouched": list(self.untouched)}
        return {"info": info, "dry_run": self.dry_run, "nbytes": self.nbytes, **weights, **names}

    def __str__(self) -> str:
        what = "dry run, nothing read or changed" if self.dry_run else f"{_size(self.nbytes)} read"
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
        """One for each layer and what became of it; mismatches one by one."""
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
        parts = zip(_KINDS, (loaded, mismatched, skipped, missing, untouched), strict=True)
        return [row for kind, items in parts for row in _grouped(kind, items)]


def _grouped(kind: str, items: Iterable[tuple[tuple[str, str, str], int]]) -> list[tuple[str, str, str, str, str, str]]:
    groups: dict[tuple[str, str, str], list[int]] = {}
    for key, nbytes in items:
        groups.setdefault(key, []).append(nbytes)
    rows = [
        (kind, saved, own, str(len(sizes)), _size(sum(sizes)) if saved else "", note)
        for (saved, own, note), sizes in groups.items()
    ]
    more = len(rows) - _MOST_ROWS
    return rows if more <= 0 else [*rows[:_MOST_ROWS], (kind, f"and {more} more", "", "", "", "")]


def _layer(name: str) -> str:
    """What a weight belongs to; a model's own weights have no layer."""
    return name.rpartition("/")[0] or name


def _size(nbytes: int) -> str:
    size = float(nbytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def listed(texts: Sequence[str], most: int = 10) -> str:
    """The first ``most`` of some texts, and how many more there are, for a message."""
    more = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more
