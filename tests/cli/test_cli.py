"""The command line: output, exit codes, errors on one line."""

import errno
import itertools
import json
import os
import re
import shlex
import struct
import subprocess
import sys
from types import SimpleNamespace

import google_crc32c
import pytest

from deepfreeze import wording
from deepfreeze.cli.main import main, parser
from deepfreeze.inspect import verify as verify_module
from deepfreeze.inspect.verify import verify
from deepfreeze.store.lock import Lock
from deepfreeze.store.posix_store import PosixStore
from deepfreeze.store.writable_run import WritableRun
from tests.support import configs, files, plans, processes


@pytest.fixture
def run(tmp_path):
    path = files.write_run(tmp_path / "nt3")
    made = files.sample()
    for step in (5, 40):
        files.write_checkpoint(path, step, made)
    return path


def test_ls_lists_every_checkpoint(run, capsys):
    assert main(["ls", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["step", "5", "40"]
    assert "20 kB" in lines[1] and "full" in lines[1] and "2026-11-21 03:35:58" in lines[1]
    assert re.search(r" \d+ days  2026", lines[1])


def test_ls_names_what_does_not_count(run, capsys):
    files.write_partial(run, 50, files.sample())
    (run / "step-0000000040" / "manifest.json").unlink()
    assert main(["ls", str(run)]) == 0
    out = capsys.readouterr().out
    assert "damaged, not counted: step 40" in out and "unfinished: step 50" in out


def test_ls_names_what_was_damaged_and_moved(run, capsys):
    files.flip(run / "step-0000000005" / "manifest.json", 20)
    for step in (5, 40):
        WritableRun.open(run).quarantine(step)
    assert main(["ls", str(run)]) == 1
    assert "damaged, moved to damaged/: step 5, 40\n" in capsys.readouterr().out
    assert main(["ls", "--json", str(run)]) == 1
    assert json.loads(capsys.readouterr().out) == []


def test_a_damaged_run_file_is_named(run, capsys):
    files.write_run(run, signed=True)
    files.flip(run / "run.json", 30)
    for command in ("ls", "verify"):
        assert main([command, str(run)]) == 1
        assert f"{run / 'run.json'}: expected CRC32C" in capsys.readouterr().err


def test_ls_json_is_a_list_of_checkpoints(run, capsys):
    assert main(["ls", "--json", str(run)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["step"] for entry in found] == [5, 40]
    assert found[1]["path"] == str(run / "step-0000000040") and found[1]["nbytes"] == 20032
    assert main(["ls", "--json", f"{run}@5"]) == 0
    assert [entry["step"] for entry in json.loads(capsys.readouterr().out)] == [5]


def test_ls_of_an_empty_run_exits_with_1(tmp_path, capsys):
    files.write_run(tmp_path)
    assert main(["ls", str(tmp_path)]) == 1
    assert main(["ls", "--json", str(tmp_path)]) == 1
    assert capsys.readouterr().out.endswith("[]\n")


def test_verify_exits_with_0_only_if_all_is_well(run, capsys):
    assert main(["verify", str(run)]) == 0
    assert capsys.readouterr().out.count(": ok") == 2
    files.flip(run / "step-0000000040" / files.MODEL_FILE, 4100)
    assert main(["verify", str(run)]) == 1
    out = capsys.readouterr().out
    assert "step-0000000005: ok" in out and "step-0000000040: DAMAGED" in out and "(dense/kernel)" in out
    assert main(["verify", f"{run}@5"]) == 0
    assert main(["verify", f"{run}@40"]) == 1


def test_verify_says_how_fast_it_read(run, capsys, monkeypatch):
    nbytes, clock = verify(run, 5).nbytes, iter([10.0, 10.5])
    monkeypatch.setattr(verify_module, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert main(["verify", f"{run}@5"]) == 0
    assert capsys.readouterr().out.endswith(f" in 5 files, {wording.size(nbytes / 0.5)}/s\n")


def test_verify_says_whose_ranks_differed_with_an_exit_code_of_its_own(run, capsys):
    files.write_checkpoint(run, 50, diverged=3)
    assert main(["verify", str(run)]) == 4
    text = capsys.readouterr().out
    assert "step-0000000040: ok, 2" in text and "step-0000000050: ok, ranks differed (in 3 tensors), 2" in text
    assert main(["verify", f"{run}@40"]) == 0
    assert main(["verify", f"{run}@50", "--json"]) == 4
    capsys.readouterr()
    assert main(["verify", str(run), "--json"]) == 4
    reports = {report["step"]: report for report in json.loads(capsys.readouterr().out)}
    assert [reports[step]["diverged"] for step in (40, 50)] == [0, 3] and reports[50]["ok"]
    files.flip(run / "step-0000000050" / files.MODEL_FILE, 5000)
    assert main(["verify", str(run)]) == 1, "damage says more"
    assert "step-0000000050: DAMAGED, ranks differed" in capsys.readouterr().out
    assert main(["ls", str(run)]) == 0
    assert "full, ranks differed" in capsys.readouterr().out


def test_verify_quarantine_moves_what_is_damaged_and_says_where(run, capsys):
    files.flip(run / "step-0000000040" / files.MODEL_FILE, 5000)
    assert main(["verify", str(run)]) == 1
    assert (run / "step-0000000040").exists() and not (run / "lock").exists()
    capsys.readouterr()
    assert main(["verify", str(run), "--json", "--quarantine"]) == 1
    reports = {report["step"]: report for report in json.loads(capsys.readouterr().out)}
    target = run / "damaged" / f"step-0000000040-{files.ATTEMPT}"
    assert [reports[step]["moved"] for step in (5, 40)] == [None, str(target)] and target.is_dir()
    assert WritableRun.open(run).step_dirs() == [5]
    (run / "step-0000000005" / "manifest.json").unlink()
    assert main(["verify", f"{run}@5", "--quarantine"]) == 1
    assert f"moved to {run}/damaged/step-0000000005-unknown" in capsys.readouterr().out


def test_verify_quarantine_is_refused_while_a_job_holds_the_run(run, capsys):
    files.flip(run / "step-0000000040" / files.MODEL_FILE, 5000)
    with Lock.acquire(run):
        assert main(["verify", str(run), "--quarantine"]) == 1
        assert f"pid {os.getpid()}" in capsys.readouterr().err
    assert WritableRun.open(run).step_dirs() == [5, 40]


def test_verify_quarantine_leaves_what_is_whole_itself_in_place(run, capsys):
    """The structure's file belongs to several checkpoints, a newer version's manifest is not damaged, and a file too many
    keeps nobody from restoring."""
    (run / "step-0000000040" / "note.txt").write_text("the best one")
    assert main(["verify", str(run), "--quarantine"]) == 1
    (structure,) = (run / "structures").iterdir()
    structure.unlink()
    assert main(["verify", str(run), "--quarantine"]) == 1
    manifest = run / "step-0000000005" / "manifest.json"
    body = manifest.read_bytes().replace(b'"format": 1', b'"format": 3').replace(b'"format": 2', b'"format": 3')
    manifest.write_bytes(files.sign(body[: body.rindex(b'  "crc32c"')]))
    assert main(["verify", str(run), "--quarantine"]) == 1
    assert WritableRun.open(run).step_dirs() == [5, 40] and not (run / "damaged").exists()


def test_verify_quarantine_leaves_what_could_not_be_read_in_place(run, capsys, monkeypatch):
    """An error that may pass, or a newer version's record, says nothing of the bytes."""

    def fails(error, call, of=""):
        def failing(*arguments):
            if any(of in str(argument) for argument in arguments):
                raise OSError(error, os.strerror(error))
            return call(*arguments)

        return failing

    for place, name, of, error in (
        (PosixStore, "open", files.MODEL_FILE, errno.ESTALE),
        (os, "preadv", "", errno.ETIMEDOUT),
        (PosixStore, "read", ".record", errno.EACCES),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fails(error, getattr(place, name), of))
            assert main(["verify", str(run), "--quarantine"]) == 1
            assert "moved to" not in capsys.readouterr().out, name
    record = run / "step-0000000005" / "rank-00000.record"
    body = bytearray(record.read_bytes()[:-4])
    body[8] = 3
    record.write_bytes(bytes(body) + struct.pack("<I", google_crc32c.value(bytes(body))))
    assert main(["verify", str(run), "--quarantine"]) == 1
    assert WritableRun.open(run).step_dirs() == [5, 40] and not (run / "damaged").exists()
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", fails(errno.EIO, os.preadv))
        assert main(["verify", f"{run}@40", "--quarantine"]) == 1
    assert WritableRun.open(run).step_dirs() == [5]


def test_verify_reports_a_checkpoint_without_manifest(run, capsys):
    (run / "step-0000000005" / "manifest.json").unlink()
    assert main(["verify", str(run)]) == 1
    assert "manifest.json: the whole checkpoint" in capsys.readouterr().out


def test_verify_json_has_every_problem(run, capsys):
    files.flip(run / "step-0000000040" / files.MODEL_FILE, 4100)
    assert main(["verify", "--json", f"{run}"]) == 1
    good, bad = json.loads(capsys.readouterr().out)
    assert (good["ok"], good["problems"], bad["ok"]) == (True, [], False)
    assert bad["problems"][0]["file"] == files.MODEL_FILE
    assert set(bad["problems"][0]) == {"file", "part", "expected", "found"}


@pytest.mark.parametrize("command", ["ls", "show", "verify"])
@pytest.mark.parametrize("target", ["none", "nt3@41", "nt3/structures"])
def test_what_is_not_there_is_one_line_on_stderr_and_exit_code_1(run, capsys, monkeypatch, command, target):
    monkeypatch.chdir(run.parent)
    assert main([command, target]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("deepfreeze: ") and captured.err.count("\n") == 1
    assert "expected" in captured.err and "found" in captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["ls"],
        ["nonsense"],
        ["ls", "nt3@.x"],
        ["ls", "nt3@-1"],
        ["verify", "@4"],
        ["show"],
        ["export", "nt3"],
        ["diff", "nt3"],
        ["diff", "a", "b", "--top", "0"],
        ["prune", "nt3"],
    ],
)
def test_a_wrong_command_line_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: deepfreeze" in capsys.readouterr().err


def test_a_directory_with_an_at_sign_is_a_run(tmp_path, capsys):
    path = files.write_run(tmp_path / "run@5")
    files.write_checkpoint(path, 40)
    assert main(["verify", str(path)]) == 0
    assert main(["verify", f"{path}@40"]) == 0


def test_names_are_printed_as_they_are(tmp_path, capsys):
    path = files.write_run(tmp_path / "[red]run")
    folder, _ = files.write_checkpoint(path, 40)
    (folder / "[bold]x").write_text("")
    assert main(["verify", str(path)]) == 1
    out = capsys.readouterr().out
    assert "[red]run" in out and "[bold]x" in out


def test_help_is_enough_to_use_it(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    words = (
        "ls",
        "show",
        "plan",
        "verify",
        "diff",
        "export",
        "tag",
        "untag",
        "prune",
        "RUN@STEP",
        "RUN@NAME",
        "exit codes",
        "examples",
        "no TensorFlow",
    )
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"^ {4}build-horovod  build and", out, re.MULTILINE), "the longest name too has its text beside it"
    words += ("  0  ", "  1  ", "  2  ", "  3  ", "  130  ", "| head")
    for word in words:
        assert word in out


@pytest.mark.parametrize("command", ["ls", "show", "plan", "verify", "diff", "export", "tag", "untag", "prune"])
def test_the_help_of_a_command_is_enough_to_use_it(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    for word in ("exit codes:", "examples:", f"deepfreeze {command} ", "--json"):
        assert word in out
    assert max(map(len, out.splitlines())) <= 80
    for code in (0, 1, 2):
        assert re.search(rf"^  {code}  \w", out, re.MULTILINE)
    # Its examples are command lines that it takes.
    for example in out.partition("examples:")[2].strip().splitlines():
        parser().parse_args(shlex.split(re.split(r" {3,}", example.strip())[0])[1:])


@pytest.mark.parametrize(
    "command", ["", "ls", "show", "log", "plan", "verify", "diff", "export", "tag", "untag", "prune"]
)
def test_exit_codes_stand_below_each_other_and_fill_their_lines(command, capsys):
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    lines = capsys.readouterr().out.partition("exit codes:\n")[2].partition("\n\n")[0].splitlines()
    begins = [re.match(r" +(?:\d+  )?", line).end() for line in lines]
    assert len(lines) > 2 and len(set(begins)) == 1, lines
    for line, after in itertools.pairwise(lines):
        assert re.match(r" +\d", after) or len(line) + 1 + len(after.split()[0]) > 80, f"{line} has room for more"


def test_no_command_needs_tensorflow_or_the_engine(run, tmp_path):
    files.write_checkpoint(run, 30)
    configs.write_config(run)
    plans.write_plan(run)
    commands = [
        ["ls", str(run)],
        ["show", str(run)],
        ["verify", str(run)],
        ["plan", str(run), "--explain"],
        ["diff", f"{run}@30", str(run)],
        *(["export", str(run), str(tmp_path / f"a{suffix}")] for suffix in (".weights.h5", ".safetensors", ".keras")),
        ["prune", str(run), "--keep", "1", "--yes"],
    ]
    code = (
        "import json, sys; from deepfreeze.cli.main import main\n"
        "codes = [main(command) for command in json.loads(sys.argv[1])]\n"
        "assert not any(codes), codes\n"
        "others = {'tensorflow', 'keras', 'tf_keras', 'safetensors', 'ml_dtypes', 'veloc_bindings', 'matplotlib'} & set(sys.modules)\n"
        "assert not others, others"
    )
    done = processes.run([sys.executable, "-c", code, json.dumps(commands)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_runs_as_a_module_and_survives_a_closed_pipe(run):
    command = [sys.executable, "-m", "deepfreeze", "ls", str(run)]
    done = processes.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split()[0] == "40"
    reader, writer = os.pipe()
    os.close(reader)
    closed = processes.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (closed.returncode, closed.stderr) == (1, "")


@pytest.mark.parametrize("command", ["verify", "export"])
def test_ctrl_c_ends_a_command_with_130_and_leaves_nothing_behind(run, tmp_path, command):
    """A real one, at a moment when the work is under way."""
    code = (
        "import os, signal, sys\n"
        "from deepfreeze.cli.main import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job has it ignored
        "preadv = os.preadv\n"
        "os.preadv = lambda *arguments: os.kill(os.getpid(), signal.SIGINT) or preadv(*arguments)\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    (tmp_path / "out").mkdir()
    rest = [str(tmp_path / "out" / "a.weights.h5")] if command == "export" else []
    done = processes.run([sys.executable, "-c", code, command, str(run), *rest], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "") and os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize("command", ["verify", "diff", "export", "prune"])
def test_long_work_shows_a_bar_on_a_terminal_and_nowhere_else(run, tmp_path, command, capsys):
    rest = {"diff": [f"{run}@5"], "export": [str(tmp_path / "a.weights.h5")], "prune": ["--keep", "1", "--yes"]}
    words = [command, str(run), *rest.get(command, []), *(["--overwrite"] if command == "export" else [])]
    master, slave = os.openpty()
    done = processes.run([sys.executable, "-m", "deepfreeze", *words], stdout=subprocess.PIPE, stderr=slave, text=True)
    os.close(slave)
    shown = os.read(master, 1 << 16)
    os.close(master)
    assert done.returncode == 0 and b"\x1b[" in shown and done.stdout
    assert "\x1b[" not in done.stdout
    files.write_checkpoint(run, 3)
    assert main([*words, "--json"] if command != "export" else words) == 0
    quiet = capsys.readouterr()
    assert quiet.err == "" and quiet.out
