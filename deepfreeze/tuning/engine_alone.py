"""Trials of an engine without a training: checkpoints of bytes that nobody has trained, into a scratch run on the store in question."""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType

import numpy as np

from deepfreeze.engine import ways
from deepfreeze.engine.backend import Opening
from deepfreeze.engine.backends import table
from deepfreeze.engine.memory_bound import MemoryBound
from deepfreeze.engine.open_engine import OpenEngine
from deepfreeze.engine.options import MOST_TUNED, Engine
from deepfreeze.engine.records import OK, Report
from deepfreeze.engine.target import Target
from deepfreeze.errors import EngineError, OptionError
from deepfreeze.format.levels import Level
from deepfreeze.format.names import new_id
from deepfreeze.notices import Notify
from deepfreeze.plan.pccheck import Search, Setting, Taken, Trial, Tried, result
from deepfreeze.store.writable_run import WritableRun

_PAGE = 4096
_PIECE = 1 << 20  # bytes that are made at random once, and repeated
_KEPT = 2  # newest checkpoints that stay, as by default in a training
_LOOK = 0.0005  # seconds between two looks at what has become of the checkpoints
_PATIENCE = 600.0  # seconds in which bytes must move
_MOST_UNCOMMITTED = 4  # a search comes to no more with its checkpoints


