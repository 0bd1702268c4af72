"""An external store in simulated time, and an engine in front of it whose setting can be changed: three stages, as the product's engine
has."""

from __future__ import annotations

from dataclasses import dataclass, field

from deepfreeze.plan.pccheck import Search, Setting, Taken, Trial, Tried, result


@dataclass
class Speed:
    """Of a store, for checkpoints of one size. Times are in seconds.

    - ``work``: to write a checkpoint's bytes, with as many writers as the store can use; shared by the transfers at a time.
    - ``writers``: that it can use. With fewer of them the work takes longer in proportion.
    - ``latency``: of each transfer, whatever else goes on.
    - ``commit``: of the stage behind the transfer; ``publish``: of the one between them.
    - ``fits``: how many uncommitted checkpoints the store has room for; one more fails."""

    work: float = 0.1
    writers: int = 1
    latency: float = 0.0
    publish: float = 0.0
    commit: float = 0.0
    fits: int = 1000


@dataclass
class _Job:
    step: int
    handed: float
    stage: int = 0  # 0: transfer, 1: publish, 2: commit
    latency: float = 0.0  # left
    work: float = 0.0  # left
    running: bool = False
    fails: bool = False


@dataclass
class Store:
    """``now``: seconds; ``setting``: of the engine; ``done``: (step, hand-over, commit, failed) of each checkpoint that is over."""

    speed: Speed
    setting: Setting = field(default_factory=lambda: Setting(8, 1, 1))
    now: float = 0.0
    done: list[tuple[int, float, float, bool]] = field(default_factory=list)
    _jobs: list[_Job] = field(default_factory=list)

    @property
    def under_way(self) -> int:
        return len(self._jobs)

    def hand(self, step: int) -> None:
        """Hands a checkpoint over."""
        self._jobs.append(_Job(step, self.now, fails=len(self._jobs) >= self.speed.fits))

    def advance(self, until: float, to_next: bool = False) -> None:
        """Goes on to a time; ``to_next``: at most until a checkpoint is over."""
        before = len(self.done)
        while self.now < until - 1e-12 and not (to_next and len(self.done) > before):
            self._start()
            rates = {id(job): self._rate(job) for job in self._jobs if job.running}
            ends = [job.latency if job.latency > 0 else job.work / rates[id(job)] for job in self._jobs if job.running]
            step = min([until - self.now, *ends])
            self.now += step
            for job in list(self._jobs):
                if not job.running:
                    continue
                if job.latency > 0:
                    job.latency -= step
                else:
                    job.work -= step * rates[id(job)]
                if job.latency <= 1e-12 and job.work <= 1e-12:
                    job.running, job.stage = False, job.stage + 1
                    if job.stage == 3 or (job.fails and job.stage == 1):
                        self._jobs.remove(job)
                        self.done.append((job.step, job.handed, self.now, job.fails))

    def wait(self) -> None:
        """Goes on until one more checkpoint is over."""
        self.advance(self.now + 1e6, to_next=True)

    def _start(self) -> None:
        for stage in range(3):
            busy = sum(job.running for job in self._jobs if job.stage == stage)
            for job in self._jobs:
                if job.stage == stage and not job.running and busy < self.setting.transfers:
                    busy += 1
                    job.running = True
                    job.latency = (self.speed.latency, self.speed.publish, self.speed.commit)[stage]
                    job.work = self.speed.work if stage == 0 else 0.0

    def _rate(self, job: _Job) -> float:
        """Of the work of one transfer."""
        sharing = sum(one.running and one.stage == 0 and one.latency <= 0 for one in self._jobs)
        return min(1.0, self.setting.writers / self.speed.writers) / max(1, sharing)


def tried(speed: Speed, trial: Trial) -> Tried | None:
    """The result of a trial by an engine alone; None if a checkpoint has failed."""
    store, setting, under_way = Store(speed, trial.setting), trial.setting, []
    for step in range(trial.checkpoints):
        while store.under_way >= setting.uncommitted:
            store.wait()
        store.hand(step)
        under_way.append(store.under_way)
    while store.under_way:
        store.wait()
    if any(failed for _, _, _, failed in store.done):
        return None
    return result(setting, [Taken(at, under_way[step], end - at) for step, at, end, _ in sorted(store.done)])


def searched(speed: Speed, most: Setting, behind: int = 0) -> Search:
    """A whole search by an engine alone."""
    search = Search(most, behind=behind)
    while search.trial is not None:
        found = tried(speed, search.trial)
        if found is None:
            search.fail()
        else:
            search.add(found)
    return search


def pace(speed: Speed, setting: Setting) -> float:
    """Seconds of a checkpoint in the long run."""
    store, count = Store(speed, setting), 40
    for step in range(count):
        while store.under_way >= setting.uncommitted:
            store.wait()
        store.hand(step)
    while store.under_way:
        store.wait()
    return store.now / count
