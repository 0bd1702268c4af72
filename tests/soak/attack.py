"""The attack on the input: trainings that are killed at random moments and go on with other ranks and other batches, until no item is
trained twice.

python -m tests.soak.attack --kills 50 --seed 7

Each chain is one training (tests/jobs/attacked.py) that Horovod's ranks begin, SIGKILL ends, and other ranks go on with: 1, 2, 3, and 1
again, or the same ones (tests/soak/chains.py). Every item is noted before it is trained. At the end of a chain no item of an epoch was
trained twice or left out, History has all epochs, and callbacks and weights are those of a training that nobody has killed
(tests/soak/ended.py). Ends with 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.soak import ended  # noqa: E402
from tests.soak.chains import Attempt, Chain, Kill, draw  # noqa: E402
from tests.support import jobs, kerases, trained  # noqa: E402

PAUSE = 0.03  # seconds after each batch of an attempt that is killed at a random moment
KILLED = 128 + signal.SIGKILL  # what mpirun ends with then


@dataclass(frozen=True)
class Found:
    """What came of a chain: how many attempts were killed, how many steps they have trained, how many of these are in the history it has
    ended with, from which steps the attempts went on, and what is ``wrong``."""

    kills: int
    trained: int
    kept: int
    began: tuple[int, ...]
    wrong: tuple[str, ...]


def attack(chain: Chain, folder: Path) -> Found:
    """Trains the ``chain`` in an empty ``folder``."""
    whole, kills, last, faults = None, 0, 0, list[str]()
    try:
        for last, attempt in enumerate(chain.attempts):
            if _train(chain, attempt, folder, last):
                break
            kills += 1
        if chain.undisturbed is not None:
            whole = folder / "undisturbed"
            whole.mkdir()
            _train(chain, chain.undisturbed, whole, 0)
        faults += ended.wrong(chain, folder, last, whole)
    except AssertionError as error:  # an attempt has failed by itself, or hangs; its ranks' last lines are printed
        faults.append(str(error))
    steps = [trained.steps(folder, attempt) for attempt in range(last + 1)]
    began = tuple(min(attempt) - 1 for attempt in steps if attempt)
    return Found(kills, sum(map(len, steps)), len(ended.history(folder, last)), began, tuple(faults))


def _train(chain: Chain, attempt: Attempt, folder: Path, number: int) -> bool:
    """Trains one attempt. Returns whether it came to its end; False if it was killed. Fails if it was neither."""
    kill = attempt.kill
    moment = kill is not None and kill.delay is not None
    told = {
        "api": chain.api,
        "items": chain.items,
        "epochs": chain.epochs,
        "input": chain.input,
        "last": chain.last,
        "batch": attempt.batch,
        "every": attempt.every,
        "waits": kill is not None and not moment,
        "opens": attempt.opens,
        "looks": attempt.looks,
        "pause": PAUSE if moment else 0,
        "dies": kill.step if kill is not None and not moment else 0,
    }
    # Horovod sums fused tensors in an order that depends on when they come, and sums of three are not the same in each order.
    alone = {"HOROVOD_FUSION_THRESHOLD": "0"}
    with jobs.job("attacked.py", folder, number, json.dumps(told), ranks=attempt.ranks, **alone) as job:
        shot = kill is not None and moment and _kill(job, kill, attempt.ranks, folder, number)
        status = job.wait()
        killed = shot or (told["dies"] and status == KILLED)
        assert status == 0 or killed, f"attempt {number}, of {attempt.ranks} ranks, has ended by itself with {status}"
        return status == 0


def _kill(job: jobs.Job, kill: Kill, ranks: int, folder: Path, number: int) -> bool:
    """Kills at the moment that ``kill`` says. Returns False if the job has ended before."""
    while not trained.begun(folder, number, ranks) or max(trained.steps(folder, number), default=0) < kill.step:
        if job.poll() is not None:
            return False
        time.sleep(0.01)
    time.sleep(kill.delay or 0)
    running = job.poll() is None
    for rank in range(ranks) if kill.rank is None else (kill.rank,):
        with suppress(ProcessLookupError):
            os.kill(job.pid(rank), signal.SIGKILL)
    return running


def soak(seed: int, kills: int) -> tuple[Counter[str], list[str]]:
    """Attacks chains until so many attempts were killed. Prints a line for each chain. Returns counts, and what is wrong."""
    counts, faults = Counter[str](), list[str]()
    while counts["kills"] < kills:
        found = one(seed, counts["chains"])
        counts.update(chains=1, kills=found.kills, **{"steps trained": found.trained, "of them kept": found.kept})
        faults += [f"chain {counts['chains'] - 1}: {text}" for text in found.wrong]
    return counts, faults


def one(seed: int, number: int) -> Found:
    """Attacks the chain of this ``number``, and prints what came of it."""
    chain, begun = draw(seed, number, kerases.NAMES), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deepfreeze-soak-") as folder:
        found = attack(chain, Path(folder))
    verdict = f"{len(found.wrong)} WRONG" if found.wrong else "right"
    did = f"{found.kills} kills, {found.kept} steps of {found.trained}, begun at {', '.join(map(str, found.began))}"
    print(f"chain {number}: {chain}: {did}, {time.monotonic() - begun:.0f} s: {verdict}", flush=True)
    for text in found.wrong:
        print(f"    {text}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="of attempts (default: 50)")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("DEEPFREEZE_TEST_SEED", "0")))
    parser.add_argument("--chain", type=int, help="the number of the only chain that is attacked, from 0")
    args = parser.parse_args()
    seed = args.seed or random.SystemRandom().randrange(1, 2**31)
    print(f"seed {seed} (--seed, DEEPFREEZE_TEST_SEED)", flush=True)
    if args.chain is not None:
        return bool(one(seed, args.chain).wrong)
    counts, faults = soak(seed, args.kills)
    print(", ".join(f"{value} {name}" for name, value in counts.items()))
    for text in faults:
        print(f"WRONG: {text}")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
