"""Where mutants are tested: copies of the working tree, in each of which one module at a time is changed. tools/mutants.py uses them."""

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import ClassVar

import native
from project import ROOT, VENV, Failure, environment

# Jobs of their own, which cost every mutant seconds, and are about run.json alone.
LEFT_OUT = "store/test_run.py::test_jobs_that_make_one_run_at_once_agree_on_its_id"
LATE, NOT_COMPILED = 98, 99  # exit codes
VERDICTS = {0: "survived", LATE: "late", NOT_COMPILED: "not compiled"}  # by exit code; any other: "killed"


class Place:
    """A copy in which a child of this process runs the tests of a changed module. ``sources``: the folder that has the modules, in the copy
    as in the working tree."""

    sources = ""

    def __init__(self, folder):
        self.folder, self._child, self._ends, self._changed = folder, 0, 0.0, ""
        folder.mkdir()

    @classmethod
    def plain(cls, module):
        """A module's source, unchanged."""
        return (ROOT / cls.sources / module).read_text()

    def start(self, module, source, tests, bound):
        """Begins to run these tests with this source of a module; they end with the first failure, or after ``bound`` seconds."""
        if self._changed and self._changed != module:
            self.put(self._changed, self.plain(self._changed))
        self.put(module, source)
        self._changed, self._ends = module, time.monotonic() + bound
        self._child = os.fork()
        if self._child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                self._become_child()
                code = self.run(tests)
            os._exit(code)
        with contextlib.suppress(OSError):  # here too: nobody knows which of the two comes first
            os.setpgid(self._child, self._child)

    def put(self, module, source):
        (self.folder / self.sources / module).write_text(source)

    def prepare(self, tests):
        """Makes what these tests need, before the first of them is run."""

    def run(self, tests):
        """Runs these tests, in the child. Returns an exit code. A subclass for each language says how."""
        raise NotImplementedError

    def bound(self, module, tests):
        """The seconds after which the tests of a module's mutants are stopped: many times what they take with the unchanged module."""
        begun = time.monotonic()
        self.start(module, self.plain(module), tests, 600)
        while (verdict := self.poll()) is None:
            time.sleep(0.01)
        if verdict != "survived":
            raise Failure(f"the tests of {module} fail as it is:\n{(self.folder / 'output').read_text()}")
        return 30 + 10 * (time.monotonic() - begun)

    def _become_child(self):
        os.setpgid(0, 0)
        os.chdir(self.folder)
        said = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.environ.update(TMPDIR=str(self.folder), DEEPFREEZE_TEST_SEED="13")

    def poll(self):
        """ "survived" if the tests passed, "killed" if one failed, "not compiled", or "late" if they took too long; None while they run."""
        ended, status = os.waitpid(self._child, os.WNOHANG)
        late = time.monotonic() > self._ends
        if not ended and not late:
            return None
        self.stop(reap=not ended)
        return VERDICTS.get(os.waitstatus_to_exitcode(status), "killed") if ended else "late"

    def stop(self, reap=True):
        """Kills the tests and all processes that they have started."""
        child, self._child = self._child, 0
        if child:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            if reap:
                os.waitpid(child, 0)


_LONGEST_TEST = 60  # seconds: none of the tests that are nearest to a module takes as long


class PythonPlace(Place):
    """For modules of the package. The tests run by pytest, which this process has imported."""

    sources = "deepfreeze"

    def __init__(self, folder):
        super().__init__(folder)
        self._stamp = time.time() // 1
        for path in ROOT.iterdir():
            if path.name in ("deepfreeze", "tests"):
                shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
            elif path.name != ".git":
                (folder / path.name).symlink_to(path)

    def put(self, module, source):
        super().put(module, source)
        # A compiled module is told by time and size alone, and mutants of one second may be of one size.
        self._stamp += 1
        os.utime(self.folder / self.sources / module, (self._stamp, self._stamp))

    def run(self, tests):
        sys.path[0] = str(self.folder)
        # A mutant that waits for ever is the usual one of a wait: its test is given up soon, which ends the process.
        bounded = [f"--timeout={_LONGEST_TEST}", "--timeout-method=thread"]
        named = [*(f"tests/{name}" for name in tests), f"--deselect=tests/{LEFT_OUT}"]
        return int(importlib.import_module("pytest").main(["-x", "-q", "-p", "no:cacheprovider", *bounded, *named]))


class NativePlace(Place):
    """For modules of the engine. A mutant is compiled with what includes it, and each test is linked when it is to run."""

    sources = "native"
    took: ClassVar[dict[str, float]] = {}  # seconds, by test: with the unchanged modules

    def __init__(self, folder):
        super().__init__(folder)
        shutil.copytree(ROOT / "native", folder / "native")
        (folder / "deepfreeze").mkdir()
        shutil.copy(ROOT / "deepfreeze" / "__init__.py", folder / "deepfreeze")  # which has the version
        flags = [f"{option} -w" if "CXX_FLAGS" in option else option for option in native.TESTING]
        command = [VENV / "bin" / "cmake", "-S", folder / "native", "-B", folder / "build", "-G", "Ninja", *flags]
        self._call([*command, f"-DCMAKE_MAKE_PROGRAM={VENV / 'bin' / 'ninja'}"])

    def _call(self, command):
        done = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise Failure(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    def _program(self, test):
        return self.folder / "build" / f"{test}_test"

    def prepare(self, tests):
        """Compiles all that these tests need, with every core, and times each of them once."""
        self._call([VENV / "bin" / "ninja", "-C", self.folder / "build", *(f"{test}_test" for test in tests)])
        for test in tests - self.took.keys():
            begun = time.monotonic()
            self._call([self._program(test)])
            self.took[test] = time.monotonic() - begun

    def bound(self, module, tests):
        return 300 + sum(map(self._bound, tests))  # a header's mutant may have to be compiled with all that include it

    def _bound(self, test):
        """The seconds for one test: a thread that nothing wakes is the usual mutant of a wait, so it is told soon."""
        return 10 + 5 * self.took[test]

    def run(self, tests):
        for test in tests:
            if subprocess.run([VENV / "bin" / "ninja", "-j", "1", "-C", "build", self._program(test).name]).returncode:
                return NOT_COMPILED
            try:
                if subprocess.run([self._program(test)], timeout=self._bound(test)).returncode:
                    return 1
            except subprocess.TimeoutExpired:
                return LATE
        return 0
