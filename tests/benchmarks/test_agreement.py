"""The benchmark of what ranks agree on compares parts of replicas by the library's own code: what it makes for that fits."""

from __future__ import annotations

import numpy as np

from benchmarks import agreement
from deepfreeze.plan.comparisons import WHOLE, Compared
from veloc_bindings import crc32c


def test_the_parts_that_are_timed_cover_all_weights_once():
    arrays = {"kernel": np.arange(300_000, dtype=np.float32).reshape(300, 1000), "bias": np.ones(1000, np.float32)}
    checksums = agreement.replicas(arrays)
    whole, values = checksums.take(WHOLE)
    assert np.frombuffer(whole, "<u4").tolist() == [crc32c(array) for array in arrays.values()] and not values
    ends = [0]
    for number in range(agreement.PARTS):
        begin, end = checksums.span(Compared(number, agreement.PARTS))
        assert begin == ends[-1] and any(checksums.take(Compared(number, agreement.PARTS))[0])
        ends.append(end)
    assert ends[-1] == sum(array.nbytes for array in arrays.values())
