"""A policy: checkpoints at every n-th prime step. A rank wishes for a larger n where checkpoints cost too much; the ranks agree on n."""

import bisect

import numpy as np

from deepfreeze.plan import Observation, Wish


class PrimeSteps:
    """Checkpoints at the n-th, 2n-th, 3n-th, ... prime: steps 2, 3, 5, 7, ... with ``n=1``, and 3, 7, 13, 19, ... with ``n=2``.

    n doubles, up to ``most``, when checkpoints hold training up for more than the fraction ``overhead`` of its time, or when a commit takes
    longer than ``commit_seconds``."""

    def __init__(self, n: int = 1, overhead: float = 0.03, commit_seconds: float = 60.0, most: int = 1024) -> None:
        self.overhead, self.commit_seconds, self.most = overhead, commit_seconds, most
        self.agreed = [(0, n)]  # from which step on each n counts: of earlier steps next_step says what it said before
        self._wish, self._captures = 0, 0  # the wish never falls, because the greatest of the present wishes counts
        self._primes: list[int] = []
        self._seconds = self._blocking = 0.0  # since the last capture

    def __str__(self) -> str:
        return f"prime steps, n={self.agreed}"  # which must be the same on all ranks

    def next_step(self, step: int) -> int:
        """The first prime after ``step`` whose number is a multiple of n."""
        n = next(n for begin, n in reversed(self.agreed) if begin <= step)
        while not self._primes or self._primes[-1] <= step:
            self._extend()
        last = (bisect.bisect_right(self._primes, step) // n + 1) * n - 1
        while len(self._primes) <= last:
            self._extend()
        return self._primes[last]

    def observe(self, seen: Observation) -> Wish:
        """This rank's wish for n, 0 until checkpoints have once cost it too much."""
        begin, n = self.agreed[-1]
        self._seconds += seen.seconds
        self._blocking += seen.blocking
        costly = any(report.step > begin and (report.committed or 0) > self.commit_seconds for report in seen.reports)
        if seen.captured is not None:
            # Before the first capture DeepFreeze and TensorFlow prepare the training, which takes long and happens once.
            costly |= self._captures > 0 and self._blocking > self.overhead * self._seconds
            self._captures += 1
            self._seconds = self._blocking = 0.0
        if costly and n < self.most:
            self._wish = min(2 * n, self.most)
        return Wish(self._wish)

    def agree(self, interval: int, step: int) -> None:
        """All ranks' policies are told of the greatest wish: it is n from ``step`` on."""
        self.agreed.append((step, interval))

    def _extend(self) -> None:
        """Finds the primes up to twice the largest number that was looked at."""
        sieve = np.ones(max(1024, 2 * (self._primes or [0])[-1]), bool)
        for i in range(2, int(len(sieve) ** 0.5) + 1):
            sieve[i * i :: i] = False
        self._primes = np.flatnonzero(sieve)[2:].tolist()
