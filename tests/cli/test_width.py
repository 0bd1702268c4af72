"""The output of every command in 80 columns, on a terminal and in a pipe."""

import json
import os
import re
import sys
from types import SimpleNamespace

import pytest

from deepfreeze.cli.main import main
from deepfreeze.format.marks import Mark, MarksFile
from deepfreeze.inspect import verify
from tests.support import files, plans, processes


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run with all that makes lines long."""
    (tmp_path / "runs").mkdir()
    path = files.write_run(tmp_path / "runs" / "a-run-with-a-long-name-0123456789")
    made = files.sample()
    value = json.loads(made.structure)
    for tensor in value["tensors"]:
        if tensor["name"] == "dense/kernel":
            tensor["name"] = "functional/conv5_block3_3_conv/a_part_of_the_layer/dense_with_a_long_name/kernel"
    made.structure = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    for step, diverged in ((5, 0), (40, 3), (1234567, 0)):
        files.write_checkpoint(path, step, made, diverged=diverged)
        made.content = made.content[:4096] + bytes(8) + made.content[4104:]
    files.write_partial(path, 1234600, made)
    metrics = {"val_loss": 0.03125, "val_accuracy": 0.123456}
    marks = (Mark(40, files.ATTEMPT, 1, False, 2, 12, metrics, "newest 2; best val_loss 0.03125"),)
    (path / "marks.json").write_bytes(MarksFile(files.RUN_ID, "Latest(2)", marks=marks).to_bytes())
    files.write_events(path)
    plans.write_plan(path)
    monkeypatch.chdir(tmp_path)
    return path.relative_to(tmp_path)


COMMANDS = [
    "ls RUN", "ls runs", "show RUN", "show RUN@40 --tensor *", "diff RUN@5 RUN", "diff RUN@5 RUN --all", "verify RUN@5", "verify RUN@40",
    "prune RUN --keep 1", "prune RUN --keep 3", "log RUN", "tag RUN@40 a-tag", "export RUN a.safetensors", "ls RUN@41",
    "plan RUN", "plan RUN --explain",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: re.sub(r"\W+", "-", command))
def test_no_line_is_longer_and_no_word_is_broken(run, capsys, monkeypatch, command):
    monkeypatch.setattr(verify, "time", SimpleNamespace(perf_counter=lambda: 0.0))  # the speed is the same twice
    words = command.replace("RUN", str(run)).split()
    main(words)
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    main([*words, *(["--overwrite"] if words[0] == "export" else [])])
    narrow = capsys.readouterr().out
    assert all(len(line) <= 80 for line in narrow.splitlines()), narrow
    known = set(re.split(r"[\s/_]+", wide))  # a name breaks behind / and _ where it is longer than its column
    broken = [one for one in re.split(r"[\s/_]+", narrow) if one not in known]
    assert not broken, narrow


def test_a_pipe_has_one_line_for_each_row(run, capsys):
    main(["ls", str(run)])
    table = [line for line in capsys.readouterr().out.splitlines() if "2026-11-21" in line]
    assert len(table) == 3 and max(map(len, table)) > 100 and "full, ranks differed" in table[1]


def test_diverged_rows_of_ls_keep_their_numbers_whole(run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    main(["ls", str(run)])
    out = capsys.readouterr().out
    assert out.count("2026-11-21 03:35:58") == 3 and "written by" not in out
    assert re.search(r"^ +40 .* full, ", out, re.MULTILINE) and "differed" in out


def test_a_terminal_of_80_columns_is_kept_to(run):
    """Standard output and standard error."""
    code = (
        "import fcntl, struct, sys, termios; fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))\n"
        "from deepfreeze.cli.main import main\n"
        "sys.exit(10 * main(['ls', sys.argv[1]]) + main(['ls', sys.argv[1] + '@41']))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    master, slave = os.openpty()
    done = processes.run([sys.executable, "-c", code, str(run)], stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert done.returncode == 1 and max(map(len, shown.splitlines())) <= 80, shown
    assert "\r\ndeepfreeze: runs/" in shown and "\r\n  " in shown.partition("deepfreeze: ")[2]
