"""The soak in small: that it finds what is wrong, and that nothing is."""

import random

import pytest

from tests.soak import continuous, verdict
from tests.soak.sampling import QUANTITIES
from tests.support.ranks import options, ranks
from tests.support.seed import SEED


def samples(grow, every=4.0, jobs=80):
    """A sample after each job, of two kinds that alternate, one of which leaves more; ``grow`` is added in an hour."""
    choose = random.Random(1)
    seconds = [every * (job + 1) for job in range(jobs)]
    return seconds, [40 + 6 * (n % 2) + choose.random() + grow * second / 3600 for n, second in enumerate(seconds)]


@pytest.mark.parametrize(("grow", "flat"), [(0, True), (-500, True), (10, True), (200, False)])
def test_growth_shows_under_jobs_that_differ_and_noise_does_not(grow, flat):
    found = verdict.judge("memory", *samples(grow))
    assert found["flat"] == flat, found
    assert found["per_hour"] == pytest.approx(grow, abs=30)


def test_a_soak_that_is_too_short_gives_no_verdict():
    with pytest.raises(ValueError, match="too few"):
        verdict.judge("memory", *samples(0, jobs=verdict.FEWEST - 1))


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timing
def test_a_short_soak_with_many_faults_finds_nothing_wrong(library):
    found = continuous.soak(12, seed=SEED, job=10, every=10)
    counts = found["counts"]
    assert not found["wrong"], (found["settings"], found["wrong"])
    assert counts["failed"] > 0 and counts["verified"] > 3
    assert counts["submitted"] == counts["external"] + counts["failed"]
    assert set(found["quantities"]) == set(QUANTITIES) == set(verdict.FLOORS)


@pytest.mark.crash
def test_what_is_not_yet_committed_is_bounded_without_a_local_tier_too(tmp_path, library):
    with ranks(library, "delay=100:rename:manifest.json:1+") as (rank,):
        rank.ask("open", **options(tmp_path, local=False, in_flight=2, slots=2))
        for step in range(10, 30):
            rank.ask("submit", step=step)
        assert len(list((tmp_path / "run").glob("*.partial-*"))) <= 6
