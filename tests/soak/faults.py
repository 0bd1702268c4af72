"""Random faults for a whole soak: a plan that a rank process gets at its start (native/testing/fault_env.h)."""

from __future__ import annotations

import random

# What must fail a step, at the given step; {n} is a call's number. A disk stays full,
# as rank 0 tries again if it could delete an old checkpoint.
FAILING = (
    "fail=EROFS:pwrite:step-{step:010d}.partial:{n}",
    "fail=ENOSPC:pwrite:step-{step:010d}.partial:{n}+",
    "fail=EIO:fdatasync:step-{step:010d}.partial:1",
    "lose=EIO:fdatasync:step-{step:010d}.partial:1",
    "fail=EMFILE:open:step-{step:010d}.partial:1",
    "no-memory:pwrite:step-{step:010d}.partial:{n}",
)
# What no step may suffer from.
HARMLESS = (
    "short:pwrite:step-{step:010d}.partial:1+",
    "fail=EIO:pwrite:step-{step:010d}.partial:{n}",
    "fail=ETIMEDOUT:rename:step-{step:010d}.partial:1",
    "delay=200:pwrite:step-{step:010d}.partial:{n}",
    "delay=200:rename:step-{step:010d}.partial:1",
    "delay=200:fsync_dir:step-{step:010d}.partial:1",
    "fail=EIO:unlink:.trash-step-{step:010d}:1",
    "short:pwrite:.slot:{nth}",
    "delay=100:pwrite:.slot:{nth}",
    # The local tier is dropped for the rest of that engine's life.
    "fail=ENOSPC:pwrite:.slot:{nth}",
    "fail=EIO:pwrite:.slot:{nth}",
)


def draw(choose: random.Random, first: int, steps: int, world: int, every: int) -> tuple[list[str], set[int], int]:
    """A plan for each rank, the steps that have to fail, and how many faults there are: one in ``every`` steps."""
    plans: list[list[str]] = [[] for _ in range(world)]
    failing = set()
    count = max(1, steps // every)
    for step in sorted(choose.sample(range(first, first + steps), count)):
        fails = choose.random() < 0.5
        text = choose.choice(FAILING if fails else HARMLESS)
        if fails:
            failing.add(step)
        # A slot is written to at least three times for each checkpoint.
        plan = text.format(step=step, n=choose.randint(1, 2), nth=choose.randint(1, 3 * steps))
        plans[choose.randrange(world)].append(plan)
    return [",".join(plan) for plan in plans], failing, count
