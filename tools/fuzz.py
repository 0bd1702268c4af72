"""Feeds mutated files to every reader of files: the engine's by libFuzzer, Python's by atheris.

Installs libFuzzer and atheris if they are missing. The inputs to begin with are in native/fuzz/corpus and tests/hostile/corpus. New
inputs that reach new code are kept in build/fuzz/corpus, for the next run. An input on which a reader fails is written to
build/fuzz/findings, and its name is printed: copy it into the corpus together with the fix.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import environment
import native
import project
import system
from project import BUILD, ROOT, VENV, Failure, main, run_logged, say

FUZZ = BUILD / "fuzz"
SITE = FUZZ / "python"
LOCK = ROOT / "tools" / "fuzz.lock"
FINDINGS = FUZZ / "findings"
NATIVE = ("slot", "record", "manifest")
PYTHON = ("record", "slot", "manifest", "structure", "run", "config", "plan", "step", "extras", "marks", "events")
TARGETS = [*(f"native-{name}" for name in NATIVE), *(f"python-{name}" for name in PYTHON)]
CLANGS = ("clang++", *(f"clang++-{version}" for version in range(25, 10, -1)))
PROBE = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n'
LARGEST = 16384  # bytes of an input: room for a slot with several extents


def clang():
    """The first clang that has libFuzzer and the sanitizers, or None."""
    FUZZ.mkdir(parents=True, exist_ok=True)
    for name in CLANGS:
        found = shutil.which(name)
        flags = ["-fsanitize=fuzzer,address,undefined", "-x", "c++", "-", "-o", FUZZ / "probe"]
        if found and not subprocess.run([found, *flags], input=PROBE.encode(), capture_output=True).returncode:
            return found
    return None


def compiler():
    found = clang()
    if not found and system.install(system.FUZZING):
        found = clang()
    if not found:
        raise Failure(
            "no clang with libFuzzer: neither clang++ nor clang++-N on PATH links -fsanitize=fuzzer,address,undefined"
            f"\nOn Debian or Ubuntu: sudo apt-get install {' '.join(system.FUZZING)}"
            "\nThe Python readers are fuzzed without it: make fuzz ARGS='python-record python-structure'"
        )
    return found


def atheris():
    """Installs the packages of fuzz.lock into a folder of their own, which only fuzzing uses."""
    stamp = SITE / ".packages"
    wanted = f"{sys.version_info[:2]} {hashlib.sha256(LOCK.read_bytes()).hexdigest()}"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    shutil.rmtree(SITE, ignore_errors=True)
    # Wheels alone: without one for this Python atheris would build LLVM's runtime for an hour.
    options = ["--no-deps", "--only-binary", ":all:", "--target", SITE, "-r", LOCK]
    advice = "Is there a network, and a wheel of atheris for this Python and machine? `make fuzz ARGS=native-slot` needs none."
    run_logged([*environment.PIP, "install", *options], "fuzz.log", advice)
    stamp.write_text(wanted)


def prepare(targets):
    """The command of each target, without the fuzzer's options."""
    commands = {}
    if any(target.startswith("native-") for target in targets):
        options = [f"-DCMAKE_CXX_COMPILER={compiler()}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
        folder = native.build("fuzz", *options, "-DDF_FUZZ=ON", "-DDF_SANITIZE=address,undefined")
        commands |= {f"native-{name}": [folder / f"{name}_fuzz"] for name in NATIVE}
    if any(target.startswith("python-") for target in targets):
        atheris()
        program = [VENV / "bin" / "python", ROOT / "tests" / "hostile" / "fuzz_python.py"]
        commands |= {f"python-{name}": [*program, name] for name in PYTHON}
    return {target: commands[target] for target in targets}


def corpus(target):
    kind, name = target.split("-")
    folder = ROOT / "native" / "fuzz" / "corpus" / name
    return folder if kind == "native" or folder.is_dir() else ROOT / "tests" / "hostile" / "corpus" / name


def fuzz(target, command, runs, seconds):
    """Fuzzes one target. True if no input made its reader fail."""
    found = FUZZ / "corpus" / target
    found.mkdir(parents=True, exist_ok=True)
    FINDINGS.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_len={LARGEST}",
        "-rss_limit_mb=2048",
        "-timeout=10",
        "-print_final_stats=1",
        "-use_value_profile=1",
    ]
    # No input of 16 KiB is worth an allocation of 64 MiB.
    options += ["-malloc_limit_mb=64"] if target.startswith("native-") else []
    options += [f"-artifact_prefix={FINDINGS}/{target}-"]
    options += [f"-max_total_time={seconds}"] if seconds else [f"-runs={runs}"]
    path = project.LOGS / f"fuzz-{target}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    env = project.environment(PYTHONPATH=f"{ROOT}{os.pathsep}{SITE}")
    begun = time.monotonic()
    # In memory: slots are files, and the disk would be what is measured. A fuzzer ends without cleaning up.
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="deepfreeze-fuzz-", dir=memory) as folder, open(path, "wb") as out:
        env["TMPDIR"] = folder
        line = [*map(str, [*command, *options, found, corpus(target)])]
        code = subprocess.run(line, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out).returncode
    text = path.read_text(errors="replace")
    done = re.findall(r"^stat::number_of_executed_units: (\d+)", text, re.M) or re.findall(r"^#(\d+)\s", text, re.M)
    seen = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)/", text)
    numbers = "coverage {}, features {}, corpus {}".format(*seen[-1]) if seen else "no coverage"
    enough = code == 0 and done and (seconds or int(done[-1]) >= runs)
    verdict = "ok" if enough else "FOUND SOMETHING"
    say(
        f"{target:17} {int(done[-1]) if done else 0:>9} executions, {numbers}, {time.monotonic() - begun:.0f} s: {verdict}"
    )
    if not enough:
        wrote = re.findall(r"Test unit written to (\S+)", text)
        say(f"    input: {wrote[-1] if wrote else 'none was written'}; again: {' '.join(map(str, command))} INPUT")
        say(project.tail(path))
    return bool(enough)


def arguments():
    parser = argparse.ArgumentParser(prog="make fuzz ARGS=...", description=__doc__.split("\n")[0])
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"any of {', '.join(TARGETS)}; all of them if none"
    )
    parser.add_argument("--runs", type=int, default=1_000_000, help="executions of each target (default: a million)")
    parser.add_argument(
        "--seconds", type=int, default=0, help="time for each target, in place of a number of executions"
    )
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time (default: one)")
    parser.add_argument(
        "--if-possible", action="store_true", help="where clang or atheris can't be had, say so and end well"
    )
    given = parser.parse_args()
    for target in given.targets:
        if target not in TARGETS:
            parser.error(f"no target {target!r}: {', '.join(TARGETS)}")
    return given


def all_of_it():
    given = arguments()
    commands = {}
    for kind in ("native", "python"):
        wanted = [target for target in given.targets or TARGETS if target.startswith(kind)]
        try:
            commands |= prepare(wanted)
        except Failure as reason:
            if not given.if_possible:
                raise
            say(f"fuzz: not run: the {kind} readers: {reason}")
    if not commands:
        return
    with ThreadPoolExecutor(given.jobs) as pool:
        good = pool.map(lambda item: fuzz(*item, given.runs, given.seconds), commands.items())
        failed = [target for target, passed in zip(commands, good, strict=True) if not passed]
    if failed:
        raise Failure(f"fuzz: {', '.join(failed)}; see build/logs/fuzz-TARGET.log")


if __name__ == "__main__":
    main(all_of_it)
