"""The second job of ``benchmarks.interval``: writes to the same disk until it is killed, and hardly uses a core.

``Writers(folder, 8)`` starts it with eight threads; leaving the ``with`` block ends it. Each thread writes its own file from begin to end,
past the page cache where the file system allows it, makes it durable, and begins anew.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from benchmarks.report import ROOT

FILE, PIECE = 64 << 20, 4 << 20  # bytes of a thread's file, and of one write


class Writers:
    """The process, from ``__enter__``, which returns when each thread has written its first piece, to ``__exit__``. ``count``: how many
    threads."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count = folder, count

    def __enter__(self) -> Writers:
        self._files = tempfile.TemporaryDirectory(dir=self._folder, prefix="second-job-")
        command = [sys.executable, "-m", "benchmarks.interval_writer", self._files.name, str(self._count)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"writing\n":
            self.__exit__()
            raise SystemExit("the second writer did not begin")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._files.cleanup()


def opened(path: Path) -> int:
    """A file descriptor to write to: past the page cache, if the file system can."""
    flags = os.O_WRONLY | os.O_CREAT
    try:
        return os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:
        return os.open(path, flags, 0o600)


def write(path: Path, begun: threading.Semaphore) -> None:
    """Writes without end."""
    file, data = opened(path), mmap.mmap(-1, PIECE)  # a mapping is aligned to pages, as O_DIRECT wants
    data.write(os.urandom(PIECE))
    os.pwrite(file, data, 0)
    begun.release()
    while True:
        for offset in range(0, FILE, PIECE):
            os.pwrite(file, data, offset)
        os.fdatasync(file)


def main() -> None:
    """The arguments: a directory, and the number of threads."""
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    begun = threading.Semaphore(0)
    for number in range(count):
        threading.Thread(target=write, args=(folder / f"file-{number}", begun), daemon=True).start()
    for _ in range(count):
        begun.acquire()
    print("writing", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
