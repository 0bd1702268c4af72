"""`make bench`: runs all benchmarks, one after the other, and writes their tables into docs/benchmarks.md. With --quick they have small
sizes, which only shows that all of them work, and the page stays as it is. First it measures for 30 s how busy the machine is; published
results are not replaced by those of a busier machine, unless --anyway is given."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from project import BUILD, ROOT, VENV, Failure, environment, main, say

NAMES = (
    "peers",
    "machine",
    "stall",
    "callback",
    "overhead",
    "restore",
    "recovery",
    "interval",
    "scaling",
    "agreement",
    "metadata",
    "events",
    "input",
    "resumable",
    "concurrency",
    "io_paths",
    "overlap",
    "paper",
)
RESULTS = ROOT / "benchmarks" / "results"
NEEDED = 8_000_000_000  # bytes of memory, and of disk: the largest checkpoints, twice, and their training
DOCUMENT = ROOT / "docs" / "benchmarks.md"
# What only shows that the benchmarks work must not take the place of what was measured.
QUICK = BUILD / "bench"


def memory_available():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def check_room(folder):
    if not folder.is_dir():
        raise Failure(f"{folder} is no directory")
    disk, memory = shutil.disk_usage(folder).free, memory_available()
    if disk < NEEDED:
        raise Failure(
            f"the benchmarks need {NEEDED / 1e9:.0f} GB of disk; {folder} has {disk / 1e9:.1f} GB free. "
            "Give another one: ARGS='--folder DIR'"
        )
    if memory < NEEDED:
        raise Failure(f"the benchmarks need {NEEDED / 1e9:.0f} GB of memory; {memory / 1e9:.1f} GB are free")


def step(name, command):
    """Runs a command in the project's environment; its output goes to the terminal. Returns whether it succeeded."""
    say(f"\n== {name}")
    begun = time.monotonic()
    code = subprocess.run(list(map(str, command)), cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL).returncode
    say(f"== {name}: {f'FAILED with {code} after ' if code else ''}{time.monotonic() - begun:.0f} s")
    return code == 0


def noise(python, names, passed, anyway):
    """How busy the machine is, for all benchmarks: what they are told of it. ``Failure`` if that is too much for the published results."""
    places = ["--json", QUICK / "noise.json"]
    published = [] if anyway else ["--replaces", *(RESULTS / f"{name}.json" for name in names)]
    if not step("noise (30 s)", [python, "-m", "benchmarks.noise", *passed, *places, *published]):
        raise Failure(
            "nothing was measured; --quick shows that the benchmarks work, --anyway measures and replaces all the same"
        )
    return ["--noise", QUICK / "noise.json", *(["--anyway"] if anyway else [])]


def make_document(python, quick):
    command = [python, "-m", "benchmarks.docs"]
    if quick:
        copy = QUICK / DOCUMENT.name
        shutil.copyfile(DOCUMENT, copy)
        command += ["--results", QUICK, "--document", copy]
    return step("docs", command)


def bench():
    parser = argparse.ArgumentParser(prog="tools/bench.py", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"results go to {QUICK.relative_to(ROOT)} alone")
    parser.add_argument(
        "--paper", action="store_true", help="the paper's experiment alone, in full length (2 hours): make bench-paper"
    )
    parser.add_argument(
        "--goodput",
        action="store_true",
        help="goodput alone (2 hours): make goodput; takes the options --trace, --minutes and --parts of benchmarks.goodput too",
    )
    parser.add_argument("--folder", type=Path, help="on the disk to measure (default: the temporary directory)")
    parser.add_argument("--anyway", action="store_true", help="replace published results on a busier machine too")
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME=DIRECTORY", help="another file system, for io_paths"
    )
    args, of_goodput = parser.parse_known_args()
    if of_goodput and not args.goodput:
        parser.error(f"unrecognized arguments: {' '.join(of_goodput)}")
    check_room(args.folder or Path(tempfile.gettempdir()))
    python = VENV / "bin" / "python"
    if not python.exists():
        raise Failure("there is no .venv: run make setup")
    begun = time.monotonic()
    alone = [name for name in ("paper", "goodput") if getattr(args, name)]
    names = alone or NAMES
    # The others' libraries are optional: `peers` says itself what it does without them.
    if "peers" in names and not step("the peers' environment", [sys.executable, ROOT / "tools" / "peers.py"]):
        say("the peers can't be installed here; going on without them")
    passed = ["--folder", os.path.abspath(args.folder)] if args.folder else []
    QUICK.mkdir(parents=True, exist_ok=True)
    passed += ["--quick"] if args.quick else noise(python, names, passed, args.anyway)
    # The machine's limits are measured in the rounds of `peers`.
    more = {
        "machine": ["--of", (QUICK if args.quick else RESULTS) / "peers.json"],
        "paper": ["--long"] if args.paper else [],
        "goodput": of_goodput,
        "io_paths": [f"--also={place}" for place in args.also],
    }
    failed = [
        name for name in names if not step(name, [python, "-m", f"benchmarks.{name}", *passed, *more.get(name, [])])
    ]
    goals = ["--json", QUICK / "goals.json"] if args.quick else []
    if not alone and not step("goals", [python, "-m", "benchmarks.goals", *goals]):
        failed.append("goals")
    # Of a quick run of one benchmark the others have no results there.
    if not (alone and args.quick) and not make_document(python, args.quick):
        failed.append("docs")
    say(f"\n{(time.monotonic() - begun) / 60:.1f} minutes in all")
    if failed:
        raise Failure(f"these failed: {', '.join(failed)}; what they said stands above")


if __name__ == "__main__":
    main(bench)
