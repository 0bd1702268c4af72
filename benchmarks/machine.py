"""What can this machine do at best? python -m benchmarks.machine --help

Memory and disk, each by the plainest means there is: the bounds that no checkpointing can pass. Copies in memory by one
thread; writes of a new file until fdatasync is over, buffered and O_DIRECT (from page-aligned memory, 4 MiB at a time,
preallocated, with 1 and 2 threads: the better one counts); reads from the page cache and O_DIRECT. Other benchmarks measure
these in the same run (``Limits``), for a disk is not the same from one day to the next.
"""

from __future__ import annotations

import argparse
import mmap
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report, workloads
from benchmarks.report import Report, Row, say, span, table

CHUNK = 4 << 20
THREADS = (1, 2)
MEMCPY, MEMCPY_FRESH, TMPFS = "memcpy, touched memory", "memcpy, fresh pages", "tmpfs write"
BUFFERED, DIRECT, OVERWRITE = "disk write, buffered", "disk write, O_DIRECT", "disk overwrite, O_DIRECT"
CACHED_READ, DIRECT_READ = "page-cache read", "disk read, O_DIRECT"
# In the order of tables and figures.
NAMES = (MEMCPY, MEMCPY_FRESH, TMPFS, BUFFERED, DIRECT, OVERWRITE, CACHED_READ, DIRECT_READ)
_SHM = Path("/dev/shm")


