"""The lines of a file of events, read in pieces: right ones whole, long ones left out and counted, and no more in memory than a line."""

import contextlib
import json
import os
import random
import tracemalloc

import pytest

from deepfreeze.cli import show_engine
from deepfreeze.cli.main import main
from deepfreeze.events import event_lines
from deepfreeze.events.event_files import EventFiles
from deepfreeze.events.event_lines import MAX_LINE, EventLines, is_number, parse
from deepfreeze.events.newest_end import newest_end
from deepfreeze.events.restarts import newest_restarts
from deepfreeze.format import names
from deepfreeze.store.files import open_file
from deepfreeze.store.posix_ranges import PosixRanges
from deepfreeze.store.run import Run
from tests.support import files
from tests.support.seed import SEED

END = {"v": 1, "t": 5, "m": 1.0, "kind": "end", "finished": True}


@pytest.fixture
def opened(tmp_path):
    """Opens a file with these bytes."""
    path, made = tmp_path / "events", []

    def make(data):
        path.write_bytes(data)
        made.append(PosixRanges(open_file(path), path))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def run(tmp_path):
    return files.write_run(tmp_path / "nt3")


def line(step, text=""):
    return json.dumps({**END, "step": step, "text": text}).encode()


def write(run, data):
    """Writes the file of events of the attempt that has the run."""
    (run / names.EVENTS_DIR).mkdir(exist_ok=True)
    (run / "owner").write_text(files.ATTEMPT + "\n")
    file = run / names.EVENTS_DIR / names.events_file(files.ATTEMPT)
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("piece", [1, 7, 64, 1 << 18])
def test_lines_come_whole_whatever_the_pieces_and_long_ones_are_counted(opened, piece):
    """A file that grows between reads, at random places. Whoever splits all of it at once finds the same events."""
    print(f"seed {SEED}")
    rng = random.Random(SEED + piece)
    lines = [line(step, "x" * rng.choice((0, 3, 20, 21, 50, 300))) for step in range(60)]
    longest = len(line(10, "x" * 20))
    data = b"\n".join(lines) + b"\n" + line(99)
    reader, found, at = EventLines(longest, piece), [], 0
    while at < len(data):
        at = min(len(data), at + rng.randrange(1, 400))
        found += [event["step"] for event in reader.new(opened(data[:at]))]
    assert found == [step for step, one in enumerate(lines) if len(one) <= longest]
    assert reader.skipped == len(lines) - len(found) > 0
    assert [event["step"] for event in reader.new(opened(data + b"\n"))] == [99]


def test_a_line_that_is_too_long_counts_before_it_ends(opened):
    reader = EventLines(100, 10)
    for length, skipped in ((100, 0), (101, 1), (500, 1)):
        assert list(reader.new(opened(b"x" * length))) == [] and reader.skipped == skipped
    assert [event["step"] for event in reader.new(opened(b"x" * 500 + b"\n" + line(1) + b"\n"))] == [1]
    assert reader.skipped == 1


def test_a_reader_that_stops_goes_on_with_the_next_event(opened):
    reader, file = EventLines(), opened(b"".join(line(step) + b"\n" for step in range(5)))
    events = reader.new(file)
    assert next(events)["step"] == 0 and next(events)["step"] == 1
    events.close()
    assert [event["step"] for event in reader.new(file)] == [2, 3, 4]


def test_a_long_line_takes_the_memory_of_the_longest_one(opened):
    file = opened(b"x" * (40 << 20) + b"\n" + line(1) + b"\n")
    tracemalloc.start()
    try:
        reader = EventLines()
        assert len(list(reader.new(file))) == 1 and reader.skipped == 1
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX_LINE
    finally:
        tracemalloc.stop()


