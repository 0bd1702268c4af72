"""Changes the modules that write files, one small change (a mutant) at a time, and checks that a test fails because of each.

A mutant whose tests all pass survives. tests/mutants.txt lists the mutants that may survive, each with the reason. Any other survivor
is a failure, and so is a line of the list whose mutant does not survive. No library does this: neither mutmut nor cosmic-ray removes a
statement, and a removed fsync is the mutant that matters most here.
"""

import argparse
import contextlib
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from mutations import mutations
from project import ROOT, VENV, Failure, environment, main, part_of, say

LISTED = ROOT / "tests" / "mutants.txt"
_POWER = ["crash/test_power_loss.py::test_what_python_has_made_survives_a_loss_of_power"]
# For each module the tests that may kill its mutants, the fastest first; none of them imports TensorFlow.
MODULES = {
    "store/durable.py": ["store/test_durable.py", *_POWER],
    "store/posix_store.py": [
        "store/test_posix_store.py",
        "store/test_granules.py",
        "store/test_conformance.py",
        "store/test_run_changes.py",
        "store/test_run.py",
        "store/test_run_reading.py",
        *_POWER,
    ],
    "tiers/leftovers.py": ["tiers/test_recovery.py", "thaw/test_newer_versions.py", "tiers/test_recovery_plan.py"],
    "tiers/local_tier.py": ["tiers/test_tiers.py", "crash/test_lost_node.py", "tiers/test_recovery_plan.py"],
    "tiers/recovery_plan.py": ["tiers/test_recovery.py", "tiers/test_recovery_plan.py", "thaw/test_newer_versions.py"],
    "tiers/rescue.py": ["tiers/test_recovery.py", "thaw/test_newer_versions.py", "tiers/test_recovery_plan.py"],
    "store/run.py": [
        "store/test_posix_store.py",
        "store/test_run_changes.py",
        "store/test_run.py",
        "store/test_run_reading.py",
        "store/test_catalog.py",
        *_POWER,
    ],
    "store/writable_run.py": [
        "store/test_posix_store.py",
        "store/test_run_changes.py",
        "store/test_run.py",
        "store/test_run_reading.py",
        *_POWER,
    ],
}
# Jobs of their own, which cost every mutant seconds, and are about run.json alone.
LEFT_OUT = "store/test_run.py::test_jobs_that_make_one_run_at_once_agree_on_its_id"
AT_ONCE = 2


def plain(module):
    """A module's source, unchanged."""
    return (ROOT / "deepfreeze" / module).read_text()


class Place:
    """A copy of the working tree, in which one module at a time is changed and a child of this process runs the tests."""

    def __init__(self, folder):
        self.folder, self._child, self._ends = folder, 0, 0.0
        self._changed, self._stamp = "", time.time() // 1
        folder.mkdir()
        for path in ROOT.iterdir():
            if path.name in ("deepfreeze", "tests"):
                shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
            elif path.name != ".git":
                (folder / path.name).symlink_to(path)

    def start(self, module, source, bound):
        """Begins to run a module's tests with this source of it; they end with the first failure, or after ``bound`` seconds."""
        if self._changed and self._changed != module:
            self._put(self._changed, plain(self._changed))
        self._put(module, source)
        self._changed, self._ends = module, time.monotonic() + bound
        self._child = os.fork()
        if self._child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                code = self._tests(module)
            os._exit(code)
        with contextlib.suppress(OSError):  # here too: nobody knows which of the two comes first
            os.setpgid(self._child, self._child)

    def _put(self, module, source):
        path = self.folder / "deepfreeze" / module
        path.write_text(source)
        # A compiled module is told by time and size alone, and mutants of one second may be of one size.
        self._stamp += 1
        os.utime(path, (self._stamp, self._stamp))

    def _tests(self, module):
        os.setpgid(0, 0)
        os.chdir(self.folder)
        said = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.path[0] = str(self.folder)
        os.environ.update(TMPDIR=str(self.folder), DEEPFREEZE_TEST_SEED="13")
        tests = [*(f"tests/{name}" for name in MODULES[module]), f"--deselect=tests/{LEFT_OUT}"]
        return int(importlib.import_module("pytest").main(["-x", "-q", "-p", "no:cacheprovider", *tests]))

    def poll(self):
        """ "survived" if the tests passed, "killed" if one failed or they took too long; None while they run."""
        ended, status = os.waitpid(self._child, os.WNOHANG)
        late = time.monotonic() > self._ends
        if not ended and not late:
            return None
        self.stop(reap=not ended)
        return "survived" if ended and status == 0 else "killed"

    def stop(self, reap=True):
        """Kills the tests and all processes that they have started."""
        child, self._child = self._child, 0
        if child:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            if reap:
                os.waitpid(child, 0)


