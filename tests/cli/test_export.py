"""``deepfreeze export``: what it says, and its exit codes. What it writes is tested in tests/exports/test_export.py."""

import json

import pytest

from deepfreeze.cli.main import main
from tests.support import files


@pytest.fixture
def run(tmp_path):
    path = files.write_run(tmp_path / "nt3")
    for step in (5, 40):
        files.write_checkpoint(path, step)
    return path


def test_it_says_what_was_written(run, tmp_path, capsys):
    assert main(["export", str(run), str(tmp_path / "a.weights.h5")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a.weights.h5'}: step 40 of {run}, 20 kB\n"
    assert main(["export", f"{run}@5", str(tmp_path / "a.safetensors"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["nbytes"] == (tmp_path / "a.safetensors").stat().st_size
    assert (found["path"], found["checkpoint"]["step"]) == (str(tmp_path / "a.safetensors"), 5)


def test_the_optimizer_comes_along_if_asked(run, tmp_path):
    assert main(["export", str(run), str(tmp_path / "a.safetensors")]) == 0
    assert main(["export", str(run), str(tmp_path / "b.safetensors"), "--optimizer"]) == 0
    assert (tmp_path / "b.safetensors").stat().st_size > (tmp_path / "a.safetensors").stat().st_size


def test_what_is_there_is_replaced_only_with_overwrite(run, tmp_path, capsys):
    target = tmp_path / "a.weights.h5"
    target.write_text("before")
    assert main(["export", str(run), str(target)]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1) and "--overwrite" in captured.err
    assert target.read_text() == "before"
    assert main(["export", str(run), str(target), "--overwrite"]) == 0
    assert target.stat().st_size == 20000


@pytest.mark.parametrize("name", ["a.weights.h5", "a.safetensors"])
def test_damage_is_exit_code_1_and_no_file(run, tmp_path, capsys, name):
    files.flip(run / "step-0000000040" / files.MODEL_FILE, 4100)
    assert main(["export", str(run), str(tmp_path / name)]) == 1
    assert "dense/kernel" in capsys.readouterr().err and not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("name", "words"), [("a.npz", "End the path"), ("a.keras", "save_config"), ("none/a.keras", "directory exists")]
)
def test_what_can_not_be_written_is_exit_code_1(run, tmp_path, capsys, name, words):
    assert main(["export", str(run), str(tmp_path / name)]) == 1
    assert words in capsys.readouterr().err
