"""CANDLE's checkpoint parameters, one by one, as options of ``deepfreeze.Checkpoint``."""

import argparse

import pytest

from deepfreeze.candle import translated
from deepfreeze.errors import OptionError
from deepfreeze.plan import EveryEpoch, EverySteps, Never
from deepfreeze.store import Best, Epochs, Latest, Spaced

ALL = 1_000_000
PLAIN = {"resume": "auto", "state": "full", "every": EveryEpoch(1), "keep": Latest(ALL)}
VAL_LOSS = Best("val_loss", "min")


def options(steps=None, **params):
    """The options that these parameters stand for, the names without ``ckpt_``; nothing of them is left out."""
    found = translated({f"ckpt_{name}": value for name, value in params.items()}, steps)
    assert found.left_out == ()
    return dict(found.options)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, {"keep": Latest(ALL) | VAL_LOSS}),
        ({"save_best": False}, {}),
        ({"save_best": "False", "restart_mode": "required"}, {"resume": "required"}),
        ({"save_best": "no", "restart_mode": "OFF"}, {"resume": "off"}),
        ({"save_best": False, "save_weights_only": "yes", "checksum": False}, {"state": "weights"}),
        ({"save_best": False, "save_interval": 5, "keep_limit": 3}, {"every": EveryEpoch(5), "keep": Latest(3)}),
        ({"save_best": False, "save_interval": "5", "skip_epochs": " 2"}, {"every": EveryEpoch(5, skip=2)}),
        ({"save_best_metric": "accuracy", "keep_limit": 3}, {"keep": Latest(3) | Best("accuracy", "max")}),
        ({"save_interval": 5, "keep_limit": 3}, {"keep": Latest(3, of=Epochs(5)) | VAL_LOSS}),
        ({"save_interval": 5, "skip_epochs": 7}, {"every": EveryEpoch(1, 7), "keep": Latest(ALL, of=Epochs(5)) | VAL_LOSS}),
        ({"steps": 9, "save_best": False, "save_interval": 5, "skip_epochs": 7}, {"every": EverySteps(45, skip=63)}),
        ({"steps": 9}, {"every": EverySteps(9), "keep": Latest(ALL) | VAL_LOSS}),
        (
            {"steps": 9, "save_interval": 5, "keep_limit": 2},
            {"every": EverySteps(9), "keep": Latest(2, of=Spaced(steps=45)) | VAL_LOSS},
        ),
        ({"save_best": False, "keep_mode": "linear", "metadata": "job 7"}, {"metadata": {"metadata": "job 7"}}),
        (dict.fromkeys(("save_interval", "keep_limit", "keep_mode", "metadata")), {"keep": Latest(ALL) | VAL_LOSS}),
    ],
    ids=lambda names: "+".join(names) or "none",
)  # fmt: skip
def test_each_parameter_of_candles_has_its_option(params, expected):
    assert options(**params) == PLAIN | expected


def test_an_interval_of_0_saves_nothing_and_removes_nothing():
    """Whatever ends the training: its last step, a signal or the job's end. And it asks for no metric."""
    nothing = {"every": Never(), "final": False, "signals": (), "ends_at": None}
    assert options(save_interval=0, keep_limit=1) == PLAIN | nothing


def test_the_run_is_where_candle_has_its_checkpoints():
    assert translated({}).run == "save"
    assert translated({"ckpt_directory": "mine"}).run == "mine"
    assert translated({"output_dir": "out/EXP000/RUN000"}).run == "out/EXP000/RUN000/save"
    assert translated({"output_dir": "out", "ckpt_directory": "/fast/ckpts"}).run == "/fast/ckpts"


def test_parameters_without_a_counterpart_are_named():
    params = {"ckpt_best_metric_last": 0.5, "epochs": 3, "ckpt_keep_mode": "exponential", "ckpt_new": 1, 7: 7}
    assert translated(params).left_out == ("ckpt_best_metric_last", "ckpt_new", 'ckpt_keep_mode="exponential"')


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (argparse.Namespace(ckpt_keep_limit=2), "params: expected a mapping of names to values, such as the dictionary"),
        ({"ckpt_restart_mode": "always"}, r"params\[\"ckpt_restart_mode\"\]: expected one of 'off', 'auto', 'required'; fo"),
        ({"ckpt_restart_mode": False}, r"found False. Pass params\[\"ckpt_restart_mode\"\] as described"),
        ({"ckpt_save_interval": -1}, r"params\[\"ckpt_save_interval\"\]: expected a whole number from 0 to"),
        ({"ckpt_save_interval": "1.5"}, r"expected a whole number from 0 to 2147483647; found '1.5'"),
        ({"ckpt_skip_epochs": True}, r"params\[\"ckpt_skip_epochs\"\]"),
        ({"ckpt_keep_limit": 0}, r"params\[\"ckpt_keep_limit\"\]: expected a whole number from 1 to"),
        ({"ckpt_keep_mode": "square"}, r"expected one of 'linear', 'all', 'exponential'; found 'square'"),
        ({"ckpt_save_best": "maybe"}, r"params\[\"ckpt_save_best\"\]: expected True or False, or a word for one of them: yes,"),
        ({"ckpt_save_weights_only": 1}, r"params\[\"ckpt_save_weights_only\"\]"),
        ({"ckpt_checksum": "crc"}, r"params\[\"ckpt_checksum\"\]"),
        ({"ckpt_save_best_metric": "val_auc"}, r"a metric that CANDLE knows: loss, accuracy, .*; found 'val_auc'. Set params"),
        ({"ckpt_directory": 7}, r"params\[\"ckpt_directory\"\]: expected a path; found 7"),
    ],
    ids=lambda value: "".join(value) if isinstance(value, dict) else "refused",
)  # fmt: skip
def test_a_wrong_value_of_a_parameter_is_refused(params, message):
    with pytest.raises(OptionError, match=message):
        translated(params)


@pytest.mark.parametrize("steps", [0, 1.5, "4"])
def test_the_steps_of_an_epoch_are_a_whole_number(steps):
    with pytest.raises(OptionError, match="steps_per_epoch=: expected a whole number from 1 to"):
        translated({}, steps)
