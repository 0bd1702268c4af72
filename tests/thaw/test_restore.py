"""Restore is all or nothing. The model is a stand-in: what the probe says of a real one is tested with Keras."""

import dataclasses
import types
from dataclasses import dataclass

import numpy as np
import pytest

from deepfreeze.errors import CorruptError, NotFoundError, OptionError, StructureError
from deepfreeze.format import state_tree
from deepfreeze.format.structure import Structure
from deepfreeze.format.tensors import TensorSpec
from deepfreeze.state import dataset_paths
from deepfreeze.state.attachments import Attachments
from deepfreeze.thaw.restore import fold, prepare, restore
from tests.support import files
from tests.support.stand_in import Model


class Variable:
    """Takes values as a framework's variable does."""

    def __init__(self):
        self.value = None

    def assign(self, value):
        self.value = np.array(value)


@dataclass
class Slot:
    path: str
    variable: Variable
    spec: TensorSpec


@pytest.fixture
def run(tmp_path):
    return files.write_run(tmp_path)


@pytest.fixture
def model(monkeypatch):
    """Makes a stand-in model with the slots of a sample, after ``change`` of their list."""

    def make(made, change=lambda slots: slots):
        tensors = Structure.from_bytes(made.structure, "x").tensors
        slots = change([Slot(t.path, Variable(), t.spec) for t in tensors])
        states = []
        monkeypatch.setattr(
            dataset_paths,
            "locate",
            lambda state, layout: states.append(state.what) or types.SimpleNamespace(tensors=slots),
        )
        optimizer = types.SimpleNamespace(built=False, build=lambda variables: states.append("built"))
        return Model(
            built=True, name="m", optimizer=optimizer, variables=[], trainable_variables=[], slots=slots, states=states
        )

    return make


def test_all_values_arrive_and_each_old_rank_gets_its_own_seeds(run, model):
    _, made = files.write_checkpoint(run, 40, files.sample(world=3))
    for rank in range(3):
        target = model(made)
        info = restore(target, run, rank=rank, world_size=5)
        values = {slot.spec.name: slot.variable.value for slot in target.slots}
        assert (info.step, target.states) == (40, ["full"]), "the sample has no optimizer that would need slots"
        assert np.array_equal(values.pop("seed"), made.seeds[rank])
        assert all(np.array_equal(value, made.values[name]) for name, value in values.items())


def test_ranks_that_are_new_get_seeds_of_their_own(run, model):
    _, made = files.write_checkpoint(run, 40)
    seen = {tuple(seeds) for seeds in made.seeds}
    for rank in range(2, 40):
        target = model(made)
        restore(target, run, rank=rank, world_size=40)
        value = target.slots[-1].variable.value
        assert (value.dtype, value.shape) == (np.int64, (2,)) and (value >= 0).all()
        seen.add(tuple(value))
    assert len(seen) == 40


@pytest.mark.parametrize("dtype", ["<i8", "<u8", "<i4", "<u4", "u1", "<i2"])
def test_folding_a_seed_keeps_its_type_and_can_be_repeated(dtype):
    value = np.arange(3).astype(dtype)
    folded = fold(value, 7, 0)
    assert (folded.dtype, folded.shape) == (value.dtype, value.shape)
    assert np.array_equal(folded, fold(value, 7, 0))
    assert (folded.astype("f8") >= 0).all()
    assert not np.array_equal(folded, fold(value, 7, 1))


def test_a_checkpoint_of_weights_leaves_the_optimizer_alone(run, model):
    _, made = files.write_checkpoint(run, 40, files.sample(state="weights"))
    target = model(made)
    assert restore(target, run).state == "weights"
    assert target.states == ["weights"]


