"""Checkpoints that are not there, not whole, or of the future: whoever asks for one is told, and nothing is moved or cleared."""

import hashlib
import json
import os

import keras
import pytest

import deepfreeze
from deepfreeze.cli.main import main
from deepfreeze.format import names
from tests.support import configs, files, trainings
from tests.support.refusals import refused

pytestmark = pytest.mark.tensorflow

READERS = {
    "open": lambda run, model, out, step: deepfreeze.Checkpoint(run).open(model),
    "restore": lambda run, model, out, step: deepfreeze.restore(model, run, step),
    "transfer": lambda run, model, out, step: deepfreeze.transfer(model, run, step, verbose=0),
    "read": lambda run, model, out, step: deepfreeze.read(run, step),
    "export": lambda run, model, out, step: deepfreeze.export(run, out, step),
}
of_a_step = pytest.mark.parametrize("reader", [name for name in READERS if name != "open"])
COMMANDS = {
    "show": lambda target, out: ["show", target],
    "verify": lambda target, out: ["verify", target],
    "export": lambda target, out: ["export", target, str(out)],
    "diff": lambda target, out: ["diff", target, target],
}


def says_on_the_command_line(capsys, words, *texts):
    """The command ends with exit code 1, and with the message on standard error."""
    assert main(words) == 1
    said = capsys.readouterr()
    assert all(text in said.err + said.out for text in texts), said


@of_a_step
def test_a_step_that_does_not_exist_is_refused_with_those_that_do(reader, run, model, tmp_path):
    refused(
        lambda: READERS[reader](run, model, tmp_path / "out.safetensors", 3),
        deepfreeze.NotFoundError, where=run, expected="a checkpoint of step 3", found="steps 2, 4",
        todo="choose one of these", folder=tmp_path, model=model,
    )  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_step_is_refused_on_the_command_line_naming_those_there(command, run, tmp_path, capsys):
    """The command line refuses a step that does not exist, and names those that do."""
    words = COMMANDS[command](f"{run}@3", tmp_path / "out.safetensors")
    says_on_the_command_line(capsys, words, "expected a checkpoint of step 3; found steps 2, 4")
    assert os.listdir(tmp_path) == ["run"]


@of_a_step
@pytest.mark.parametrize("step", [-1, 2**63, 2.5, "2"])
def test_what_can_be_no_step_is_refused(reader, step, run, model, tmp_path):
    refused(
        lambda: READERS[reader](run, model, tmp_path / "out.safetensors", step),
        deepfreeze.OptionError, where="step=", expected="a whole number from 0", found=repr(step),
        todo="deepfreeze.checkpoints", folder=tmp_path, model=model,
    )  # fmt: skip


@of_a_step
def test_a_partial_directory_alone_is_no_checkpoint(reader, run, model, tmp_path):
    for info in deepfreeze.checkpoints(run):
        partial = run / names.partial_dir(info.step, info.attempt)
        os.rename(info.path, partial)
        (partial / "manifest.json").unlink()
    assert deepfreeze.latest(run) is None and deepfreeze.checkpoints(run) == []
    refused(
        lambda: READERS[reader](run, model, tmp_path / "out.safetensors", None),
        deepfreeze.NotFoundError, where=run, expected="a committed checkpoint", found="none (2 unfinished)",
        todo="let the job run", folder=tmp_path, model=model,
    )  # fmt: skip


def test_a_job_finishes_a_partial_directory_that_is_whole(run, tmp_path):
    """What the refusal's advice comes to."""
    (info,) = [info for info in deepfreeze.checkpoints(run) if info.step == 4]
    partial = run / names.partial_dir(info.step, info.attempt)
    os.rename(info.path, partial)
    files.before_its_commit(partial)
    checkpoint = deepfreeze.Checkpoint(run, resume="required")
    assert checkpoint.open(trainings.dense(keras)) == 4
    checkpoint.close()


