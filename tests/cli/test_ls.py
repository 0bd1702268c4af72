"""``deepfreeze ls`` of a directory of runs."""

import json
import os
import time

import pytest

from deepfreeze.cli.main import main
from deepfreeze.events import Progress, Unfinished
from deepfreeze.format import names
from deepfreeze.store.runs import runs
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.tiers import tiers
from deepfreeze.tiers.local_tier import LocalTier
from tests.support import files


@pytest.fixture
def directory(tmp_path):
    """Runs of every state, and what is no run."""
    for number in (9, 10):
        path = files.write_run(tmp_path / f"trial-{number}")
        for step in (5, 40):
            files.write_checkpoint(path, step)
    files.write_run(tmp_path / "begun")
    bad = files.write_run(tmp_path / "bad")
    made = files.sample(world=1, state="weights")
    files.write_checkpoint(bad, 1, made)
    files.write_checkpoint(bad, 2, made, diverged=2)
    files.write_checkpoint(bad, 3, made)
    (bad / "step-0000000001" / "manifest.json").unlink()
    files.flip(bad / "step-0000000003" / "manifest.json", 20)
    WritableRun.open(bad).quarantine(3)
    files.write_partial(bad, 50, made)
    files.write_run(tmp_path / "lost", signed=True)
    files.flip(tmp_path / "lost" / "run.json", 30)
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "logs").mkdir()
    files.write_run(tmp_path / ".hidden")
    return tmp_path


def test_each_run_has_a_line(directory, capsys, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1795232158.0 + 120)
    assert main(["ls", str(directory)]) == 0
    lines = capsys.readouterr().out.replace(f"{directory}/", "").splitlines()
    assert [line.split()[0] for line in lines] == ["run", "bad", "begun", "lost", "trial-9", "trial-10"]
    rows = [" ".join(line.split()) for line in lines]
    assert rows[0] == "run newest age kept size holds state"
    assert rows[1] == "bad 2 2 min 1 20 kB weights, keras 3.15.1 ranks differed, 2 damaged, 1 unfinished"
    assert rows[2] == "begun no checkpoint yet"
    assert rows[3].startswith("lost ") and "expected CRC32C" in rows[3]
    assert rows[4] == "trial-9 40 2 min 2 40 kB full, keras 3.15.1"


def test_json_has_each_run_and_its_newest_checkpoint(directory, capsys):
    assert main(["ls", str(directory), "--json"]) == 0
    found = {entry.pop("run"): entry for entry in json.loads(capsys.readouterr().out)}
    trial = found[f"{directory}/trial-9"]
    assert (trial["newest"]["step"], trial["checkpoints"], trial["nbytes"]) == (40, 2, 2 * 20032)
    bad = found[f"{directory}/bad"]
    assert (bad["damaged"], bad["unfinished"], bad["diverged"], bad["problem"]) == (2, 1, 1, None)
    assert found[f"{directory}/begun"]["newest"] is None and "CRC32C" in found[f"{directory}/lost"]["problem"]


def test_without_a_checkpoint_the_exit_code_is_1(tmp_path, capsys):
    files.write_run(tmp_path / "begun")
    assert main(["ls", str(tmp_path)]) == 1
    assert "no checkpoint yet" in capsys.readouterr().out
    assert main(["ls", f"{tmp_path}@40"]) == 1
    assert "expected a run" in capsys.readouterr().err


def test_what_is_no_directory_has_no_runs(tmp_path):
    (tmp_path / "file").write_text("")
    assert runs(tmp_path / "file") == runs(tmp_path / "none") == runs(tmp_path) == []


def test_checkpoints_on_their_way_are_shown_with_their_bytes(tmp_path, capsys, monkeypatch):
    run = files.write_run(tmp_path / "run")
    files.write_checkpoint(run, 40)
    made = files.sample(world=4)
    files.write_partial(run, 50, made, ranks=[0, 2], attempt="ab" * 16)
    (run / "owner").write_text("ab" * 16 + "\n")
    (run / "events").mkdir()
    shard = {"level": "local", "nbytes": 124_000_000, "local": 124_000_000, "published": False}
    under_way = Progress(
        t=1_795_232_158 * 10**9,
        unfinished=(
            Unfinished(
                50, external=124_000_000, seconds=3.0, waits_for="its commit (rank 1)", **{**shard, "published": True}
            ),
            Unfinished(60, external=41_000_000, seconds=1.2, waits_for="", **shard),
        ),
    )
    (run / "events" / f"{'ab' * 16}.jsonl").write_text(json.dumps(under_way.to_json(0.0)) + "\n")
    monkeypatch.setattr(time, "time", lambda: 1795232158.0 + 2)
    monkeypatch.setattr(tiers, "TIERS", {"disk": lambda: LocalTier(tmp_path, None)})
    local = tmp_path / names.local_dir(os.geteuid(), files.RUN_ID)
    local.mkdir(mode=0o700, parents=True)
    local.parent.chmod(0o700)
    for rank, step in ((0, 50), (3, 50), (1, 40)):
        extents = [(at, made.content[at : at + size]) for at, size in made.extents[rank]]
        head = files.identity(
            structure=made.hash, step=step, rank=rank, world=4, file_size=len(made.content), extents=len(extents), attempt="ab" * 16
        )  # fmt: skip
        (local / files.slot_name(rank, "ab" * 16, step)).write_bytes(files.slot(head, extents, made.private(rank)))
    assert main(["ls", str(run)]) == 0
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert first == (
        "on its way 2 s ago: step 50, for 3 s, 124 MB of 124 MB on the local tier, rank 0's part is durable, "
        "parts of 2 ranks (0, 3) whole on this node, parts of 2 ranks (0, 2) published, waits for its commit (rank 1)"
    )
    assert (
        second
        == "on its way 2 s ago: step 60, for 1.2 s, 124 MB of 124 MB on the local tier, 41 MB of 124 MB in the store"
    )
