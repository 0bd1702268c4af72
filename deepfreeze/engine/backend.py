"""The protocols of a backend: the part that takes one rank's captures and makes them durable, in the background.

A backend is a folder of ``backends/`` and a row of ``backends/table``. Each has the methods of ``Backend``. What else it can do, its
``BackendCapabilities`` say. ``open_engine`` is the caller of all methods. It keeps memory alive, turns faults into errors, cuts waits so
that Ctrl-C ends them, and does without what a backend can't do: the same for every backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from deepfreeze.engine.options import Engine
from deepfreeze.engine.records import Report, SlotInfo, UnderWay
from deepfreeze.engine.target import Target
from veloc_bindings import Area


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The facts about one rank of one attempt that a backend is opened with. They stay the same until it is closed.

    - ``target``: the run and the attempt. ``structure``: the SHA-256 of the structure, 32 bytes; the run has the structure's file.
    - ``file_size``: bytes of the model file, to which the regions of all ranks add up.
    - ``rank``, ``world``: this rank's number, and the number of ranks. ``node``: the ranks of this rank's node, ascending; empty if
      nobody has said which they are.
    - ``local``: an existing directory on the local tier, None if there is none.
    - ``in_memory``: True if captures will lie in the backend's own memory (``OwnMemory``). False if ``submit`` will be given memory of the
      framework's, or of the tests'.
    - ``hashes``: how many replica checksums (u32 each) end the private bytes. All ranks should have the same ones, except where they are
      all zero. ``on_divergence``: what to do where they differ, "auto", "warn" or "raise" as in ``Replicas``.
    - ``timeout``: how many seconds a checkpoint may wait for another rank that does not move.
    - ``bounded``: rank 0 bounds the bytes of the run. So no other rank writes anything of a step to the run before rank 0 has begun the
      step there.
    - ``one_memory``: ``engine.in_flight`` bounds all captures of this rank, wherever they lie. Otherwise slots in memory are counted apart.
    - ``engine``: the options of this name; ``Engine.counted`` has the numbers that are not given. A backend ignores those that mean nothing
      to it."""

    target: Target
    structure: bytes
    file_size: int
    rank: int = 0
    world: int = 1
    node: tuple[int, ...] = ()
    local: Path | None = None
    in_memory: bool = False
    hashes: int = 0
    on_divergence: str = "warn"
    timeout: float = 600.0
    bounded: bool = False
    one_memory: bool = False
    engine: Engine = Engine().counted()