class Limits:
    """Measures all of them for ``nbytes`` (rounded up to whole pages), as often as ``measure`` is called.

    Holds twice as many bytes of memory and as many of ``folder``'s disk; ``close`` gives all of it back.
    """

    def __init__(self, nbytes: int, folder: Path, huge: bool = False) -> None:
        """``huge``: the memory is in huge pages, as the engine's is."""
        self.nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._folder = Path(tempfile.mkdtemp(dir=folder, prefix="limits-"))
        self._shm = Path(tempfile.mkdtemp(dir=_SHM, prefix="deepfreeze-limits-")) if _SHM.is_dir() else None
        self._maps = (_memory(self.nbytes, huge), _memory(self.nbytes, huge))
        self._source, self._target = (np.frombuffer(buffer, np.uint8) for buffer in self._maps)
        # Not all the same: some storage stores runs of one byte in no time.
        self._source[:] = np.resize(np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8), self.nbytes)
        self._target[:] = 1
        self._samples: dict[tuple[str, int], list[float]] = {}
        self._direct = self._can_direct()

    def measure(self) -> None:
        """One more sample of each. The first one warms up: it is not counted."""
        self._sample(MEMCPY, 1, np.copyto, self._target, self._source)
        with _memory(self.nbytes) as fresh:
            target = np.frombuffer(fresh, np.uint8)
            self._sample(MEMCPY_FRESH, 1, np.copyto, target, self._source)
            del target  # or the map could not be closed
        if self._shm is not None:
            self._tmpfs_write(self._shm / "file")
        new = self._folder / "new"
        self._sample(BUFFERED, 1, self._write, new, os.O_CREAT, 1)
        self._sample(CACHED_READ, 1, self._read, new, 0, 1)
        new.unlink()
        self.measure_disk()

    def measure_disk(self) -> None:
        """One more sample of what goes past the page cache."""
        new = self._folder / "new"
        if self._direct:
            for threads in THREADS:
                self._sample(DIRECT, threads, self._write, new, os.O_CREAT | os.O_DIRECT, threads)
                self._sample(OVERWRITE, threads, self._write, new, os.O_DIRECT, threads)
                self._sample(DIRECT_READ, threads, self._read, new, os.O_DIRECT, threads)
                new.unlink()

    def seconds(self) -> dict[str, list[float]]:
        """Limit -> raw samples so far, of the better number of threads. What this machine can't do is left out."""
        best: dict[str, list[float]] = {}
        for (name, _), (_, *samples) in self._samples.items():
            if samples and (name not in best or statistics.median(samples) < statistics.median(best[name])):
                best[name] = samples
        return {name: best[name] for name in NAMES if name in best}

    def newest(self, name: str) -> float:
        """Seconds of a limit's last sample, of the better number of threads. KeyError if this machine can't do it."""
        found = [samples[-1] for (limit, _), samples in self._samples.items() if limit == name]
        if not found:
            raise KeyError(f"{name}: not measured")
        return min(found)

    def close(self) -> None:
        """Removes the files and frees the memory."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._shm is not None:
            shutil.rmtree(self._shm, ignore_errors=True)
        del self._source, self._target
        for buffer in self._maps:
            buffer.close()

    def _sample(self, name: str, threads: int, work: Callable[..., object], *arguments: Any) -> None:
        begin = time.perf_counter()
        work(*arguments)
        self._samples.setdefault((name, threads), []).append(time.perf_counter() - begin)

    def _tmpfs_write(self, path: Path) -> None:
        """Onto pages that an earlier write has touched, as in a recycled slot."""
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(file).st_size == 0:
                self._each_chunk(1, os.pwritev, file, 0)
            self._sample(TMPFS, 1, self._each_chunk, 1, os.pwritev, file, 0)
        finally:
            os.close(file)

    def _write(self, path: Path, flags: int, threads: int) -> None:
        file = os.open(path, os.O_RDWR | flags, 0o600)
        try:
            if flags & os.O_CREAT and flags & os.O_DIRECT:
                os.posix_fallocate(file, 0, self.nbytes)
            self._each_chunk(threads, os.pwritev, file, 0)
            os.fdatasync(file)
        finally:
            os.close(file)

    def _read(self, path: Path, flags: int, threads: int) -> None:
        file = os.open(path, os.O_RDONLY | flags)
        try:
            self._each_chunk(threads, os.preadv, file, 1)
        finally:
            os.close(file)

    def _each_chunk(self, threads: int, move: Callable[..., int], file: int, buffer: int) -> None:
        """Moves all bytes between ``file`` and the buffer of that number; each thread has one contiguous part of the file."""
        view = memoryview(self._maps[buffer])

        def part(begin: int, end: int) -> None:
            while begin < end:
                done = move(file, [view[begin : min(begin + CHUNK, end)]], begin)
                if done <= 0:
                    raise OSError(f"{move.__name__} moved no bytes at {begin} of {end}")
                begin += done

        if threads == 1:
            part(0, self.nbytes)
        else:
            pages = self.nbytes // mmap.PAGESIZE
            cuts = [pages * n // threads * mmap.PAGESIZE for n in range(threads + 1)]
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(part, cuts[:-1], cuts[1:]))
        view.release()

    def _can_direct(self) -> bool:
        path = self._folder / "probe"
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
            try:
                os.pwritev(file, [memoryview(self._maps[0])[: mmap.PAGESIZE]], 0)
            finally:
                os.close(file)
        except OSError as error:
            say(f"no O_DIRECT in {self._folder.parent}: {error.strerror}; its limits are left out")
            return False
        finally:
            path.unlink(missing_ok=True)
        return True


def limits(nbytes: int, folder: Path, samples: int = 5) -> dict[str, list[float]]:
    """Seconds that ``nbytes`` take at best: limit -> ``samples`` raw samples."""
    measured = Limits(nbytes, folder)
    try:
        for _ in range(samples + 1):
            measured.measure()
        return measured.seconds()
    finally:
        measured.close()


def add_rows(into: Report, seconds: dict[str, list[float]], nbytes: int, **labels: Any) -> None:
    """A row for each limit: seconds, and bytes per second."""
    for name, samples in seconds.items():
        row = into.row(limit=name, **labels).add("seconds", "s", samples)
        row.add("rate", "B/s", [nbytes / sample for sample in samples])


def rows_table(rows: list[Row]) -> str:
    """What ``add_rows`` added, as Markdown."""
    lines = [[row.labels["limit"], span(row, "rate", 1e-9, 2), span(row, "seconds", 1e3)] for row in rows]
    return table(["limit", "GB/s", "ms"], lines)


def measure(args: argparse.Namespace) -> Report:
    """All limits for the state of NT3 and of ResNet-50."""
    found = Report("machine", "What can memory and disk do at best?")
    if args.of is not None:
        measured = Report.load(args.of)
        found.noise = measured.noise
        for row in (row for row in measured.rows if "limit" in row.labels):
            nbytes = round(row.samples("rate")[0] * row.samples("seconds")[0])
            add_rows(
                found,
                {row.labels["limit"]: row.samples("seconds")},
                nbytes,
                workload=row.labels["workload"],
                bytes=nbytes,
            )
        return found
    for workload in ("nt3", "resnet50"):
        nbytes = (1 << 24) if args.quick else workloads.nbytes(workload)
        say(f"{workload}: {nbytes / 1e6:.0f} MB ...")
        with tempfile.TemporaryDirectory(dir=args.folder, prefix="deepfreeze-") as folder:
            add_rows(found, limits(nbytes, Path(folder), args.samples), nbytes, workload=workload, bytes=nbytes)
    return found


def tables(found: Report) -> str:
    """A table for each size."""
    parts = []
    for workload, rows in _by_workload(found).items():
        parts.append(f"{workload}, {rows[0].labels['bytes'] / 1e6:.0f} MB:\n\n{rows_table(rows)}")
    return "\n\n".join(parts)


def draw(found: Report, path: Path) -> None:
    """Bars: GB/s of each limit, both sizes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sizes = _by_workload(found)
    figure, axes = pyplot.subplots(figsize=(8, 4))
    height = 0.8 / len(sizes)
    for number, (workload, rows) in enumerate(sizes.items()):
        places = [NAMES.index(row.labels["limit"]) + (number - (len(sizes) - 1) / 2) * height for row in rows]
        rates = [row.values["rate"] for row in rows]
        middle = [rate["median"] / 1e9 for rate in rates]
        reach = [
            [(rate["median"] - rate["min"]) / 1e9 for rate in rates],
            [(rate["max"] - rate["median"]) / 1e9 for rate in rates],
        ]
        label = f"{rows[0].labels['bytes'] / 1e6:.0f} MB ({workload})"
        axes.barh(places, middle, height, xerr=reach, label=label, error_kw={"linewidth": 0.8})
    axes.set_yticks(range(len(NAMES)), NAMES)
    axes.invert_yaxis()
    axes.set_xlabel("GB/s (median; line: min to max)")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _memory(nbytes: int, huge: bool = False) -> mmap.mmap:
    """Pages of this process alone, as malloc gets them, not of a shared memory object. ``huge``: large ones, from which a disk takes direct
    writes faster."""
    found = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if huge:
        found.madvise(mmap.MADV_HUGEPAGE)
    return found


def _by_workload(found: Report) -> dict[str, list[Row]]:
    sizes: dict[str, list[Row]] = {}
    for row in found.rows:
        sizes.setdefault(row.labels["workload"], []).append(row)
    return sizes


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this benchmark has."""
    parser.add_argument(
        "--of", type=Path, metavar="JSON", help="measure nothing: the limits that `peers` measured, from its file"
    )


if __name__ == "__main__":
    report.run("machine", __doc__ or "", measure, tables, draw, options)
