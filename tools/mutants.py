"""Changes modules, one small change (a mutant) at a time, and checks that a test fails because of each: the modules that write files, or
those that are named, which may be Python modules of the package and C++ modules of the engine.

A mutant whose tests all pass survives. tests/mutants.txt lists the mutants that may survive, each with the reason. Any other survivor
is a failure, and so is a line of the list whose mutant does not survive. No library does this: neither mutmut nor cosmic-ray removes a
statement, and a removed fsync is the mutant that matters most here.
"""

import argparse
import importlib
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import mutations
import native_mutations
from mutant_places import NativePlace, PythonPlace
from project import ROOT, VENV, Failure, environment, main, part_of, say

LISTED = ROOT / "tests" / "mutants.txt"
_POWER = ["crash/test_power_loss.py::test_what_python_has_made_survives_a_loss_of_power"]
# For each module the tests that are nearest to it, the fastest first. These modules write files, and are changed if none is named.
WRITERS = {
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
_TABLE = [
    "job_table",
    "job_reports",
    "job_waits",
    "upkeep",
    "level_state",
    "buffer_parts",
    "tuning",
    "transfers",
    "touch",
    "engine",
    "bounded_run",
]
_MEETING = [
    "meeting",
    "dir_meeting",
    "node_meeting",
    "verdict",
    "node_records",
    "counts",
    "heartbeat",
    "store",
    "network",
]
_FAULTS = ["both_levels", "retry", "interrupt", "no_memory"]
_DATA = [
    "resumable/test_order.py",
    "resumable/test_dealing.py",
    "resumable/test_nested.py",
    "resumable/test_source.py",
    "resumable/test_batches.py",
    "resumable/test_passes.py",
    "resumable/test_placed_input.py",
    "resumable/test_resumable_options.py",
    "resumable/test_resumable.py",
    "resumable/test_read_ahead.py",
]
_KERAS = "resumable/test_kerases.py"
# Those of other modules, a file or all files of a folder: the tests that are nearest, and those that may kill what the nearest ones miss.
OTHERS = {
    "engine/job_table": (_TABLE, _FAULTS),
    "engine/upkeep": (["upkeep", "retention", "bounded_run", "transfers"], _FAULTS),
    "store/dir_meeting": (_MEETING, _FAULTS),
    "data/iterator_state.py": (["resumable/test_iterator_state.py"], []),
    "data/keras_calls.py": (["resumable/test_keras_calls.py", _KERAS], []),
    "data/keras_input.py": (["resumable/test_keras_input.py", "resumable/test_resumable.py"], [_KERAS]),
    "data/skipping.py": (["resumable/test_skipping.py"], [_KERAS]),
    "data/": (_DATA, [_KERAS, "resumable/test_skipping.py"]),
    "plan/epochs.py": (["plan/test_epochs.py"], ["resumable/test_resumable.py", "training/test_data.py"]),
    "training/input_position.py": (
        ["resumable/test_input_position.py"],
        ["training/test_data.py", "training/test_data_batches.py", "training/test_interrupted_fits.py"],
    ),
}


def tests_of(module):
    """The tests that are nearest to a module."""
    return WRITERS[module] if module in WRITERS else _of_others(module)[0]


def further_tests_of(module):
    """The tests that may kill what the nearest ones miss. A module of the store has all other tests of the store that need no TensorFlow,
    and those of links. So a new test counts without a line here."""
    if module not in WRITERS:
        return _of_others(module)[1]
    if not module.startswith("store/"):
        return []
    files = [
        one for one in sorted((ROOT / "tests/store").glob("test_*.py")) if "mark.tensorflow" not in one.read_text()
    ]
    names = [*(f"store/{one.name}" for one in files), "hostile/test_links.py"]
    return [one for one in names if one not in WRITERS[module]]


def _of_others(module):
    for begin, tests in OTHERS.items():
        if module.startswith(begin):
            return tests
    raise Failure(f"which tests are about {module}? tools/mutants.py needs a line for it in OTHERS")


def kind_of(module):
    """The places in which a module's mutants are tested."""
    return PythonPlace if module.endswith(".py") else NativePlace


def mutants_of(module):
    """By name, the source of each mutant of a module."""
    make = mutations if kind_of(module) is PythonPlace else native_mutations
    return make.mutations(module, kind_of(module).plain(module))


def verdicts(places, wanted, tests_of):
    """Runs their tests on these mutants, (name, module, source) each; returns what has become of each, by name: see ``Place.poll``."""
    bounds = {module: places[0].bound(module, tests_of(module)) for module in {module for _, module, _ in wanted}}
    found, busy, waiting, begun = {}, {}, list(wanted), time.monotonic()
    while waiting or busy:
        for place in places:
            if place in busy and (verdict := place.poll()) is not None:
                name = busy.pop(place)
                found[name] = verdict
                if verdict == "survived":
                    say(f"      survived: {name}")
            if place not in busy and waiting:
                busy[place], module, source = waiting.pop(0)
                place.start(module, source, tests_of(module), bounds[module])
                if len(waiting) % 50 == 0:
                    survived = list(found.values()).count("survived")
                    say(f"      {len(waiting)} mutants left, {survived} survived, {time.monotonic() - begun:.0f} s")
        time.sleep(0.01)
    return found


def tested(wanted, jobs):
    """What becomes of these mutants, (name, module, source) each, by name; so many are tested at once."""
    found = {}
    for kind in (PythonPlace, NativePlace):
        chosen = [one for one in wanted if kind_of(one[1]) is kind]
        modules = list(dict.fromkeys(module for _, module, _ in chosen))
        if not chosen:
            continue
        if kind is PythonPlace:
            import_once({test for module in modules for test in tests_of(module)})
        with tempfile.TemporaryDirectory(prefix="deepfreeze-mutants-", dir="/dev/shm") as folder:
            places = [kind(Path(folder) / str(number)) for number in range(jobs)]
            try:
                for place in places:
                    place.prepare({test for module in modules for test in tests_of(module)})
                found |= verdicts(places, chosen, tests_of)
                alive = [one for one in chosen if found[one[0]] == "survived" and further_tests_of(one[1])]
                if alive:
                    further = {test for _, module, _ in alive for test in further_tests_of(module)}
                    if kind is PythonPlace:
                        import_once(further)
                    for place in places:
                        place.prepare(further)
                    say(f"      {len(alive)} survivors once more, with further tests")
                    found |= verdicts(places, alive, further_tests_of)
            finally:
                for place in places:
                    place.stop()
    return found


def import_once(tests):
    """Imports what these tests need, once, and not in each child."""
    marked = any("pytest.mark.tensorflow" in (ROOT / "tests" / test.partition("::")[0]).read_text() for test in tests)
    for package in ("pytest", "numpy", "google_crc32c", *(["tensorflow"] if marked else [])):
        importlib.import_module(package)


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
        "modules",
        nargs="*",
        metavar="MODULE",
        help="of deepfreeze/ or native/, for example store/run.py or engine/upkeep.cc; without any: those that write files",
    )
    parser.add_argument(
        "--part", default="1/1", metavar="K/N", type=part_of, help="every Nth mutant, from the Kth on (default: all)"
    )
    parser.add_argument(
        "--jobs", default=2, metavar="N", type=int, help="test so many mutants at once, each in a copy (default: 2)"
    )
    parser.add_argument("--list", action="store_true", help="name the mutants, and run nothing")
    given = parser.parse_args()
    for module in given.modules:
        if not (ROOT / kind_of(module).sources / module).is_file():
            parser.error(f"no module {module!r} in {kind_of(module).sources}/")
        tests_of(module)
    return given


