"""{1, 2, 3} writing ranks x {1, 2, 3} restoring ranks: bit-exact, on rank processes without TensorFlow."""

from contextlib import ExitStack

import pytest

from deepfreeze.inspect.verify import verify
from deepfreeze.store.writable_run import WritableRun
from tests.jobs.shards import structure
from tests.support import jobs

pytestmark = pytest.mark.slow


def together(what, run, ranks, world):
    with ExitStack() as stack:
        for job in [stack.enter_context(jobs.job("shards.py", what, run, rank, world)) for rank in range(ranks)]:
            assert job.wait() == 0


@pytest.mark.parametrize("writers", [1, 2, 3])
def test_what_some_ranks_wrote_any_number_of_ranks_reads_bit_exactly(tmp_path, writers):
    run = tmp_path / "run"
    WritableRun.open_or_make(run).store_structure(structure())
    together("write", run, writers, writers)
    assert verify(run).ok
    for readers in (1, 2, 3):
        together("read", run, readers, writers)
