"""`make test-tf215`: tests DeepFreeze on TensorFlow 2.15 with its own Keras 2.15, which older clusters have. Makes .venv-tf215, once. There
it runs the tests of `make test` that train, save, read and restore, and those that go from one environment to the other. Arguments go
to pytest; with --make-only no test runs."""

import fcntl
import os
import subprocess
import sys

import environment
import horovod
import setup
import system
from project import BUILD, ROOT, VENV, Failure, main, say

PLACE = environment.Place(ROOT / ".venv-tf215", ROOT / "tools" / "tf215.lock", "tf215.log")
NEWER = (3, 12)  # than any Python that TensorFlow 2.15 knows
# What depends on TensorFlow, Keras or Horovod. All else is the same code on the same Python, and is tested in .venv. In these files
# tests of what only newer Kerases have are skipped, each with its reason.
TESTS = [
    "training",
    "frameworks",
    "engine",
    "freeze",
    "resumable/test_kerases.py",
    "tiers/test_local_tier.py",
    "thaw/test_read.py",
    "horovod/test_ranks.py",
    "horovod/test_trainings.py",
    "horovod/test_agreement.py::test_a_sigterm_to_any_rank_ends_all_ranks_cleanly",
    "horovod/test_agreement.py::test_a_flipped_bit_on_one_rank_is_named_and_the_checkpoint_is_marked",
]
# With what `make test` leaves out: a checkpoint of one environment, restored in the other; models that their first batch builds, and going
# on inside of an epoch, where this Keras differs most from the others; policies and late captures on several ranks; rehearsed kills.
WHOLE = [
    "thaw/test_versions.py",
    "training/test_later_built.py",
    "training/test_data_batches.py",
    "training/test_callback_states.py::test_callbacks_of_a_job_killed_inside_an_epoch_go_on_with_its_data",
    "resumable/test_skipping.py",
    "resumable/test_iterator_state.py",
    "cli/test_resume_check.py",
    "crash/test_uncommitted.py",
    "horovod/test_later_built.py",
    "horovod/test_data.py",
    "horovod/test_policies.py",
    "horovod/test_late_capture.py",
]
PYTEST = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]


def make():
    if sys.version_info >= NEWER:
        have = ".".join(map(str, sys.version_info[:2]))
        raise Failure(f"TensorFlow 2.15 has no packages for Python {have}: make PYTHON=python3.11 test-tf215")
    BUILD.mkdir(exist_ok=True)
    # Two at once in one clone: the second waits, then finds everything done.
    with open(BUILD / "tf215.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not environment.ready(PLACE):
            say(f"making {PLACE.venv.name} and installing the pinned packages (1 to 3 minutes, once)")
            system.check()
            environment.make(PLACE)
            (PLACE.venv / ".gitignore").write_text("*\n")
            environment.install(PLACE)
        if not horovod.ready(PLACE):
            say(
                "installing Horovod for TensorFlow 2.15, which is built first if the cache has no wheel (3 to 5 minutes)"
            )
            horovod.install(PLACE)
        if not setup.installed(PLACE):
            say(f"installing deepfreeze into {PLACE.venv.name} (editable)")
            setup.itself(PLACE)


def test():
    arguments = sys.argv[1:]
    if not (VENV / "bin" / "python").exists():
        raise Failure("there is no .venv, whose tools build the engine: run make setup")
    make()
    if arguments == ["--make-only"]:
        return 0
    # What is on the caller's PYTHONPATH may be of another environment.
    env = {name: value for name, value in PLACE.variables().items() if name != "PYTHONPATH"}
    codes = []
    for tests, options in ((TESTS, ["--tier", "test"]), (WHOLE, [])):
        command = [PLACE.python, "-m", "pytest", *(f"tests/{name}" for name in tests), *PYTEST, *options, *arguments]
        codes.append(subprocess.run(list(map(os.fspath, command)), cwd=ROOT, env=env, stdin=subprocess.DEVNULL))
    return max(code.returncode for code in codes)


if __name__ == "__main__":
    main(test)
