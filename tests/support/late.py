"""Which captures were left to the next step. Imports DeepFreeze's saver, and with it numpy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from deepfreeze.freeze.saver import Saver


@contextlib.contextmanager
def noted() -> Iterator[list[tuple[int, bool]]]:
    """A list that gets, during the block, what was left to the next step: (step, whether that step has copied it)."""
    found: list[tuple[int, bool]] = []
    finish = Saver.finish

    def note(self: Saver) -> None:
        if self.pending is not None:
            found.append((self.pending, not self._capture.held))
        finish(self)

    with mock.patch.object(Saver, "finish", note):
        yield found
