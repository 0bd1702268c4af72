"""The choice of the way to the external store: past the page cache, or through it (``Engine(io=)``)."""

from __future__ import annotations

from deepfreeze.engine.backends import table
from deepfreeze.engine.faults import EngineFault, LibraryError
from deepfreeze.engine.options import Engine
from deepfreeze.notices import Notify
from deepfreeze.process_state import PROCESS

DIRECT, BUFFERED = "direct", "buffered"
_PROBE_BYTES = 64 << 20
_PROBE_SECONDS = 1.0
# The page cache takes more of the processor and of memory, so it must be faster by more than noise.
_FASTER = 1.1


def choose(engine: Engine, run: str, file_size: int, notify: Notify) -> str:
    """``DIRECT`` or ``BUFFERED``. With "auto" a probe decides, which writes 64 MiB to the directory ``run``, in about a second at most.
    Before checkpoints of fewer bytes (``file_size``), and with a ``rate``, it is left out, and the answer is ``DIRECT``: the engine itself
    goes through the page cache where the file system can't do otherwise. ``notify``: is told if it is ``BUFFERED``."""
    if engine.io != "auto":
        return engine.io
    if engine.rate is not None or file_size < _PROBE_BYTES or 6 * engine.chunk_bytes > _PROBE_BYTES:
        return DIRECT
    key = run, engine.writers, engine.chunk_bytes
    if key not in PROCESS.ways:
        PROCESS.ways[key] = _probe(engine, run, notify)
    return PROCESS.ways[key]


def _probe(engine: Engine, run: str, notify: Notify) -> str:
    probe = table.chosen().can.probe
    if probe is None:
        return DIRECT
    try:
        direct, cached = probe(run, engine.writers, _PROBE_BYTES, engine.chunk_bytes, _PROBE_SECONDS)
    except (EngineFault, LibraryError):
        return DIRECT  # the first checkpoint says what is wrong with the store
    if not direct or cached < _FASTER * direct:
        return DIRECT
    rates = f"{cached / 1e6:.0f} MB/s, and past it {direct / 1e6:.0f} MB/s"
    notify("info", f"{run}: checkpoints are written through the page cache, which takes {rates} (Engine(io=))")
    return BUFFERED
