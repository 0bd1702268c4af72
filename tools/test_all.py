"""`make test-all`: runs `make test`, then everything that `make test` leaves out. With `--part K/N` only a part of the latter runs, for a
bounded time: either one of the stages that can't be divided, or an equal share of those that can. CI runs one of 16 parts for each
commit."""

import argparse
import functools
import os
import shutil
import subprocess
import sys
import time

import costs
import fuzz
import system
import test
from project import ROOT, Failure, environment, main, part_of, say


def program(name, *arguments):
    """Runs one of the tools; returns its exit code."""
    command = [sys.executable, f"tools/{name}.py", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL).returncode


def share(part):
    """The options that have another tool run the same part."""
    return ("--part", "{}/{}".format(*part)) if part else ()


def tests(part):
    """Runs the tests that `make test` leaves out, and every point of every sweep."""
    nodes()
    return test.run("--tier", "full", "-q", *share(part))


def nodes():
    """Installs what the test of several nodes needs, where that is possible. Elsewhere that test is skipped, and names the packages."""
    if shutil.which("glusterd", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        return
    try:
        system.install(system.NODES)
    except Failure as failure:
        say(f"going on without several nodes: {failure}")


def repeated(part):
    """Runs the tests that wait for time or for threads twenty times; with a part, once."""
    return test.run("-m", "timing", "-q", "--count", 1 if part else 20)


def jittered(part):
    """Runs the tests with the tests' engine, whose system calls come late at random: no test may rely on an order that the engine does not
    promise."""
    return test.run("--tier", "test", "--jitter", 50, "-q", *share(part))


def hostile(part):
    """Fuzzes every reader for a minute; a part fuzzes its share of the readers."""
    number, of = part or (1, 1)
    targets = [target for place, target in enumerate(fuzz.TARGETS) if place % of == number - 1]
    return program("fuzz", *targets, "--seconds", 60, "--jobs", 2, "--if-possible") if targets else 0


def mutants(part):
    """Changes the modules that write, one small change at a time; a test must notice each change."""
    return program("mutants", *share(part))


DIVIDED = {
    "tests": tests,
    "repeated tests": repeated,
    "tests with jitter": jittered,
    "fuzzing": hostile,
    "mutants": mutants,
}


def coverage(part):
    """Measures the coverage of `make test`; with a part, that of `make check`."""
    return program("coverage", *(["tests", "--tier", "check", "-n", 2, "--dist", "loadfile"] if part else []))


# Each of these is one part by itself, as long as there are more parts than these; the other parts share what can be divided.
WHOLE = {
    "TensorFlow 2.15": lambda part: program("tf215"),
    "other Pythons": lambda part: program("pythons"),
    "address sanitizer": lambda part: program("analyse", "address-sanitizer"),
    "thread sanitizer": lambda part: program("analyse", "thread-sanitizer"),
    "clang-tidy": lambda part: program("analyse", "clang-tidy"),
    "coverage": coverage,
}


def stages(part):
    """{name: function that returns an exit code}, in order: for everything (None), or for one part (number, of)."""
    if not part:
        todo = {"make test": lambda part: test.run("--tier", "test", "-q")} | DIVIDED | WHOLE
    else:
        number, of = part
        alone = len(WHOLE) if of > len(WHOLE) else 0
        if number <= alone:
            todo = dict([list(WHOLE.items())[number - 1]])
        else:
            shared = {} if alone else {name: run for n, (name, run) in enumerate(WHOLE.items()) if n % of == number - 1}
            todo, part = DIVIDED | shared, (number - alone, of - alone)
    return {name: functools.partial(run, part) for name, run in todo.items()}


def test_all():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", metavar="K/N", type=part_of, help="that share alone, for instance 3/16")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join([*DIVIDED, *WHOLE])}")
    given = parser.parse_args()
    todo = stages(given.part)
    if unknown := [name for name in given.stages if name not in todo]:
        parser.error(f"no stage {unknown[0]!r} here: {', '.join(todo)}")
    failed, lines = [], []
    for name in given.stages or todo:
        say(f"\n== {name}")
        begun = time.monotonic()
        code = todo[name]()
        lines.append(f"{name}: {'ok' if code == 0 else f'FAILED with {code}'} ({time.monotonic() - begun:.0f} s)")
        if code:
            failed.append(name)
    say("\n" + "\n".join(lines))
    if not given.part and not given.stages and not failed:
        costs.write(costs.take(costs.read()))
        say(f"{costs.TABLE.relative_to(ROOT)} has the new figures: commit it")
    if failed:
        raise Failure(f"test-all: {', '.join(failed)}")


if __name__ == "__main__":
    main(test_all)
