"""What a training says of its checkpoints in their manifests: as JSON, and as people read it."""

import json

import numpy as np
import pytest

from deepfreeze.errors import OptionError
from deepfreeze.format.manifest_values import MAX_BYTES, encode, facts_of, logs_of, measured_at, text_of_logs
from deepfreeze.freeze.described import Described
from deepfreeze.training.options import Options


def test_the_logs_of_an_epoch_are_numbers_whatever_keras_gives():
    logs = {
        "loss": np.float32(0.5),
        "mae": 0.123456,
        "lost": float("nan"),
        "note": "text",
        "history": [1, 2],
        "huge": 10**400,
    }
    values = json.loads(encode({"logs": logs_of(3, 90, logs)}))
    assert values == {"logs": {"epoch": 3, "step": 90, "values": {"loss": 0.5, "mae": 0.123456, "lost": "nan"}}}
    assert text_of_logs(values) == "epoch 3: loss 0.5, lost nan, mae 0.1235"
    assert text_of_logs({"logs": logs_of(1, 30, {})}) == "epoch 1"
    hostile = {"a": "\x1b[2J", "b": 10**400, "c": ["\x1b"], "\x1b": 1}
    shown = text_of_logs({"logs": {"epoch": 1, "values": hostile}})
    assert shown == f'epoch 1: a "\\u001b[2J", b {10**400}, c ["\\u001b"]'
    many = {f"{number:0200}": 1.0 for number in range(1000)}
    assert len(encode({"logs": logs_of(3, 90, many)})) < MAX_BYTES // 2


@pytest.mark.parametrize("logs", [None, 3, {}, {"epoch": "3", "values": {}}, {"epoch": 3, "values": [1]}])
def test_logs_of_an_unknown_form_are_not_shown(logs):
    assert text_of_logs({"logs": logs}) == "" and text_of_logs({}) == ""
    assert measured_at({"logs": logs}, 3) is None and measured_at({}, 3) is None


def test_a_fact_that_a_terminal_can_not_show_is_shown_as_json():
    metadata = {"git": "3f2c1ab", "note": "größer", "red": "\x1b[31m", "rate": 0.5, "list": [1, {"a": None}]}
    assert facts_of({"metadata": metadata}) == [
        ("git", "3f2c1ab"), ("note", "größer"), ("red", '"\\u001b[31m"'), ("rate", "0.5"), ("list", '[1, {"a": null}]')
    ]  # fmt: skip
    assert facts_of({}) == [] and facts_of({"metadata": 3}) == []
    assert encode({"metadata": {"note": "größer\n"}}) == b'{"metadata":{"note":"gr\\u00f6\\u00dfer\\n"}}'


@pytest.mark.parametrize("bad", [3, "text", {1: "a"}, {"a": float("nan")}, {"a": {1, 2}}, {"a": "x" * 40_000}])
def test_metadata_that_json_does_not_have_or_that_is_large_is_refused(bad):
    with pytest.raises(OptionError, match="metadata="):
        Options.of(metadata=bad)


def test_metadata_is_what_it_was_when_the_checkpoint_was_made():
    metadata = {"note": ["first"]}
    options = Options.of(metadata=metadata)
    metadata["note"].append("second")
    described = Described(options.metadata)
    assert described.values(0, 1) == {"metadata": {"note": ["first"]}}
    described.epoch_ended(2, 60, {"loss": 1.0})
    assert described.values(0, 1)["logs"] == {"epoch": 2, "step": 60, "values": {"loss": 1.0}}
