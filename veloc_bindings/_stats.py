"""The engine's counters (``df_stats``) as plain values, which JSON can hold."""

from __future__ import annotations

from typing import Any

from ._table import CStats

_PLACES = ("external", "local")


def as_dict(stats: CStats) -> dict[str, Any]:
    """See ``EmbeddedEngine.stats``."""
    found: dict[str, Any] = {place: {} for place in _PLACES}
    for name in (field[0] for field in CStats._fields_[2:-1]):
        value = getattr(stats, name)
        place, _, rest = name.partition("_")
        if place in _PLACES:
            found[place][rest] = value
        elif name.endswith("_us"):
            found[name.removesuffix("_us") + "_s"] = value / 1e6
        else:
            found[name] = value
    found["threads"] = {one.name.decode(): round(one.cpu_s, 6) for one in stats.thread[: stats.threads]}
    return found
