"""The one module that shows messages: which event becomes a line of the logger, which a warning, and which nothing."""

import fcntl
import io
import logging
import os
import struct
import sys
import termios
import warnings

import pytest

from deepfreeze.events.checkpoint_warning import CheckpointWarning
from deepfreeze.events.event import Captured, Diverged, Failed, Notice, Skipped, Stop
from deepfreeze.events.messages import Messages, to_logger

INFO, WARNING = logging.INFO, logging.WARNING


@pytest.mark.parametrize(
    ("event", "logged", "warned"),
    [
        (Notice(message="100% of it", level="info"), [(INFO, "100% of it")], []),
        (Notice(message="moved", level="warning"), [(WARNING, "moved")], []),
        (Notice(message="lost", level="warning", warned=True), [], ["lost"]),
        (Failed(step=5, message="no space", raised=False, reported=True), [], ["no space"]),
        (Failed(step=5, message="no space", raised=True, reported=True), [], []),
        (Diverged(step=5, message="differ"), [], ["differ"]),
        (Diverged(step=5, message="differ", refused=True), [], []),
        (Skipped(step=5, why="full"), [(INFO, "no room for another checkpoint in memory: step 5 was skipped")], []),
        (Stop(step=5, signal="SIGTERM"), [(WARNING, "SIGTERM: committing step 5, then training ends")], []),
        (Stop(step=5), [(WARNING, "the job ends soon: committing step 5, then training ends")], []),
        (Captured(step=5, nbytes=1), [], []),
    ],
    ids=lambda value: value.kind if hasattr(value, "kind") else None,
)
def test_each_message_is_shown_in_one_place(event, logged, warned, caplog):
    caplog.set_level(INFO, "deepfreeze")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Messages().on(event)
    assert [(record.levelno, record.message) for record in caplog.records] == logged
    assert [(warning.category, str(warning.message)) for warning in caught] == [
        (CheckpointWarning, text) for text in warned
    ]


def test_in_a_program_without_logging_a_message_says_who_speaks(monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    to_logger("warning", "moved")
    assert capsys.readouterr().err == "deepfreeze: moved\n"


def test_a_function_without_events_has_the_logger_say_it(caplog):
    caplog.set_level(INFO, "deepfreeze")
    to_logger("info", "5 weights %s")
    to_logger("warning", "restored")
    assert [(record.name, record.levelno, record.message) for record in caplog.records] == [
        ("deepfreeze", INFO, "5 weights %s"),
        ("deepfreeze", WARNING, "restored"),
    ]


RESUMED = "runs/nt3 resumed at step 40 (epoch 2, batch 10 of 30), saved 2 min ago: epoch 2 of 4 begins again, 80 batches to go"


def said(monkeypatch, columns):
    """The bytes of the message RESUMED, as a terminal with this number of columns receives them; None stands for a file."""
    (read, write), ending = (os.pipe(), "\n") if columns is None else (os.openpty(), "\r\n")
    if columns is not None:
        fcntl.ioctl(write, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with open(read, "rb", buffering=0) as master, open(write, "w") as slave, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", slave)
        Messages().on(Notice(message=RESUMED, level="info", said=True))
        return master.read(4096).decode().replace(ending, "\n")


def test_a_message_breaks_between_words_on_a_terminal_that_is_too_narrow(monkeypatch):
    assert said(monkeypatch, 80) == (
        "deepfreeze: runs/nt3 resumed at step 40 (epoch 2, batch 10 of 30), saved 2 min\n"
        "  ago: epoch 2 of 4 begins again, 80 batches to go\n"
    )
    for columns in (None, 0, 200):
        assert said(monkeypatch, columns) == f"deepfreeze: {RESUMED}\n"


def test_a_stream_that_only_says_it_is_a_terminal_gets_the_line_whole(monkeypatch):
    class Stream(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Stream())
    Messages().on(Notice(message=RESUMED, level="info", said=True))
    assert sys.stderr.getvalue() == f"deepfreeze: {RESUMED}\n"
