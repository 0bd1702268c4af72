"""Everything static is in pyproject.toml. Here: CMake builds the engine, native/, into veloc_bindings/libdeepfreeze.so."""

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

LIBRARY = "libdeepfreeze.so"
ROOT = Path(__file__).resolve().parent


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


setup(
    ext_modules=[Extension("veloc_bindings.libdeepfreeze", sources=[])],
    cmdclass={"build_ext": BuildEngine},
)