def survivors(places, wanted, bounds):
    """Runs the tests of these mutants, (name, module, source) each; returns the names of those that survive."""
    found, busy, waiting, begun = [], {}, list(wanted), time.monotonic()
    while waiting or busy:
        for place in places:
            if place in busy and (verdict := place.poll()) is not None:
                name = busy.pop(place)
                found += [name] if verdict == "survived" else []
            if place not in busy and waiting:
                busy[place], module, source = waiting.pop(0)
                place.start(module, source, bounds[module])
                if len(waiting) % 50 == 0:
                    say(f"      {len(waiting)} mutants left, {len(found)} survived, {time.monotonic() - begun:.0f} s")
        time.sleep(0.01)
    return found


def bounds(place, modules):
    """By module, the seconds after which a mutant's tests are stopped: many times what they take with the unchanged module."""
    found = {}
    for module in modules:
        begun, source = time.monotonic(), plain(module)
        place.start(module, source, 600)
        while (verdict := place.poll()) is None:
            time.sleep(0.01)
        if verdict != "survived":
            raise Failure(f"the tests of {module} fail as it is:\n{(place.folder / 'output').read_text()}")
        found[module] = 30 + 10 * (time.monotonic() - begun)
    return found


def listed():
    """The names in tests/mutants.txt; each is followed by an indented line with the reason."""
    lines = [one for one in LISTED.read_text().splitlines() if one and not one.startswith("#")]
    for name, reason in zip(lines[::2], [*lines, ""][1::2], strict=True):
        if name.startswith(" ") or not reason.strip() or not reason.startswith(" "):
            raise Failure(
                f"{LISTED.relative_to(ROOT)}: a name and an indented reason are wanted, not\n{name}\n{reason}"
            )
    return lines[::2]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE", help=f"any of {', '.join(MODULES)}; all of them if none"
    )
    parser.add_argument(
        "--part", default="1/1", metavar="K/N", type=part_of, help="every Nth mutant, from the Kth on (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="name the mutants, and run nothing")
    given = parser.parse_args()
    for module in given.modules:
        if module not in MODULES:
            parser.error(f"no module {module!r}: {', '.join(MODULES)}")
    return given


def mutate():
    given = arguments()
    env = environment(PYTHONHASHSEED=0)  # sets are in the same order in every run
    if Path(sys.prefix) != VENV or os.environ.get("PYTHONHASHSEED") != "0":
        # Tests run in children of this process, which has imported what they share.
        os.execve(VENV / "bin" / "python", [str(VENV / "bin" / "python"), *sys.argv], env)
    part, parts = given.part
    made = [
        (name, module, text)
        for module in given.modules or MODULES
        for name, text in mutations(module, plain(module)).items()
    ]
    wanted, known = made[part - 1 :: parts], listed()
    if given.list:
        return say("\n".join(name for name, _, _ in wanted))
    for package in ("pytest", "numpy", "google_crc32c"):  # once, and not in each child
        importlib.import_module(package)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deepfreeze-mutants-", dir="/dev/shm") as folder:
        places = [Place(Path(folder) / str(number)) for number in range(AT_ONCE)]
        try:
            modules = dict.fromkeys(module for _, module, _ in wanted)
            alive = survivors(places, wanted, bounds(places[0], modules))
        finally:
            for place in places:
                place.stop()
    ran = {name for name, _, _ in wanted}
    gone = [name for name in known if name.partition(":")[0] in (given.modules or MODULES)]
    gone = [name for name in gone if name not in {name for name, _, _ in made}]
    problems = [
        f"a test is missing, or a reason in {LISTED.relative_to(ROOT)}: {name}" for name in alive if name not in known
    ]
    problems += [f"killed now, take the line out: {name}" for name in known if name in ran and name not in alive]
    problems += [f"there is no such mutant any more, take the line out: {name}" for name in gone]
    say(f"mutants: {len(ran)}, {len(alive)} survived ({len(known)} are listed), {time.monotonic() - begun:.0f} s")
    if problems:
        raise Failure("\n".join(problems))


if __name__ == "__main__":
    main(mutate)
