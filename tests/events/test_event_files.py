"""The file of an attempt's events: written by the line, read while it grows, and read whatever is in it."""

import json
import os
import random

import pytest

from deepfreeze.errors import CorruptError
from deepfreeze.events.event import Attempt, Captured, End, External, Failed
from deepfreeze.events.event_files import EventFiles
from deepfreeze.events.event_lines import parse
from deepfreeze.events.journal import Journal
from deepfreeze.format import names
from deepfreeze.store.stores import at
from tests.support.seed import SEED

ATTEMPT = "ab" * 16
BEGUN = Attempt(
    step=0, run_id="cd" * 16, attempt=ATTEMPT, ranks=2, host="node", pid=7, t=1_700_000_000_000_000_000, m=100.0
)
EVENTS = [BEGUN, Captured(step=5, nbytes=10, t=BEGUN.t + 1, m=101.5), End(finished=True, t=BEGUN.t + 2, m=102.25)]


def is_failure(event):
    return isinstance(event, Failed)


def write(run, events, attempt=ATTEMPT, rank=0, **options):
    journal = Journal(at(run), f"{names.EVENTS_DIR}/{names.events_file(attempt, rank)}", BEGUN.m, **options)
    for event in events:
        journal.on(event)
    journal.close()


def test_what_is_written_is_read_with_seconds_of_the_attempt(tmp_path):
    write(tmp_path, EVENTS)
    begun, captured, end = EventFiles(tmp_path).new()
    assert begun == {
        "v": 1, "t": BEGUN.t, "m": 0.0, "kind": "attempt", "step": 0, "run_id": "cd" * 16, "attempt": ATTEMPT, "ranks": 2,
        "host": "node", "pid": 7, "again": False,
    }  # fmt: skip
    assert captured == {"v": 1, "t": BEGUN.t + 1, "m": 1.5, "kind": "captured", "step": 5, "nbytes": 10}
    assert end == {"v": 1, "t": BEGUN.t + 2, "m": 2.25, "kind": "end", "finished": True}


def test_new_events_come_once_while_files_grow_and_come(tmp_path):
    files = EventFiles(tmp_path)
    assert files.new() == []
    write(tmp_path, EVENTS[:1])
    assert [event["kind"] for event in files.new()] == ["attempt"]
    file = tmp_path / names.EVENTS_DIR / names.events_file(ATTEMPT)
    line = json.dumps(EVENTS[1].to_json(BEGUN.m)) + "\n"
    with open(file, "a") as f:
        f.write(line[:20])
        f.flush()
        assert files.new() == [], "a line without its end"
        f.write(line[20:])
    write(tmp_path, [External(step=5, seconds=1.0, written=0.5)], attempt="cd" * 16)
    assert [event["kind"] for event in files.new()] == ["captured", "external"]
    assert files.new() == []


def test_events_of_one_file_stay_in_order_if_the_clock_is_set_back(tmp_path):
    back = End(finished=True, t=BEGUN.t - 10**12, m=103.0)
    write(tmp_path, [*EVENTS[:2], back])
    assert [event["kind"] for event in EventFiles(tmp_path).new()] == ["attempt", "captured", "end"]


def test_only_kinds_that_rank_0_can_not_know_make_a_file_of_another_rank(tmp_path):
    write(tmp_path, EVENTS, rank=3, wanted=is_failure)
    assert not (tmp_path / names.EVENTS_DIR).exists()
    write(
        tmp_path,
        [*EVENTS, Failed(step=5, message="no space", raised=True, reported=False)],
        rank=3,
        wanted=is_failure,
    )
    assert os.listdir(tmp_path / names.EVENTS_DIR) == [f"{ATTEMPT}.rank-00003.jsonl"]
    assert [event["kind"] for event in EventFiles(tmp_path).new()] == ["failed"]


def test_after_a_line_that_a_full_store_cut_the_next_one_is_whole(tmp_path, monkeypatch):
    journal = Journal(at(tmp_path), f"{names.EVENTS_DIR}/{names.events_file(ATTEMPT)}", BEGUN.m)
    journal.on(EVENTS[0])
    write_all = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write_all(fd, data[:20]))
    with pytest.raises(OSError, match="a part of a line"):
        journal.on(EVENTS[1])
    monkeypatch.undo()
    journal.on(EVENTS[2])
    assert [event["kind"] for event in EventFiles(tmp_path).new()] == ["attempt", "end"]


def test_a_file_is_never_written_twice(tmp_path):
    write(tmp_path, EVENTS)
    with pytest.raises(FileExistsError):
        write(tmp_path, EVENTS)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{}", b"5", b"[]", b"not json", b'{"kind":"end"}', b'{"v":1,"t":"now","m":0,"kind":"end"}',
        b'{"v":1,"t":1,"m":0,"kind":5}', b'{"v":1,"t":1,"m":true,"kind":"end"}', b"\xff\xfe", b"[" * 100_000,
        b'{"v":1,"t":1,"m":1' + b"0" * 400 + b',"kind":"end"}', b'{"v":1,"t":1,"m":NaN,"kind":"end"}',
    ],
    ids=range(13),
)  # fmt: skip
def test_a_line_that_is_no_event_is_left_out(line):
    assert parse(line) is None


def test_kinds_and_members_of_later_versions_are_kept(tmp_path):
    later = {"v": 9, "t": 1, "m": 0.5, "kind": "teleported", "to": ["mars"]}
    assert parse(json.dumps(later).encode()) == later


def test_any_bytes_are_read_without_an_error(tmp_path):
    """Bytes of a true file, changed at random places."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    write(tmp_path, EVENTS * 5)
    file = tmp_path / names.EVENTS_DIR / names.events_file(ATTEMPT)
    whole = file.read_bytes()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(data[: rng.randrange(len(data) + 1)])
        assert all(set(event) >= {"v", "t", "m", "kind"} for event in EventFiles(tmp_path).new())


def test_other_files_are_left_alone_and_an_unreadable_one_is_named(tmp_path):
    folder = tmp_path / names.EVENTS_DIR
    folder.mkdir()
    (folder / "notes.jsonl").write_text('{"v":1,"t":1,"m":0,"kind":"end"}\n')
    assert EventFiles(tmp_path).new() == []
    (folder / names.events_file(ATTEMPT)).mkdir()
    with pytest.raises(CorruptError, match=ATTEMPT):
        EventFiles(tmp_path).new()


@pytest.mark.parametrize("rank", [0, 1, 3, 99_999, 100_000])
def test_names_of_files_lead_back_to_attempt_and_rank(rank):
    assert names.parse_events_file(names.events_file(ATTEMPT, rank)) == (ATTEMPT, rank)


@pytest.mark.parametrize(
    "name", [f"{ATTEMPT}.rank-00000.jsonl", f"{ATTEMPT}.rank-3.jsonl", "x.jsonl", f"{ATTEMPT}.json"]
)
def test_another_name_is_none_of_ours(name):
    assert names.parse_events_file(name) is None
