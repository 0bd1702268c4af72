"""Builds the engine (native/) with CMake and Ninja in build/native, and copies the library into veloc_bindings."""

import argparse
import os
import shutil

import project
from project import BUILD, ROOT, VENV, main, run_logged

LIBRARY = "libdeepfreeze.so"
# -O1 compiles in half of a release's time, and no test is about speed.
TESTING = ("-DDF_TESTING=ON", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1")
PACKAGE = ROOT / "veloc_bindings"
ADVICE = "The first `error:` above is the one to look at; `make clean` starts from nothing."


def configure(variant="", *options):
    """Runs CMake if this build has not been configured with these options yet; returns the build folder. A variant (another set of
    options) has a folder of its own, build/native-VARIANT."""
    folder = BUILD / (f"native-{variant}" if variant else "native")
    wanted = " ".join(options)
    stamp = folder / ".options"
    if not (folder / "build.ninja").is_file() or not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        command = [VENV / "bin" / "cmake", "-S", ROOT / "native", "-B", folder, "-G", "Ninja"]
        command += ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", f"-DCMAKE_MAKE_PROGRAM={VENV / 'bin' / 'ninja'}", *options]
        run_logged(command, f"{folder.name}.log", ADVICE, env=project.environment())
        stamp.write_text(wanted)
    return folder


def build(variant="", *options):
    """Compiles what has changed; returns the build folder."""
    folder = configure(variant, *options)
    run_logged([VENV / "bin" / "ninja", "-C", folder], f"{folder.name}.log", ADVICE, env=project.environment())
    return folder


def install():
    """Builds the library and, if it has changed, copies it into veloc_bindings."""
    folder = build("", "-DCMAKE_BUILD_TYPE=Release")
    built, target = folder / LIBRARY, PACKAGE / LIBRARY
    if target.is_file() and target.stat().st_mtime_ns == built.stat().st_mtime_ns:
        return
    # Renamed into place: a process that has the old library mapped keeps it whole.
    half = target.with_suffix(f".{os.getpid()}.so")
    shutil.copy2(built, half)
    half.rename(target)


def for_tests():
    """Builds the testing library, whose system calls tests can make fail, and the engine's own tests."""
    build("testing", *TESTING)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--for-tests", action="store_true", help="build the tests' engine, build/native-testing, instead"
    )
    parser.add_argument("--variant", default="", help="build into build/native-VARIANT instead")
    parser.add_argument("options", nargs="*", help="CMake options of the variant, for instance -DDF_TESTING=ON")
    arguments, options = parser.parse_known_args()
    if arguments.variant:
        main(lambda: build(arguments.variant, *arguments.options, *options) and None)
    main(lambda: for_tests() if arguments.for_tests else install())
