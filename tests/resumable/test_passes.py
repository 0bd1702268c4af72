"""Which pass a generator goes over: the pass that trains is known for as long as it does, and of the others the last few."""

from types import SimpleNamespace

from deepfreeze.data.passes import Passes


class Batches:
    """A pass as ``Passes`` sees it."""

    finished = False

    def stop(self):
        self.finished = True


def test_passes_that_are_finished_are_forgotten_first():
    passes, generators = Passes(), [object() for _ in range(30)]
    left = [SimpleNamespace(finished=False) for _ in range(7)]
    for generator, one in zip(generators, left, strict=False):
        passes.begin(generator, one, trains=False)
    for generator in generators[7:]:
        passes.begin(generator, SimpleNamespace(finished=True), trains=False)
    assert [passes.of(generator) for generator in generators[:7]] == left
    assert [generator for generator in generators[7:] if passes.of(generator)] == generators[-1:]


def test_of_passes_that_all_go_on_the_oldest_is_forgotten():
    passes, generators = Passes(), [object() for _ in range(9)]
    for generator in generators:
        passes.begin(generator, Batches(), trains=False)
    assert [passes.of(generator) is not None for generator in generators] == [False, *[True] * 8]


def test_a_pass_trains_until_it_is_finished_or_the_next_one_begins():
    passes, (one, other) = Passes(), (Batches(), Batches())
    assert not passes.training
    passes.begin("one", one, trains=True)
    assert passes.training
    passes.stop_training()
    assert not passes.training and one.finished and passes.of("one") is one, "its thread may still ask"
    passes.begin("other", other, trains=True)
    assert passes.training
    other.finished = True
    assert not passes.training and passes.of("other") is other
