"""A target of targets.py under atheris: python tests/hostile/fuzz_python.py TARGET [libFuzzer's options and folders].

tools/fuzz.py runs it, with atheris on the path; nothing else needs it.
"""

from __future__ import annotations

import random
import resource
import sys
from pathlib import Path

import atheris

# numpy and the rest of the environment are too large to be looked into, and not what is under test.
with atheris.instrument_imports(include=["deepfreeze"]):
    from deepfreeze.format import structure  # noqa: F401

from tests.hostile.targets import TARGETS

MEMORY = 512 << 20  # beside what is in use: an allocation that no input is worth fails, and so shows itself


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    target = TARGETS[sys.argv.pop(1)]
    most = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        # One in four keeps its wrong checksums, one in four its wrong sizes too.
        choice = random.Random(seed).randrange(4)
        made = atheris.Mutate(data, len(data) if choice == 3 and data else most)
        repaired = target.repair(made, choice > 1) if choice else made
        return repaired if len(repaired) <= most else made

    atheris.Setup(sys.argv, lambda data: target.run(bytes(data)) and None, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