def replace(name, **changes):
    def change(slots):
        for slot in slots:
            if slot.spec.name == name:
                slot.spec = dataclasses.replace(slot.spec, **changes)
        return slots

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda slots: slots[:1] + slots[2:], "only the checkpoint has layers/vars/0 (dense/kernel, float32[50, 40])"),
        (
            lambda slots: [*slots, Slot("layers/new", Variable(), TensorSpec("new", "int8", (2,), "replicated"))],
            "only the model has layers/new (new, int8[2])",
        ),
        (replace("dense/bias", shape=(41,)), "float32[41] in the model and float32[40] in the checkpoint"),
        (replace("bn/mean", dtype="float32"), "float32[7] in the model and float64[7] in the checkpoint"),
    ],
)
def test_another_models_checkpoint_is_refused_and_changes_nothing(run, model, change, words):
    _, made = files.write_checkpoint(run, 40)
    target = model(made, change)
    with pytest.raises(StructureError) as caught:
        restore(target, run)
    assert words in caught.value.found
    assert caught.value.todo.startswith("nothing was changed: build and compile the model as the job that wrote")
    assert caught.value.todo.endswith("or give this model another run directory")
    assert all(slot.variable.value is None for slot in target.slots)


def test_the_first_ten_of_many_differences_are_named(run, model):
    def more(slots):
        spec = TensorSpec("x", "int8", (), "replicated")
        return slots + [Slot(f"new/{n}", Variable(), spec) for n in range(25)]

    _, made = files.write_checkpoint(run, 40)
    with pytest.raises(StructureError) as caught:
        restore(model(made, more), run)
    assert caught.value.found.count("only the model has") == 10
    assert caught.value.found.endswith("and 15 more")


def test_metric_states_that_only_one_side_has_do_not_matter(run, model):
    def change(slots):
        return [*slots, Slot("metrics/mean/vars/0", Variable(), TensorSpec("total", "float32", (), "rank-local"))]

    _, made = files.write_checkpoint(run, 40)
    assert restore(model(made, change), run).step == 40


def test_a_damaged_checkpoint_changes_nothing(run, model):
    folder, made = files.write_checkpoint(run, 40, files.sample(extent=100))
    files.flip(folder / files.MODEL_FILE, 12440)  # the last tensor in the file
    target = model(made)
    with pytest.raises(CorruptError, match="bn/mean"):
        restore(target, run)
    assert all(slot.variable.value is None for slot in target.slots)


def test_wrong_calls_say_what_to_do(run, model):
    _, made = files.write_checkpoint(run, 40)
    target = model(made)
    with pytest.raises(NotFoundError, match="steps 40"):
        restore(target, run, 41)
    with pytest.raises(OptionError):
        restore(target, run, rank=2, world_size=2)
    target.built = False
    with pytest.raises(StructureError, match="Build it first"):
        restore(target, run)


def _states(rank):
    return files.section(
        attachments=state_tree.encode({"objects": {"reader": {"rank": rank}}, "rng": {}}, "x"), from_the_future=b"1"
    )


@pytest.mark.parametrize(
    ("rank", "wants_all", "ranks"), [(1, False, [1]), (5, False, [0]), (1, True, [0, 1, 2]), (5, True, [0, 1, 2])]
)
def test_attachments_are_read_of_the_ranks_that_are_wanted(run, model, rank, wants_all, ranks):
    made = files.sample(world=3, version=2)
    made.named = [_states(number) for number in range(3)]
    files.write_checkpoint(run, 40, made)

    class Reader:
        state_dict = dict

        def load_state_dict(self, state):
            self.got = state

    class All(Reader):
        def load_state_dict(self, states, rank, world):
            self.got = states, rank, world

    reader = (All if wants_all else Reader)()
    attachments = Attachments({"reader": reader}, None)
    ready = prepare(model(made), run, 40, rank, 6, attachments=attachments)
    assert sorted(ready.attachments.by_rank) == ranks and ready.attachments.world_size == 3
    attachments.load(ready.attachments, rank, 6)
    own = {"rank": rank if rank < 3 else 0}
    assert reader.got == (([{"rank": n} for n in range(3)], rank, 6) if wants_all else own)
    assert prepare(model(made), run, 40, rank, 6).attachments is None  # nobody asked


def test_a_flipped_bit_in_attachments_changes_nothing(run, model):
    made = files.sample(version=2)
    made.named = _states(0)
    folder, _ = files.write_checkpoint(run, 40, made)
    files.flip(folder / "records", len(files.rank_record(40, made, 0)) - 10)
    stand_in = model(made)
    with pytest.raises(CorruptError, match="of rank 0's record"):
        restore(stand_in, run, 40, rank=0, world_size=2)
    assert all(slot.variable.value is None for slot in stand_in.slots)