@dataclass(frozen=True)
class Job:
    """The checkpoints that are asked for: ``nbytes`` of each, in all; ``ranks`` that save them, on this machine; ``engine``: the options,
    whose ``writers`` and ``uncommitted`` are the most that is tried; ``memory``: bytes that the captures of each rank may hold, None for as
    many as are tried; ``storage``: bytes that the run may take, None for the free space."""

    nbytes: int
    ranks: int = 1
    engine: Engine = Engine()
    memory: int | None = None
    storage: int | None = None

    def most(self, free: int) -> Setting:
        """The greatest setting that the memory, the storage and the store's ``free`` bytes allow. ``OptionError`` if not even one
        checkpoint fits."""
        part = -(-self.nbytes // self.ranks)
        storage = free if self.storage is None else min(self.storage, free)
        room = [self.engine.uncommitted or _MOST_UNCOMMITTED, storage // self.nbytes - _KEPT]
        if self.memory is not None:
            room.append(MemoryBound(self.memory, part).captures(self.engine))
        if room[1] < 1:
            expected = f"{(_KEPT + 1) * self.nbytes} bytes: {_KEPT} checkpoints that stay, and one that is written"
            todo = "give more, or tune for fewer bytes"
            raise OptionError(where="storage", expected=expected, found=f"{storage} bytes", todo=todo)
        uncommitted = min(*room, _MOST_UNCOMMITTED)
        return Setting(self.engine.writers, min(MOST_TUNED, uncommitted), uncommitted)


class EngineAlone:
    """The engines of all ranks of a ``Job``, in this process, over one memory whose bytes stay the same. A ``with`` closes them."""

    def __init__(self, run: str, job: Job, most: Setting, notify: Notify) -> None:
        """``run``: the path of a scratch run, which is made; ``most``: the greatest setting that will be tried. ``OptionError``,
        ``RunError`` if the run can't be made, ``EngineError`` if the system refuses threads."""
        made = WritableRun.open_or_make(run)
        part = -(-job.nbytes // job.ranks // _PAGE) * _PAGE
        self._memory = _filled(part)
        view = np.frombuffer(self._memory, np.uint8)
        io = ways.choose(job.engine, run, job.nbytes, notify)
        engine = replace(
            job.engine,
            in_flight=most.uncommitted,
            slots=1,
            uncommitted=most.uncommitted,
            transfers=most.transfers,
            io=io,
        )
        target = Target(run, made.run_id, made.claim(new_id()))
        self._run = run
        self._closing = contextlib.ExitStack()
        self._engines: list[OpenEngine] = []
        self._regions: list[np.ndarray] = []
        self._step = 0
        self._kept: list[int] = []  # committed steps that stay
        with contextlib.ExitStack() as on_error:
            on_error.callback(self._closing.close)
            for rank in range(job.ranks):
                opening = Opening(
                    target=target,
                    structure=bytes(32),
                    file_size=part * job.ranks,
                    rank=rank,
                    world=job.ranks,
                    node=tuple(range(job.ranks)),
                    timeout=_PATIENCE,
                    engine=engine.counted(),
                )
                backend = OpenEngine(table.chosen(), opening, notify)
                self._closing.callback(backend.close)
                self._engines.append(backend)
                self._regions.append(np.array([[view.ctypes.data, part, rank * part]], np.uint64))
            on_error.pop_all()

    def __enter__(self) -> EngineAlone:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def search(self, most: Setting, tell: Callable[[int], None] = lambda taken: None) -> Search:
        """Searches for the best setting up to ``most``. ``tell`` is called with the number of checkpoints taken so far. ``EngineError`` if
        not even one checkpoint at a time is committed."""
        self._try(Trial(Setting(most.writers, 1, 1), 1))  # the first one finds new files and sleeping threads
        search, taken = Search(most), 1
        while search.trial is not None:
            tell(taken)
            taken += search.trial.checkpoints
            tried = self._try(search.trial)
            if tried is None:
                search.fail()
            else:
                search.add(tried)
        return search

    def _try(self, trial: Trial) -> Tried | None:
        """Takes the checkpoints of a trial, each as soon as the setting allows. None if one of several at a time has failed;
        ``EngineError`` if one alone has."""
        setting = trial.setting
        for engine in self._engines:
            engine.tune(setting.writers, setting.transfers, setting.uncommitted)
        handed: dict[int, tuple[float, int]] = {}
        taken: dict[int, Taken] = {}
        failed: set[int] = set()
        while len(handed) < trial.checkpoints or len(taken) + len(failed) < len(handed):
            under_way = len(handed) - len(taken) - len(failed)
            if len(handed) < trial.checkpoints and under_way < setting.uncommitted and not failed:
                step = self._submit()
                handed[step] = time.perf_counter(), under_way + 1
                continue
            if failed and not under_way:
                break
            for report in self._reports(alone=setting.uncommitted == 1):
                if report.code != OK:
                    failed.add(report.step)
                elif report.level == Level.EXTERNAL and report.step not in taken:
                    taken[report.step] = Taken(*handed[report.step], report.external_s)
                    self._keep(report.step)
            time.sleep(_LOOK)
        return None if failed else result(setting, [taken[step] for step in sorted(taken)])

    def _submit(self) -> int:
        """Hands the next step over on every rank, and returns it."""
        step, self._step = self._step, self._step + 1
        for engine, regions in zip(self._engines, self._regions, strict=True):
            engine.submit(step, regions, b"", self._memory)
        return step

    def _reports(self, alone: bool) -> list[Report]:
        """The reports of rank 0, which knows of all ranks, since the last call. ``EngineError`` if one has failed that was
        ``alone``."""
        found, *_ = [engine.poll()[0] for engine in self._engines]  # the others' memory is given back too
        for report in found:
            if alone and report.step >= 0 and report.code != OK:
                todo = "mend what the message names; checkpoints of the run itself are untouched"
                raise EngineError(
                    where=self._run, expected="a checkpoint to be committed", found=report.message, todo=todo
                )
        return [report for report in found if report.step >= 0]

    def _keep(self, step: int) -> None:
        """Has all committed checkpoints removed but ``step`` and others that are as new."""
        self._kept = sorted([*self._kept, step])
        gone, self._kept = self._kept[:-_KEPT], self._kept[-_KEPT:]
        self._engines[0].remove(gone)


def _filled(nbytes: int) -> mmap.mmap:
    """Memory of random bytes, in huge pages where the system has some. ``OptionError`` if the system has not so much."""
    try:
        memory = mmap.mmap(-1, nbytes)
    except (OSError, MemoryError) as error:
        todo = "tune for fewer bytes, or for more ranks: one rank's part is held in memory"
        raise OptionError(where="--bytes", expected=f"{nbytes} bytes of memory", found=str(error), todo=todo) from error
    with contextlib.suppress(AttributeError, OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    piece = np.random.default_rng(0).bytes(_PIECE)
    for begin in range(0, nbytes, _PIECE):
        memory[begin : begin + _PIECE] = piece[: nbytes - begin]
    return memory