class Backend(Protocol):
    """One rank's open backend. The training thread calls all methods but ``remove``, one at a time, between two executions of the train
    function. Another thread calls ``remove``, at any time before ``close``. The backend's own threads never call back.

    The order of the calls: the row's ``load`` and ``open``; ``plan`` once; then ``submit``, ``wait``, ``poll`` and ``drain`` any number of
    times; ``close`` last and once, also after an error in any of the others. A training that its user has forgotten is closed by the
    garbage collector, in whichever thread that runs: also in a thread of the backend's own, which can't wait for itself. In a process that
    was forked from the one that opened the backend every method but ``close`` raises the code ``CLOSED``.

    *Faults.* Every method raises ``faults.EngineFault`` alone, with a code and a message that names the file and the system's error. The
    codes (``records``): ``IO`` and ``NO_SPACE`` for an error of the system; ``TIMEOUT`` for a wait that has ended; ``INCOMPLETE`` where
    another rank has failed, or has not come; ``CORRUPT`` for bytes that are not as they were written; ``TAKEN`` where another job has taken
    the run; ``INVALID`` for arguments that break this protocol; ``CLOSED`` behind ``close``. ``Faults`` makes an ``EngineError`` of it,
    whose advice follows from the code. A backend never prints, exits or ends another thread. The failure of a checkpoint is no fault:
    ``poll`` reports it, and ``wait`` for that checkpoint raises it.

    *What all ranks see.* A checkpoint becomes external on all ranks or on none, also where a rank fails, or does not come within
    ``Opening.timeout``.

    *The options* (``Opening.engine``). A backend keeps ``in_flight`` and ``uncommitted``. The others it follows as far as they mean
    something to it: ``rate`` and ``nice`` are what the user allows it to take, ``slots``, ``writers``, ``chunk_bytes``, ``transfers`` and
    ``io`` how it works. ``when_full`` is training's own.

    *Waits.* ``submit``, ``wait``, ``drain`` and ``OwnMemory.reserve`` return or raise within ``timeout`` seconds, because Python handles
    Ctrl-C only between two calls. The caller passes 0 (at once) to 1, and 5 to the ``drain`` before ``close``. At the end of that time they
    raise the code ``TIMEOUT``, with a message that names the rank and the thing that they wait for; nothing has changed then, and the
    caller may repeat the call. The caller goes on for as long as ``idle`` says that something moves. No other method waits."""

    def plan(self, regions: np.ndarray, private_nbytes: int, side_nbytes: int) -> list[int]:
        """Tells, once and before the first capture, which regions every capture will have, so that the backend can prepare memory.

        ``regions``: uint64 of shape (n, 3), with a row of 0, bytes and file offset for each region; sorted by file offset, not
        overlapping, in whole pages of 4096 bytes or up to the end of the file. ``private_nbytes``: private bytes of each checkpoint.
        ``side_nbytes``: bytes of a capture that are in no region.

        Returns, where captures lie in the backend's memory, n + 1 offsets in bytes within the memory of one capture: of each region,
        and of the side bytes. Elsewhere an empty list."""

    def submit(self, step: int, regions: np.ndarray, private: bytes, timeout: float, values: bytes) -> None:
        """Hands over one capture, as the checkpoint of ``step``. Called at most once for a step, in ascending order. Waits while
        ``Engine(in_flight=)`` checkpoints are in memory (not ``released``), or ``Engine(uncommitted=)`` are neither external nor failed;
        after ``TIMEOUT`` the backend has taken nothing.

        ``regions``: as for ``plan``, with the address of each region's bytes instead of 0. The caller guarantees that these bytes stay
        as they are until a report of the step is ``released``, or until ``close`` has returned. ``private``: this rank's private bytes;
        ``values``: its named values as a section (``format/named_values``). The backend copies both, and the rows of ``regions``, and
        returns as soon as the checkpoint is taken."""

    def fail(self, step: int, message: str) -> None:
        """Called in place of ``submit`` on a rank that has no capture of ``step`` to hand over. The other ranks, which may have handed over
        theirs, learn of it and do not wait for this rank. The step is reported on all ranks as failed, with the code ``INCOMPLETE``, and
        ``drain`` waits until it is. It takes no place of ``in_flight``. ``message``: why, for the reports."""

    def wait(self, step: int, level: int, timeout: float) -> None:
        """Waits until the checkpoint of ``step``, which was submitted, has reached ``level`` (``format/levels``) or a higher one: without a
        local tier the first one above ``CAPTURED`` is ``EXTERNAL``. Raises the fault of a checkpoint that has failed, whatever level it
        had reached."""

    def poll(self) -> list[Report]:
        """The newest state of each checkpoint that has changed since the last call, in the order of their steps; states in between are not
        told. Called after every execution, so it costs microseconds if nothing has changed. A report with step -1 is a notice for the
        user: its ``message``, which is a warning with the level 0, and a line of the log with the level ``INFORMS``.

        Every checkpoint is reported as ``released`` in the end, and either as ``EXTERNAL`` (it can be restored after the loss of all
        nodes' power), or with the code of its failure, or as ``SUPERSEDED``."""

    def drain(self, timeout: float) -> None:
        """Waits until every submitted checkpoint is external or failed, and what ``remove`` was told of is removed."""

    def remove(self, steps: Iterable[int]) -> None:
        """Has the committed checkpoints of these steps removed, in the background: never one that a reader could then find half-deleted.
        Called on rank 0 alone, for steps that are committed and that retention no longer wants. Another thread than training's calls
        it, one call at a time, while training may be in any other method but ``close``. A step without a checkpoint is passed over. A
        removal that fails becomes a notice of ``poll``.

        What failed steps of this attempt and interrupted removals have left is removed too: after the next commit; in a ``bounded`` run
        also by this call without any step, once all ranks know of the failure. What dead attempts have left, a start removes
        (``Rescue``)."""

    def idle(self) -> float:
        """For how many seconds nothing has moved: no bytes of this rank, and no sign of life of a rank that it waits for. To look for
        such a sign is no movement if there is none, or a wait for a dead rank would never end. Of no meaning while nothing is under
        way."""

    def close(self) -> None:
        """Stops the work at the next occasion, ends the backend's threads and frees its memory. The code ``TIMEOUT`` if a thread can't be
        ended, because a store hangs: the caller then never frees the memory of captures that are not released."""


class OwnMemory(Protocol):
    """The memory of an open backend, in which captures may lie: the op of a training's graph copies captured pieces there."""

    def attach(self, area: Area, timeout: float) -> None:
        """Gives ``area`` this memory, from the area's next capture on. Called once, after ``Backend.plan``, between two executions. A
        capture for which there is no memory waits in the graph; it fails when no bytes have moved for ``timeout`` seconds."""

    def reserve(self, timeout: float) -> None:
        """Waits until there is memory for the first groups of the next capture, and keeps it for that capture. The op waits for the memory
        of each other group. Called before each execution that may capture, and only where captures lie in the backend's memory. May be
        called again before a capture."""

    def room(self) -> int:
        """For how many captures there is memory now, without the memory that is reserved: also where captures lie elsewhere."""


class Holding(Protocol):
    """A backend that can leave a checkpoint in memory for a time, and give it up."""

    def hold(self, step: int | None) -> bool:
        """Holds the checkpoint of ``step``: this rank does not begin to write it, or a newer one, to the external store before the next
        call or ``drain``. None holds no checkpoint. Returns whether ``step`` is held: False if its writing has begun, or if it is the
        oldest unfinished step."""

    def replace(self, step: int, by: int) -> None:
        """Gives up the checkpoint of ``step``, which every rank holds, for the newer step ``by`` that is to come. Called on every rank.
        ``poll`` reports the step with the code ``SUPERSEDED``. Never called where ``hold`` has not returned True."""


