"""`make soak`: does for hours what `make test` does for seconds. It kills ranks at random moments, also of trainings that go on with other
ranks and other batches, saves checkpoints continuously under random faults, and trains with the engine built with sanitizers and with a
model of 20,000 variables. Each part prints what it found; the last line is the verdict."""

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import native
from analyse import SANITIZERS
from project import BUILD, ROOT, VENV, Failure, environment, main, say

RESULTS = BUILD / "soak"
ROUNDS = 500  # kills of rank processes; real trainings get a tenth, and so does the attack on the input
SEED = "DEEPFREEZE_TEST_SEED"  # which all parts read
INPUT = "attack on the input"
VARIABLES = 20_000
PYTHON = VENV / "bin" / "python"
STEPS, EVERY = 40, 2


def step(name, command, env):
    """Runs a command; its output goes to the terminal. Returns whether it succeeded."""
    say(f"\n== {name}")
    begun = time.monotonic()
    code = subprocess.run(list(map(str, command)), cwd=ROOT, env=env, stdin=subprocess.DEVNULL).returncode
    say(f"== {name}: {f'FAILED with {code} after ' if code else ''}{time.monotonic() - begun:.0f} s")
    return code == 0


def kills(test, rounds):
    def run():
        command = [PYTHON, "-m", "pytest", "-q", "-s", ROOT / "tests" / test]
        return step(f"{rounds} kills, {test}", command, environment(DEEPFREEZE_TEST_ROUNDS=rounds))

    return run


def kills_in_epochs(kills):
    def run():
        name = f"{kills} kills of trainings that go on inside of their epoch"
        return step(name, [PYTHON, "-m", "tests.soak.attack", "--kills", kills], environment())

    return run


def many_variables():
    """Trains a model of 20,000 variables. TensorFlow needs minutes to make and trace them."""
    command = [PYTHON, "-m", "pytest", "-q", ROOT / "tests" / "training" / "test_models.py", "-k", "many_variables"]
    return step(f"{VARIABLES} variables", command, environment(DEEPFREEZE_TEST_VARIABLES=VARIABLES))


def continuous(hours, json, png):
    def run():
        places = ["--json", json.absolute(), "--png", png.absolute()]
        command = [PYTHON, "-m", "tests.soak.continuous", "--seconds", hours * 3600, *places]
        return step(f"{hours:g} hours of continuous checkpoints", command, environment())

    return run


def compilers_library(name):
    """The path of a library (libasan.so, for example) that belongs to the compiler of the engine."""
    compiler = os.environ.get("CXX") or "g++"
    command = [*compiler.split(), f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).is_absolute():
        raise Failure(
            f"{compiler} has no {name}: install its sanitizers (Debian: libgcc-12-dev), or use another compiler"
        )
    return os.path.realpath(found)


def preload():
    """The libraries to load before Python (LD_PRELOAD). The address sanitizer looks up __cxa_throw when it starts, and Python itself has
    no C++ in it: without the C++ runtime in this list, the first C++ exception in any extension would end the process."""
    return ":".join(map(compilers_library, ("libasan.so", "libstdc++.so.6")))


def sanitized():
    """Trains on two ranks with the engine under sanitizers; any finding ends the training."""
    folder = native.build(
        "address", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DDF_TESTING=ON", f"-DDF_SANITIZE={SANITIZERS['address']}"
    )
    # Python and TensorFlow keep what they have until the end, so leaks are looked for by the engine's own tests.
    findings = RESULTS / "sanitizer"
    findings.parent.mkdir(parents=True, exist_ok=True)
    for old in findings.parent.glob(f"{findings.name}.*"):
        old.unlink()
    bounds = f"abort_on_error=1:log_path={findings}"
    env = environment(
        DEEPFREEZE_LIBRARY=folder / "libdeepfreeze.so",
        ASAN_OPTIONS=f"detect_leaks=0:{bounds}",
        UBSAN_OPTIONS=f"print_stacktrace=1:halt_on_error=1:{bounds}",
        PYTHONPATH=ROOT,
        CUDA_VISIBLE_DEVICES=-1,
        OMP_NUM_THREADS=1,
    )
    trainings = Path(tempfile.mkdtemp(prefix="deepfreeze-soak-"))
    try:
        passed = True
        for kind in ("dense", "conv"):
            (trainings / kind).mkdir()
            job = [
                PYTHON,
                ROOT / "tests" / "jobs" / "ranks.py",
                "keras",
                trainings / kind,
                STEPS,
                EVERY,
                f"kind={kind}",
            ]
            launch = ["mpirun", "--oversubscribe", "-np", 2, "-x", f"LD_PRELOAD={preload()}", *job]
            if not step(f"training of two ranks ({kind}), engine built with {SANITIZERS['address']}", launch, env):
                passed = False
                continue
            verify = [PYTHON, "-m", "deepfreeze", "verify", trainings / kind / "run"]
            passed = step("its checkpoints", verify, environment(PYTHONPATH=ROOT)) and passed
    finally:
        shutil.rmtree(trainings, ignore_errors=True)
    for report in sorted(findings.parent.glob(f"{findings.name}.*")):
        passed = False
        say(f"a sanitizer's finding is in {report.relative_to(ROOT)}:\n{report.read_text(errors='replace')[:4000]}")
    return passed


def soak():
    parser = argparse.ArgumentParser(prog="tools/soak.py", description=__doc__)
    parser.add_argument("--hours", type=float, default=2, help="of continuous checkpoints (default: 2)")
    rounds = f"kills of rank processes (default: {ROUNDS}); trainings, and the attack on the input, get a tenth"
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=rounds)
    parser.add_argument("--json", type=Path, default=RESULTS / "soak.json", help="samples and verdict")
    parser.add_argument("--png", type=Path, default=RESULTS / "soak.png", help="the samples over time")
    parser.add_argument("--seed", type=int, help="of everything that is drawn (default: another one each time)")
    only = "only the attack on the input: is any item trained twice in an epoch?"
    parser.add_argument("--input", action="store_true", help=only)
    args = parser.parse_args()
    if args.seed is not None:
        os.environ[SEED] = str(args.seed)
    if not PYTHON.exists():
        raise Failure("there is no .venv: run make setup")
    trainings = max(1, args.rounds // 10)
    parts = {
        "kills of rank processes": kills("crash/test_random_kills.py", args.rounds),
        "kills of real training": kills("horovod/test_kills.py", trainings),
        INPUT: kills_in_epochs(trainings),
        "training under sanitizers": sanitized,
        "very many variables": many_variables,
        "continuous checkpoints": continuous(args.hours, args.json, args.png),
    }
    if args.input:
        parts = {INPUT: parts[INPUT]}
    begun = time.monotonic()
    failed = [name for name, part in parts.items() if not part()]
    samples = "" if args.input else f"; samples in {args.json}, drawn in {args.png}"
    say(f"\n{(time.monotonic() - begun) / 60:.1f} minutes in all{samples}")
    if failed:
        raise Failure(f"these failed: {', '.join(failed)}; what they said stands above")


if __name__ == "__main__":
    main(soak)