def test_a_hole_is_passed_over_unread(opened, monkeypatch):
    """A hole is a part of a sparse file for which the disk has no block. It may have 8 EiB."""
    file, size = opened(line(1) + b"\n"), 1 << 30
    os.truncate(file.path, size)
    with open(file.path, "ab") as end:
        end.write(b"\n" + line(2) + b"\n")
    if file.behind_hole(1 << 20) == 1 << 20:
        pytest.skip("this file system does not tell its holes")
    asked = []
    monkeypatch.setattr(file, "get", lambda at, n: asked.append(n) or PosixRanges.get(file, at, n))
    reader = EventLines()
    assert [event["step"] for event in reader.new(file)] == [1, 2]
    assert reader.skipped == 1 and sum(asked) < 16 * MAX_LINE
    os.truncate(file.path, 2 * size)
    with contextlib.closing(PosixRanges(open_file(file.path), file.path)) as longer:
        assert longer.behind_hole(size + (1 << 20)) == 2 * size, "the hole at the end"


def test_of_a_file_without_holes_none_is_passed_over(opened):
    file = opened(b"x" * 10_000)
    assert [file.behind_hole(at) for at in (0, 1, 4096, 9999, 10_000, 20_000)] == [0, 1, 4096, 9999, 10_000, 20_000]


def test_log_says_how_many_lines_were_skipped(run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    write(run, b"x" * (MAX_LINE + 1) + b"\n" + line(1) + b"\n" + b"y" * (MAX_LINE + 1))
    assert main(["log", str(run)]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1 and "step 1" in captured.out
    assert (
        captured.err == "deepfreeze: skipped 2 lines of more than 1 MiB in the files of events: no event is so long\n"
    )
    assert main(["log", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 1
    assert newest_end(Run.open(run)).ended


# An integer of hundreds of digits, which no float has.
HUGE = "1" + "0" * 400


@pytest.mark.parametrize("number", [f"-{HUGE}", HUGE, str(2**63), "1" + "0" * 4300])
def test_a_time_that_no_clock_has_makes_no_event(number):
    assert parse(json.dumps(END).replace("5", number).encode()) is None


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), int(HUGE), [1]])
def test_what_no_float_can_hold_is_no_number(value):
    assert not is_number(value) and is_number(1) and is_number(-1.5)


def test_numbers_that_no_float_has_are_shown_or_left_out(run, capsys):
    attempt = {**END, "kind": "attempt", "attempt": files.ATTEMPT}
    started = {**END, "kind": "started", "since": "process", "seconds": "HUGE"}
    counts = {"direct_bytes": "HUGE", "syncs": "HUGE"}
    engine = {"waits": "HUGE", "wait_s": "HUGE", "external": counts, "threads": {"main": "HUGE"}}
    events = (attempt, started, {**END, "kind": "counted", "engine": engine}, {**END, "step": "HUGE"})
    text = "".join(json.dumps(event).replace('"HUGE"', HUGE) + "\n" for event in events)
    write(run, text.encode())
    opened_run = Run.open(run)
    assert newest_restarts(opened_run) is None and newest_end(opened_run).ended
    assert show_engine.show(opened_run, as_json=False) == 0 and main(["log", str(run)]) == 0
    assert HUGE in capsys.readouterr().out
    assert len(EventFiles(run).new()) == 4 and event_lines.MAX_LINE == 1 << 20


RAW = "\x1b[2J\u202e"


def test_text_of_an_event_reaches_no_terminal_raw(run, capsys):
    attempt = {**END, "kind": "attempt", "attempt": RAW}
    engine = {RAW: RAW, "waits": RAW, "looks": [RAW], "external": {RAW: RAW, "a_bytes": RAW}, "threads": {RAW: RAW}}
    ended = {**END, "finished": False, "error": RAW, "kind": "end", RAW: RAW}
    stopped = {**END, "kind": RAW, "step": RAW}
    write(
        run,
        b"".join(
            json.dumps(one).encode() + b"\n"
            for one in (attempt, {**END, "kind": "counted", "engine": engine}, stopped, ended)
        ),
    )
    opened_run = Run.open(run)
    assert main(["log", str(run)]) == 0 and main(["log", str(run), "--ended"]) == 1
    assert show_engine.show(opened_run, as_json=False) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "\u202e" not in printed and printed.count("u001b[2J") > 8


def test_a_line_of_many_levels_is_no_event():
    """Whoever prints a value goes down into it, and Python has a limit for that."""

    def nested(levels):
        return json.dumps(END).encode().replace(b"true", b"[" * levels + b"]" * levels)

    assert parse(nested(49)) is not None and parse(nested(51)) is None and parse(nested(900)) is None