@pytest.mark.parametrize("what", ["nothing", "directory", "run", "parent"])
def test_resume_required_with_nothing_there_is_refused_and_makes_no_run(what, tmp_path, model):
    run = tmp_path / ("missing/run" if what == "parent" else "run")
    if what == "directory":
        run.mkdir()
    elif what == "run":
        files.write_run(run)
    found = "none" if what == "run" else "no run"
    refused(
        lambda: deepfreeze.Checkpoint(run, resume="required").open(model),
        deepfreeze.NotFoundError, where=run, expected='a checkpoint to resume from (resume="required")', found=found,
        todo='check the path, or start afresh with resume="auto"', folder=tmp_path, model=model,
    )  # fmt: skip


# A future format: its checksums and hashes are right, so it is not damaged


def newer_run(run):
    text = (run / "run.json").read_bytes()
    assert text.count(b'"format": 1') == 1
    body = text[: text.rindex(b', "crc32c"')].replace(b'"format": 1', b'"format": 2')
    (run / "run.json").write_bytes(body + f', "crc32c": "{files.crc(body):08x}"}}\n'.encode())
    return run / "run.json"


def newer_structure(run):
    """Of all its checkpoints but the first: as a newer version would go on in an older one's run."""
    (old,) = (run / "structures").iterdir()
    value = json.loads(old.read_bytes()) | {"format": 3, "news": 1}
    data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    new = run / "structures" / f"{hashlib.sha256(data).hexdigest()}.json"
    new.write_bytes(data)
    folder = deepfreeze.latest(run).path
    text = (folder / "manifest.json").read_bytes()
    body = text[: text.rindex(b'  "crc32c"')].replace(old.stem.encode(), new.stem.encode())
    record = folder / "records"
    data = record.read_bytes()[:-4].replace(bytes.fromhex(old.stem), bytes.fromhex(new.stem))
    checksums = [int.from_bytes(record.read_bytes()[-4:], "little"), files.crc(data)]
    record.write_bytes(data + checksums[1].to_bytes(4, "little"))
    (folder / "manifest.json").write_bytes(files.sign(body.replace(*(b"%08x" % crc for crc in checksums))))
    return new


def newer_config(run):
    data = configs.sign(
        configs.config_bytes().rsplit(b', "crc32c"', 1)[0].replace(b'"format": 1', b'"format": 2') + b"}"
    )
    (run / "configs").mkdir(exist_ok=True)
    file = run / "configs" / f"{deepfreeze.latest(run).attempt}.json"
    file.write_bytes(data)
    return file


NEWER = {"run.json": newer_run, "structure": newer_structure, "config": newer_config}
MET = [(what, reader) for what in ("run.json", "structure") for reader in READERS] + [("config", "export")]


@pytest.mark.parametrize(("what", "reader"), MET)
def test_a_future_format_is_named_and_left_alone(what, reader, run, model, tmp_path):
    file = NEWER[what](run)
    out = tmp_path / f"out.{'keras' if what == 'config' else 'safetensors'}"
    refused(
        lambda: READERS[reader](run, model, out, None),
        deepfreeze.CorruptError, where=file, expected="format 1", found="format 3" if what == "structure" else "format 2",
        todo="the version of DeepFreeze that wrote it, or a newer one", folder=tmp_path, model=model,
    )  # fmt: skip


@pytest.mark.parametrize(("what", "command"), [(w, c) for w in ("run.json", "structure") for c in COMMANDS])
def test_a_future_format_is_named_on_the_command_line(what, command, run, tmp_path, capsys):
    file = NEWER[what](run)
    words = COMMANDS[command](str(run), tmp_path / "out.safetensors")
    words = words if command != "diff" else ["diff", f"{run}@2", f"{run}@4"]
    says_on_the_command_line(
        capsys,
        words,
        file.name,
        f"format 1{' or 2; found format 3' if what == 'structure' else '; found format 2'}",
        "the version of DeepFreeze that wrote it",
    )
