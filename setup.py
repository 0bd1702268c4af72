"""Everything static is in pyproject.toml. Here: CMake builds the engine, native/, into veloc_bindings/libdeepfreeze.so; or, where
DEEPFREEZE_ENGINE=none, nothing does: a package in Python alone, which reads checkpoints and restores models, and saves none."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

LIBRARY = "libdeepfreeze.so"
ROOT = Path(__file__).resolve().parent
ENGINE = os.environ.get("DEEPFREEZE_ENGINE", "build")
if ENGINE not in ("build", "none"):
    raise SystemExit(
        f"DEEPFREEZE_ENGINE: expected build or none; found {ENGINE!r}. Leave it unset to build the engine."
    )


class BuildEngine(build_ext):
    """The engine is a plain shared library, loaded by ctypes: one build serves every Python."""

    def get_ext_filename(self, fullname):
        return str(Path(*fullname.split(".")[:-1]) / LIBRARY)

    def build_extension(self, ext):
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        # For packagers, and for `make setup`: a library that is built already.
        built = os.environ.get("DEEPFREEZE_LIBRARY")
        if built is None:
            folder = (Path(self.build_temp) / "native").resolve()
            configure = ["cmake", "-S", str(ROOT / "native"), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release"]
            configure += shlex.split(os.environ.get("CMAKE_ARGS", ""))  # as packagers know it
            if shutil.which("ninja"):
                configure += ["-G", "Ninja"]
            subprocess.run(configure, check=True)
            subprocess.run(["cmake", "--build", str(folder), "--parallel"], check=True)
            built = str(folder / LIBRARY)
        if not (target.exists() and os.path.samefile(built, target)):
            # Never into the old file, which a running process may have mapped.
            new = target.with_suffix(".new")
            shutil.copy2(built, new)
            os.replace(new, target)
        if not self.inplace:  # in a checkout, native/ has the headers
            shutil.copytree(ROOT / "native" / "include", target.parent / "include", dirs_exist_ok=True)


class AnyPython(bdist_wheel):
    """A wheel for every Python 3 on this platform: ctypes loads the engine."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


if ENGINE == "none":
    # Nor one that was built here before.
    setup(exclude_package_data={"veloc_bindings": ["*.so"]})
else:
    setup(
        ext_modules=[Extension("veloc_bindings.libdeepfreeze", sources=[])],
        cmdclass={"build_ext": BuildEngine, "bdist_wheel": AnyPython},
    )
