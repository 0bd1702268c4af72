"""Every check that is no test: formats, types, static analysis, and the engine's unit tests under sanitizers."""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import native
from project import BUILD, ROOT, VENV, Failure, environment, main, run_logged, say

PACKAGES = ("deepfreeze", "veloc_bindings")
FOLDERS = [
    name
    for name in (*PACKAGES, "benchmarks", "docs", "examples", "tests", "tools", "setup.py")
    if (ROOT / name).exists()
]
# By the name of the build folder; tools/soak.py shares the first one.
SANITIZERS = {"address": "address,undefined", "thread": "thread"}
JOBS = str(os.cpu_count() or 1)


def tool(name, *arguments, env=None):
    command = [str(VENV / "bin" / name), *map(str, arguments)]
    if subprocess.run(command, cwd=ROOT, env=env or environment(), stdin=subprocess.DEVNULL, check=False).returncode:
        raise Failure(f"{name} {' '.join(map(str, arguments[:4]))}: see above")


def native_sources(*suffixes):
    return sorted(path for path in (ROOT / "native").rglob("*") if path.suffix in suffixes)


def python_style():
    tool("ruff", "check", *FOLDERS)
    tool("ruff", "format", "--check", *FOLDERS)


def python_types():
    tool("mypy", *(argument for package in PACKAGES for argument in ("-p", package)))


def native_style():
    tool("clang-format", "--dry-run", "-Werror", *native_sources(".h", ".cc", ".cpp", ".c"))


def native_analysis():
    """clang-tidy on every source file that the build compiles."""
    folder = native.configure("tidy", "-DCMAKE_BUILD_TYPE=Debug", "-DDF_TESTING=ON")
    config = ["-config-file", ROOT / "native" / ".clang-tidy"]
    arguments = [*config, "-p", folder, "-j", JOBS, "-quiet", "-clang-tidy-binary", VENV / "bin" / "clang-tidy"]
    command = [VENV / "bin" / "python", VENV / "bin" / "run-clang-tidy.py", *arguments, f"{ROOT}/native/.*"]
    run_logged(command, "clang-tidy.log", "See native/.clang-tidy for the checks.", env=environment())


def sanitized(kind):
    def check():
        options = ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DDF_TESTING=ON", f"-DDF_SANITIZE={SANITIZERS[kind]}"]
        folder = native.build(kind, *options)
        command = [VENV / "bin" / "ctest", "--test-dir", folder, "--output-on-failure", "--no-tests=error", "-j", JOBS]
        run_logged(
            command,
            f"{folder.name}.log",
            f"The report of {SANITIZERS[kind]} sanitizer is in the log.",
            env=environment(),
        )

    return check


CHECKS = {
    "ruff": python_style,
    "mypy": python_types,
    "clang-format": native_style,
    "clang-tidy": native_analysis,
    **{f"engine's tests, {what} sanitizer": sanitized(kind) for kind, what in SANITIZERS.items()},
}


def run(name):
    """Says the verdict, what a failure has to say, and whether all is well."""
    begun = time.monotonic()
    try:
        CHECKS[name]()
        report, verdict = "", "ok"
    except Failure as failure:
        report, verdict = f"{failure}\n", "FAILED"
    say(f"{report}{name}: {verdict} ({time.monotonic() - begun:.0f} s)")
    return verdict == "ok"


def lint():
    BUILD.mkdir(exist_ok=True)
    # Two at a time: some keep all cores busy, some wait a lot.
    with ThreadPoolExecutor(2) as pool:
        failures = [name for name, ok in zip(CHECKS, pool.map(run, CHECKS), strict=True) if not ok]
    if failures:
        raise Failure(f"lint: {', '.join(failures)}")


if __name__ == "__main__":
    main(lint)
