"""``deepfreeze tag`` and ``untag``, RUN@NAME in every command, and what ``ls`` and ``prune`` say of retention."""

import json

import pytest

import deepfreeze
from deepfreeze.cli.main import main
from deepfreeze.format.marks import Mark, MarksFile
from tests.support import files


@pytest.fixture
def run(tmp_path):
    path = files.write_run(tmp_path / "nt3")
    for step in (5, 10, 40):
        files.write_checkpoint(path, step)
    return path


def mark(run, rule="Latest(2)", **more):
    marks = (Mark(10, files.ATTEMPT, 1, False, 2, 12, {"val_loss": 0.03125, "acc": 0.5}, "best val_loss 0.03125"),)
    marks += (Mark(40, files.ATTEMPT, 2, False, reason="newest"), Mark(99, files.ATTEMPT, 3))
    (run / "marks.json").write_bytes(MarksFile(files.RUN_ID, rule, marks=marks, **more).to_bytes())


def test_a_tag_is_made_used_and_taken_away(run, capsys):
    assert main(["tag", f"{run}@10", "paper"]) == 0
    assert capsys.readouterr().out == f"{run}@paper is step 10\n"
    assert main(["tag", str(run), "newest", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run": str(run), "step": 40, "tag": "newest"}
    assert main(["untag", f"{run}@paper"]) == 0
    assert capsys.readouterr().out == f"{run}@paper is no tag any more; it was step 10\n"
    assert main(["untag", f"{run}@paper"]) == 1
    assert "a tag paper; found newest" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ls", "show", "verify", "diff", "export"])
def test_every_command_takes_a_tag_in_a_steps_place(run, tmp_path, capsys, command):
    main(["tag", f"{run}@10", "paper"])
    more = {"diff": [f"{run}@10"], "export": [str(tmp_path / "out.safetensors")]}.get(command, [])
    capsys.readouterr()
    assert main([command, f"{run}@paper", *more]) == 0
    out = capsys.readouterr().out
    assert "10" in out and "step 40" not in out and "@40" not in out
    more = [arg.replace("out.", "other.") for arg in more]
    assert main([command, f"{run}@papers", *more]) == 1
    assert "expected a tag papers; found paper" in capsys.readouterr().err


def test_log_takes_a_tag(run, capsys):
    files.write_events(run)
    main(["tag", f"{run}@40", "paper"])
    capsys.readouterr()
    assert main(["log", f"{run}@40"]) == main(["log", f"{run}@paper"])


def test_a_job_that_would_not_keep_it_is_pointed_out(run, capsys):
    mark(run)
    assert main(["tag", f"{run}@10", "paper"]) == 0
    assert "has keep=Latest(2), which keeps no checkpoint for its tag: Tagged() does" in capsys.readouterr().out
    mark(run, "Latest(2) | Tagged()")
    assert main(["tag", f"{run}@40", "new"]) == 0
    assert capsys.readouterr().out == f"{run}@new is step 40\n"


@pytest.mark.parametrize("name", ["a/b", "40"])
def test_a_name_that_can_not_be_one_is_refused(run, capsys, name):
    assert main(["tag", f"{run}@10", name]) == 1
    assert "expected a name of letters, digits" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["untag", f"{run}@40"])


def test_ls_says_why_each_stays_and_how_far_its_metrics_are(run, capsys):
    mark(run)
    main(["tag", f"{run}@5", "first"])
    capsys.readouterr()
    assert main(["ls", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "stays because" in lines[0] and "metrics" in lines[0]
    assert "tag first" in lines[1] and "best val_loss 0.03125" in lines[2] and "newest" in lines[3]
    assert "epoch 2, 2 steps later: val_loss 0.03125, acc 0.5" in lines[2]
    assert main(["ls", str(run), "--json"]) == 0
    first, second, third = json.loads(capsys.readouterr().out)
    assert (first["tags"], second["reason"], third["metrics"]) == (["first"], "best val_loss 0.03125", {})
    assert (second["epoch"], second["steps_between"], second["metrics"]["acc"]) == (2, 2, 0.5)


def test_show_ls_and_the_library_have_the_same_metrics(run, capsys):
    """Also of a checkpoint whose manifest has the logs of the epoch before."""
    files.write_checkpoint(
        run, 50, files.sample(version=2), said={"logs": {"epoch": 2, "step": 40, "values": {"loss": 9.0}}}
    )
    ended = Mark(50, files.ATTEMPT, 1, False, 3, 50, {"loss": 0.25}, "newest 2")
    stranger = Mark(40, "f" * 32, 1, False, 7, 40, {"loss": 7.0})
    (run / "marks.json").write_bytes(MarksFile(files.RUN_ID, "Latest(2)", marks=(stranger, ended)).to_bytes())
    with deepfreeze.read(run) as tensors:
        infos = [deepfreeze.latest(run), deepfreeze.checkpoints(run)[-1], tensors.info]
    assert [(one.step, one.epoch, one.metrics, one.measured) for one in infos] == [(50, 3, {"loss": 0.25}, 50)] * 3
    for command in ("ls", "show"):
        assert main([command, f"{run}@50", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        found = found[0] if command == "ls" else found["checkpoint"]
        assert (found["epoch"], found["metrics"], found["measured"]) == (3, {"loss": 0.25}, 50)
        assert main([command, f"{run}@50"]) == 0
        assert "epoch 3: loss 0.25" in capsys.readouterr().out
    other = deepfreeze.checkpoints(run)[-2]
    assert (other.step, other.epoch, other.metrics, other.measured) == (40, None, {}, None), "another attempt's mark"


@pytest.mark.parametrize("state", ["lost", "damaged"])
def test_without_marks_a_checkpoint_has_the_metrics_of_its_manifest(run, capsys, state):
    """They are there if the checkpoint was taken after its epoch's end; the logs of the epoch before are not the checkpoint's."""
    own = {"loss": 0.5, "odd": "nan"}
    files.write_checkpoint(run, 50, files.sample(version=2), said={"logs": {"epoch": 3, "step": 50, "values": own}})
    files.write_checkpoint(run, 60, files.sample(version=2), said={"logs": {"epoch": 3, "step": 50, "values": own}})
    data = MarksFile(files.RUN_ID, marks=(Mark(50, files.ATTEMPT, 1, epoch=9, metrics={"loss": 9.0}),)).to_bytes()
    if state == "damaged":
        (run / "marks.json").write_bytes(data[:-9])
    *_, ended, newest = deepfreeze.checkpoints(run)
    assert (ended.epoch, ended.metrics, ended.measured) == (3, {"loss": 0.5}, 50)
    assert (newest.epoch, newest.metrics, newest.measured) == (None, {}, None)
    assert main(["show", str(run)]) == 0
    assert "epoch 3: loss 0.5" in capsys.readouterr().out, "the newest logs that there are, with the epoch's number"


def test_a_narrow_ls_has_metrics_only_if_something_stays_for_them(run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    mark(run)
    assert main(["ls", str(run)]) == 0
    assert "metrics" in capsys.readouterr().out
    values = {"val_loss": 0.03125, "accuracy": 0.123456}
    marks = tuple(Mark(step, files.ATTEMPT, 1, False, 2, 12, values, "newest 2") for step in (10, 40))
    (run / "marks.json").write_bytes(MarksFile(files.RUN_ID, "Latest(2)", marks=marks).to_bytes())
    assert main(["ls", str(run)]) == 0
    out = capsys.readouterr().out
    assert "newest 2" in out and "metrics" not in out and len(out.splitlines()) == 4, out


def test_damaged_marks_and_tags_do_not_keep_ls_from_listing(run, capsys):
    mark(run)
    main(["tag", f"{run}@5", "first"])
    files.flip(run / "marks.json", 30)
    files.flip(run / "tags" / "first", 30)
    capsys.readouterr()
    assert main(["ls", str(run), "--json"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)) == 3 and captured.err.count("deepfreeze: ") == 2


def test_prune_takes_the_rules_of_a_job_and_says_what_stays_and_why(run, capsys):
    mark(run)
    main(["tag", f"{run}@5", "first"])
    capsys.readouterr()
    assert main(["prune", str(run), "--best", "val_loss:min"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "step 5 stays: tag first",
        "step 10 stays: best val_loss 0.03125",
        "step 40 stays: newest",
        f"{run}: nothing to delete; 3 kept: step 5, 10, 40",
    ]
    main(["untag", f"{run}@first"])
    capsys.readouterr()
    assert main(["prune", str(run), "--epochs", "2", "--yes"]) == 0
    assert "step 10 stays: epoch 2" in capsys.readouterr().out
    assert main(["prune", str(run), "--best", "acc:min:2", "--every", "30", "--every-seconds", "9", "--keep", "1"]) == 0


@pytest.mark.parametrize("wrong", ["val_loss", "val_loss:lowest", ":min", "val_loss:min:0", "a:min:x"])
def test_a_best_that_is_none_is_a_wrong_command_line(run, capsys, wrong):
    with pytest.raises(SystemExit) as caught:
        main(["prune", str(run), "--best", wrong])
    assert caught.value.code == 2 and "--best" in capsys.readouterr().err


def test_a_damaged_tag_keeps_prune_from_deleting(run, capsys):
    main(["tag", f"{run}@5", "first"])
    files.flip(run / "tags" / "first", 30)
    assert main(["prune", str(run), "--keep", "1", "--yes"]) == 1
    assert f"{run}/tags/first" in capsys.readouterr().err
