"""`make analyse`: checks the engine by static analysis, and runs its tests under sanitizers (minutes). Arguments: names of checks, see
CHECKS; without any, all of them."""

import sys

import native
from checks import JOBS, run
from project import ROOT, VENV, Failure, environment, main, run_logged

# By the name of the build folder; tools/soak.py shares the first one.
SANITIZERS = {"address": "address,undefined", "thread": "thread"}


def clang_tidy():
    """clang-tidy on every source file that the build compiles, with clang's check that each lock is held where it must be."""
    folder = native.configure("tidy", "-DCMAKE_BUILD_TYPE=Debug", "-DDF_TESTING=ON")
    config = ["-config-file", ROOT / "native" / ".clang-tidy"]
    arguments = [*config, "-p", folder, "-j", JOBS, "-quiet", "-clang-tidy-binary", VENV / "bin" / "clang-tidy"]
    command = [VENV / "bin" / "python", VENV / "bin" / "run-clang-tidy.py", *arguments, f"{ROOT}/native/.*"]
    run_logged(command, "clang-tidy.log", "See native/.clang-tidy for the checks.", env=environment())


def sanitized(kind):
    """The engine's own tests, built with a sanitizer."""

    def check():
        options = ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DDF_TESTING=ON", f"-DDF_SANITIZE={SANITIZERS[kind]}"]
        folder = native.build(kind, *options)
        command = [VENV / "bin" / "ctest", "--test-dir", folder, "--output-on-failure", "--no-tests=error", "-j", JOBS]
        advice = f"The report of {SANITIZERS[kind]} sanitizer is in the log."
        run_logged(command, f"{folder.name}.log", advice, env=environment())

    return check


CHECKS = {"clang-tidy": clang_tidy, **{f"{kind}-sanitizer": sanitized(kind) for kind in SANITIZERS}}


def analyse():
    wanted = sys.argv[1:] or CHECKS
    if unknown := [name for name in wanted if name not in CHECKS]:
        raise Failure(f"no check {', '.join(unknown)}: there are {', '.join(CHECKS)}")
    run("analyse", {name: CHECKS[name] for name in wanted})


if __name__ == "__main__":
    main(analyse)
