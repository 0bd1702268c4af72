"""Measures how much of the code the tests run: of Python by coverage.py, of the engine by gcov.

Prints a table and writes pages into build/coverage. Arguments go to pytest; without any, the tests of `make test` run. The processes
that tests start are counted too, unless they are killed. A test that fails is named in build/logs/coverage.log and does not fail this
program; `make test` fails then.
"""

import argparse
import json
import os
import shutil
import subprocess
from collections import defaultdict

import native
import project
from project import BUILD, ROOT, VENV, Failure, main, run_logged, say

PAGES = BUILD / "coverage"
PYTHON = VENV / "bin" / "python"
PACKAGES = ("deepfreeze", "veloc_bindings")
# source: the modules of this directory, not those that tests have installed elsewhere. _exit: many tests fork, and their children
# end by os._exit.
SETTINGS = f"""[run]
parallel = true
patch = subprocess, _exit
source = {", ".join(str(ROOT / package) for package in PACKAGES)}
data_file = {PAGES / "data" / "coverage"}
disable_warnings = couldnt-parse, no-data-collected, module-not-imported
[report]
exclude_also =
    if TYPE_CHECKING:
    class .*\\(Protocol\\):
"""
ADVICE = "The figures are of what has run."
TESTS = ["tests", "--tier", "test", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]


def coverage(*arguments):
    command = [PYTHON, "-m", "coverage", *arguments, f"--rcfile={PAGES / 'settings'}"]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, env=project.environment(), capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"coverage {arguments[0]}: {done.stdout}{done.stderr}")


def engine():
    """Builds the engine with gcov's counters, and sets them to zero."""
    options = ["-DCMAKE_BUILD_TYPE=Debug", "-DDF_TESTING=ON"]
    folder = native.build("coverage", *options, "-DCMAKE_CXX_FLAGS=--coverage -O0 -fprofile-update=atomic")
    for counters in folder.rglob("*.gcda"):
        counters.unlink()
    return folder


def python_modules():
    """By module: its lines of code, and how many of them were run."""
    coverage("combine", "--quiet")
    coverage("html", "--quiet", "-d", PAGES / "python")
    coverage("json", "--quiet", "-o", PAGES / "python.json")
    found = json.loads((PAGES / "python.json").read_text())["files"]
    return {name: (one["summary"]["num_statements"], one["summary"]["covered_lines"]) for name, one in found.items()}


def native_modules(folder):
    """The same for the engine, by folder."""
    (PAGES / "native").mkdir(exist_ok=True)
    found_by = "--gcov-ignore-parse-errors=all --gcov-ignore-errors=no_working_dir_found"
    counted = "--exclude .*/testing/.* --exclude .*/fuzz/.* --merge-mode-functions=merge-use-line-min"
    command = [VENV / "bin" / "gcovr", "--root", ROOT / "native", "--object-directory", folder, folder]
    command += [*found_by.split(), *counted.split(), "--json-summary", PAGES / "native.json"]
    command += ["--html-details", PAGES / "native" / "index.html"]
    run_logged(command, "coverage.log", "gcov has to be of the compiler's version.", project.environment())
    found = defaultdict(lambda: [0, 0])
    for one in json.loads((PAGES / "native.json").read_text())["files"]:
        counts = found[f"native/{one['filename'].rpartition('/')[0]}"]
        counts[0] += one["line_total"]
        counts[1] += one["line_covered"]
    return found


def run(command, **more):
    try:
        run_logged(command, "coverage.log", ADVICE, project.environment(**more))
    except Failure as failure:
        say(str(failure))


def percent(counts):
    lines, covered = map(sum, zip(*counts, strict=True))
    return f"{100 * covered / lines:.0f} %"


def measure():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="Any other argument goes to pytest.")
    parser.add_argument("--no-ctest", action="store_true", help="don't run the engine's own tests")
    given, tests = parser.parse_known_args()
    shutil.rmtree(PAGES, ignore_errors=True)
    (PAGES / "data").mkdir(parents=True)
    (PAGES / "settings").write_text(SETTINGS)
    folder = engine()
    if not given.no_ctest:
        command = [VENV / "bin" / "ctest", "--test-dir", folder, "--output-on-failure", "-j", str(os.cpu_count() or 1)]
        run(command)
    command = [PYTHON, "-m", "coverage", "run", f"--rcfile={PAGES / 'settings'}", "-m", "pytest"]
    run([*command, *(tests or TESTS)], DEEPFREEZE_LIBRARY=folder / native.LIBRARY, DEEPFREEZE_TESTING_BUILD=folder)
    python, engines = python_modules(), native_modules(folder)
    say(f"{'module':44} {'lines':>6} {'covered':>8}")
    for name, (lines, covered) in sorted({**python, **engines}.items()):
        if lines:
            say(f"{name:44} {lines:>6} {100 * covered / lines:>6.0f} %")
    say(f"pages: {PAGES.relative_to(ROOT)}/python/index.html and {PAGES.relative_to(ROOT)}/native/index.html")
    say(f"coverage: Python {percent(python.values())}, native {percent(engines.values())}")


if __name__ == "__main__":
    main(measure)