def mutate():
    given = arguments()
    env = environment(PYTHONHASHSEED=0)  # sets are in the same order in every run
    if Path(sys.prefix) != VENV or os.environ.get("PYTHONHASHSEED") != "0":
        # Tests run in children of this process, which has imported what they share.
        os.execve(VENV / "bin" / "python", [str(VENV / "bin" / "python"), *sys.argv], env)
    part, parts = given.part
    modules = given.modules or list(WRITERS)
    made = [(name, module, text) for module in modules for name, text in mutants_of(module).items()]
    wanted, known = made[part - 1 :: parts], listed()
    if given.list:
        return say("\n".join(name for name, _, _ in wanted))
    begun = time.monotonic()
    found = tested(wanted, given.jobs)
    alive = [name for name, verdict in found.items() if verdict == "survived"]
    gone = [name for name in known if name.partition(":")[0] in modules and name not in {name for name, _, _ in made}]
    problems = [
        f"a test is missing, or a reason in {LISTED.relative_to(ROOT)}: {name}" for name in alive if name not in known
    ]
    problems += [f"killed now, take the line out: {name}" for name in known if name in found and name not in alive]
    problems += [f"there is no such mutant any more, take the line out: {name}" for name in gone]
    counts = ", ".join(f"{number} {verdict}" for verdict, number in sorted(Counter(found.values()).items()))
    say(f"mutants: {len(found)}: {counts} ({len(known)} are listed), {time.monotonic() - begun:.0f} s")
    if problems:
        raise Failure("\n".join(problems))


if __name__ == "__main__":
    main(mutate)
