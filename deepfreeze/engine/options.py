"""The options of an engine: ``deepfreeze.Engine``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deepfreeze import arguments
from deepfreeze.errors import OptionError

# Name -> (least value, greatest value, a number that divides the value). The bounds keep a value within the engine's 32 bits, in which
# 2**32 + 1 would become 1.
MOST_IN_FLIGHT = 1024
# Transfers of an engine whose settings are tried: its search ends before it comes to more.
MOST_TUNED = 8
_ENGINE_NUMBERS: dict[str, tuple[int, int, int]] = {
    "in_flight": (1, MOST_IN_FLIGHT, 1),
    "slots": (1, 1024, 1),
    "writers": (1, 256, 1),
    "chunk_bytes": (4096, 1 << 30, 4096),
    "nice": (0, 19, 1),
    "transfers": (1, 64, 1),
}

# Numbers that may be None: they follow from ``memory=`` then, and are these without it.
_COUNTS = {"in_flight": 2, "slots": 2}


@arguments.suggesting
@dataclass(frozen=True, kw_only=True)
class Engine:
    """How each rank's engine works: ``Checkpoint(..., engine=deepfreeze.Engine(writers=4))``.

    Args:
        in_flight: how many checkpoints may have shards in this rank's memory at once; when another one is due, training waits. None: 2, or
            what ``memory=`` allows.
        slots: how many checkpoints of each rank may lie on the local tier. None: 2, or where slots are memory what ``memory=`` allows.
        writers: how many threads of each rank write; a quarter of them, at least 2, may copy or checksum at a time.
        chunk_bytes: how many bytes are copied and written at a time; a multiple of 4096.
        nice: the niceness of the engine's threads, 0 to 19: with a higher one they leave more of the processor to training.
        rate: how many bytes per second each node writes to the external store at most, so that others can use it too; its ranks have equal
            parts. Bursts are a second's bytes at most. None: as many as the store takes.
        uncommitted: how many checkpoints may be captured and not yet committed (or failed); when another one is due, ``when_full`` says
            what happens. With 1 a kill loses one checkpoint at most, and so two intervals of steps at most, and one more for each
            checkpoint that was skipped (CheckFreq, FAST 2021, section 4.2). None: as many as ``in_flight`` (or ``memory=``) and ``slots``
            allow.
        transfers: how many checkpoints each rank writes to the external store at once, each with its share of the ``writers``. With 1 the
            oldest one is safe soonest, which is right where one fills the store. With more a newer one may be committed before an older
            one: that is right where each call of the store has a long way. At most ``uncommitted``, if that is given.
        io: how the external store is written to. "direct": past the page cache (O_DIRECT), where the file system can do that; "buffered":
            through it; "auto": a short probe at the start of a training chooses the faster one, of checkpoints of 64 MiB or more.
        when_full: "wait": training waits while there is no room for another checkpoint. "skip": if some rank has no room for a checkpoint,
            all ranks skip it. "replace": the newest checkpoint on its way gives way to the one that is due, if no rank has begun to write
            it to the external store and it is not the oldest, an epoch's last one, or one that was asked for; else all ranks skip the one
            that is due (PCcheck, ASPLOS 2025, keeps the newest).

    Raises ``OptionError``.
    """

    in_flight: int | None = None
    slots: int | None = None
    writers: int = 8
    chunk_bytes: int = 4 << 20
    nice: int = 10
    rate: int | None = None
    uncommitted: int | None = None
    transfers: int = 1
    io: str = "auto"
    when_full: str = "wait"

    def __post_init__(self) -> None:
        for name, (low, high, multiple_of) in _ENGINE_NUMBERS.items():
            if getattr(self, name) is None and name in _COUNTS:
                continue
            otherwise = ", or None" if name in _COUNTS else ""
            value = arguments.whole_number(f"Engine({name}=)", getattr(self, name), low, high, multiple_of, otherwise)
            object.__setattr__(self, name, value)  # an int also where numpy's number was passed
        if self.rate is not None:
            rate = arguments.whole_number("Engine(rate=)", self.rate, 1 << 20, 1 << 50, otherwise=", or None")
            object.__setattr__(self, "rate", rate)
        if self.uncommitted is not None:
            most = arguments.whole_number("Engine(uncommitted=)", self.uncommitted, 1, 2048, otherwise=", or None")
            object.__setattr__(self, "uncommitted", most)
        arguments.one_of("Engine(io=)", self.io, ("auto", "direct", "buffered"))
        arguments.one_of("Engine(when_full=)", self.when_full, ("wait", "skip", "replace"))
        if self.uncommitted is not None and self.transfers > self.uncommitted:
            raise OptionError(
                where="Engine(transfers=)",
                expected=f"at most uncommitted={self.uncommitted}",
                found=str(self.transfers),
                todo="lower transfers=, or raise uncommitted=: no more checkpoints are written at once than may be uncommitted",
            )
        if self.when_full == "replace" and self.uncommitted is not None and self.uncommitted <= self.transfers:
            raise OptionError(
                where='Engine(when_full="replace")',
                expected=f"uncommitted= more than transfers={self.transfers}",
                found=f"uncommitted={self.uncommitted}",
                todo='raise uncommitted=, or pass when_full="skip": only a checkpoint that waits to be written can be given up',
            )

    def counted(self) -> Engine:
        """The same, with the numbers of captures and slots that hold where none are given."""
        return replace(self, in_flight=self.in_flight or _COUNTS["in_flight"], slots=self.slots or _COUNTS["slots"])

    def rate_of_rank(self, ranks: int) -> int:
        """The part of ``rate`` that each of ``ranks`` ranks on a node has, in bytes per second; 0 if there is no bound."""
        return 0 if self.rate is None else max(1, self.rate // ranks)