class Superseding(Protocol):
    """A backend that can give up a checkpoint on its way. One that commits in the order of the steps has no use for it."""

    def supersede(self, step: int, by: int) -> None:
        """Gives up the checkpoint of ``step``, because the newer one of the step ``by`` is committed and retention would not keep ``step``.
        Called on rank 0 alone, by the thread that calls ``remove``; the backend has the other ranks learn of it. ``poll`` reports the
        step with the code ``SUPERSEDED``, unless it is over by then."""


class Tuning(Protocol):
    """A backend whose numbers can be changed while it works."""

    def tune(self, writers: int, transfers: int, uncommitted: int) -> None:
        """Sets how many writers, transfers and uncommitted checkpoints the backend uses from now on: each at least 1 and at most the number
        of ``Opening.engine``; ``uncommitted`` is 0 for as many as the backend was opened for. Work that has begun goes on. The numbers of
        the ranks may differ for some steps. The code ``INVALID`` for another number: then no number is changed."""


class Telling(Protocol):
    """A backend that says what it does. For people: nothing is decided by it."""

    def progress(self) -> list[UnderWay]:
        """How far the checkpoints are that are neither committed nor failed, the oldest first. As ``remove`` it may be called by another
        thread than training's."""

    def stats(self) -> dict[str, Any]:
        """The backend's counters since it was opened, as values that JSON can hold. Asked before ``close``."""


class Rescue(Protocol):
    """The calls that finish what the backend of a dead attempt has left. No backend is open then. Each raises ``faults.EngineFault``."""

    def slot(self, path: str) -> SlotInfo:
        """The header of a slot, a file on the local tier that holds one rank's share of a checkpoint. A fault if the slot is damaged,
        half-written, or of a newer version."""

    def transfer(self, path: str, run: str) -> None:
        """Copies the slot into its attempt's partial directory in the run. May be called again. The code ``CORRUPT`` for a damaged slot."""

    def commit(self, run: str, step: int, attempt: str) -> None:
        """Commits the checkpoint of ``step``, if the shares of all ranks are there and whole. May be called again. The code ``INCOMPLETE``
        if shares are missing, ``CORRUPT`` if bytes are wrong, ``DIVERGED`` if the ranks differ."""


CaptureSize = Callable[[np.ndarray, int, int, int], int]


@dataclass(frozen=True, kw_only=True)
class BackendCapabilities:
    """The abilities of a kind of backend besides the methods of ``Backend``, and the rule where a backend lacks one.

    - ``memory``: an open backend is an ``OwnMemory``. Otherwise captures lie in the framework's memory.
    - ``holds``: it is a ``Holding``. Otherwise no step is held: ``when_full="replace"`` does as "skip".
    - ``supersedes``: it is a ``Superseding``. Otherwise every checkpoint is taken to its end.
    - ``tunes``: it is a ``Tuning``. Otherwise the numbers stay those that it was opened with.
    - ``tells``: it is a ``Telling``. Otherwise nothing is told.
    - ``in_run``: its checkpoints lie in the run as docs/format.md says. Otherwise DeepFreeze does not list, keep, remove, resume or
      restore them, and says so when a training begins.
    - ``hashes``: it compares the ranks' checksums at a commit. Otherwise nobody compares the ranks, which is said too.
    - ``bounded``: it can keep ``Opening.bounded``. Otherwise ``storage=`` is refused.
    - ``capture_size``: from the arguments of ``Backend.plan`` and ``Engine.chunk_bytes``, the bytes of each capture in its memory, and it
      can keep ``Opening.one_memory``. None: ``memory=`` is refused.
    - ``probe``: from a directory, writers, bytes, chunk bytes and seconds, the rates of durable writes past the page cache and through it,
      in bytes per second; 0.0 where the file system can't do that. None: ``Engine(io="auto")`` is "direct".
    - ``rescue``: finishes what a dead attempt has left. None: nothing of it can be finished."""

    memory: bool = False
    holds: bool = False
    supersedes: bool = False
    tunes: bool = False
    tells: bool = False
    in_run: bool = False
    hashes: bool = False
    bounded: bool = False
    capture_size: CaptureSize | None = None
    probe: Callable[[str, int, int, int, float], tuple[float, float]] | None = None
    rescue: Rescue | None = None


@dataclass(frozen=True)
class BackendKind:
    """A kind of backend, a row of ``backends/table``.

    - ``load``: loads the libraries that the backend needs. Called on every rank, before a run is touched. ``EngineError`` if one is missing
      or of another version. Called again it does nothing.
    - ``open``: a backend for one rank of one attempt. The run's directory and its structure file exist; no checkpoint of this attempt does.
      A backend of an earlier attempt of this process is closed by now.
    - ``can``: the abilities of its backends besides."""

    load: Callable[[], None]
    open: Callable[[Opening], Backend]
    can: BackendCapabilities = BackendCapabilities()
