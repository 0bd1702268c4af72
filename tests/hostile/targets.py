"""What is fuzzed of the Python readers: each target takes any bytes, and raises only if a promise is broken.

A target returns whether it took the bytes; refusing them is a deepfreeze.Error and nothing else. Its repair makes the
checksums right, and the counts that must agree with the size: behind a wrong checksum a mutation would reach nothing.
``fuzz_python.py`` runs them under a fuzzer, ``test_corpus.py`` without one.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import math
import os
import random
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from deepfreeze.cli import log, show_engine, tuned
from deepfreeze.cli.plan_sentences import sentences
from deepfreeze.errors import Error
from deepfreeze.events.event_lines import EventLines, parse
from deepfreeze.events.newest_progress import newest_progress
from deepfreeze.events.restarts import newest_restarts
from deepfreeze.format import manifest_values, named_values, names, state_tree
from deepfreeze.format.manifest import Manifest
from deepfreeze.format.marks import Mark, MarksFile, TagFile
from deepfreeze.format.model_config import ModelConfig
from deepfreeze.format.plan_file import PlanFile
from deepfreeze.format.position import Position
from deepfreeze.format.record import (
    EXTENT,
    FIRST,
    MAX_RECORD,
    RECORD_HEADERS,
    SLOT_EXTENT,
    SLOT_HEADER,
    Record,
    SlotHeader,
)
from deepfreeze.format.strict_json import is_printable, parse_object
from deepfreeze.format.structure import Structure
from deepfreeze.format.tensors import DTYPES
from deepfreeze.plan.auto_section import AutoSection
from deepfreeze.plan.budget_section import BudgetSection
from deepfreeze.plan.checkfreq import algorithm_1
from deepfreeze.plan.step.checker import violations
from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.plan.step.step_plan_file import StepPlanFile
from deepfreeze.store.lock import _read_holder as read_lock
from deepfreeze.store.marks import finite
from deepfreeze.store.ranges import Ranges
from deepfreeze.store.writable_run import WritableRun
from tests.hostile.seeds import NATIVE, PYTHON
from tests.support import files, products

_LAST_LINE = b'  "crc32c": "'


@dataclass(frozen=True)
class Target:
    """``run`` reads bytes, ``repair`` mends them (also their sizes, if told), ``folders`` hold what to begin with."""

    run: Callable[[bytes], bool]
    repair: Callable[[bytes, bool], bytes]
    folders: tuple[Path, ...]


@contextlib.contextmanager
def _only_refused(taken: list[bool]) -> Iterator[None]:
    try:
        yield
    except Error as error:
        taken.clear()
        str(error).encode()  # what can't be printed is no message
        assert len(str(error)) < 4000, "a message that quotes the whole file"


def _taken(read: Callable[[], None]) -> bool:
    taken = [True]
    with products.counted() as multiplied, _only_refused(taken):
        read()
    multiplied.check()
    return bool(taken)


def _sorted_inside(extents: np.ndarray, file_size: int) -> None:
    end = 0
    for offset, nbytes in zip(extents["offset"].tolist(), extents["nbytes"].tolist(), strict=True):
        assert nbytes > 0 and end <= offset and offset + nbytes <= file_size < 2**63
        end = offset + nbytes


def record(data: bytes) -> bool:
    """A record, whole."""

    def read() -> None:
        made = Record.from_bytes(data, "fuzz")
        _sorted_inside(made.extents, made.identity.file_size)
        assert made.nbytes <= made.identity.file_size
        own = len(made.private) + made.checksums.nbytes + made.values_size
        header = RECORD_HEADERS[int.from_bytes(data[8:12], "little")]
        assert made.size == len(data) == header + EXTENT.itemsize * len(made.extents) + own + 4
        assert data[len(data) - 4 - made.values_size : -4] == named_values.encode(made.values)
        assert 0 <= made.identity.step < 2**63 and made.identity.rank < made.identity.world_size

    return _taken(read)


def repair_record(data: bytes, sizes: bool) -> bytes:
    """With its last four bytes."""
    if len(data) < RECORD_HEADERS[FIRST] + 4:
        return data
    made = bytearray(data)
    first = int.from_bytes(made[8:12], "little") == FIRST
    header = RECORD_HEADERS[FIRST if first else 2]
    if sizes and len(data) >= header + 4:
        room = len(data) - header - 4
        extents = int.from_bytes(made[104:108], "little") % (room // EXTENT.itemsize + 1)
        private = room - EXTENT.itemsize * extents
        if not first:
            values = int.from_bytes(made[128:136], "little") % (private + 1)
            private -= values
            struct.pack_into("<Q", made, 128, values)
        struct.pack_into("<I", made, 12, header)
        hashes = int.from_bytes(made[108:112], "little") % (private // 4 + 1)
        struct.pack_into("<IIQQ", made, 104, extents, hashes, private, len(data))
    made[-4:] = google_crc32c.value(bytes(made[:-4])).to_bytes(4, "little")
    return bytes(made)


def slot(data: bytes) -> bool:
    """A slot's header, table and private bytes, as far as Python reads slots."""

    def read() -> None:
        header = SlotHeader.from_bytes(data[:SLOT_HEADER], len(data), "fuzz")
        table = header.table(data[SLOT_HEADER : header.private_offset], "fuzz")
        _sorted_inside(table, header.identity.file_size)
        begin, end = header.data_offset, header.data_offset + header.data_size
        for place, nbytes in zip(table["place"].tolist(), table["nbytes"].tolist(), strict=True):
            assert begin <= place and place + nbytes <= end <= len(data)
            begin = place + nbytes
        assert header.private_size + header.values_size <= MAX_RECORD
        values = data[header.values_offset : header.values_offset + header.values_size]
        assert header.values_size == 0 or (end <= header.values_offset and len(values) == header.values_size)
        assert named_values.encode(header.named_values(values, "fuzz")) == values

    return _taken(read)


def repair_slot(data: bytes, sizes: bool) -> bytes:
    """With the checksums of private bytes, table and header."""
    if len(data) < SLOT_HEADER:
        return data
    made = bytearray(data)
    room = len(data) - SLOT_HEADER
    extents = int.from_bytes(made[104:108], "little") % (room // SLOT_EXTENT.itemsize + 1)
    begin = SLOT_HEADER + SLOT_EXTENT.itemsize * extents
    private = int.from_bytes(made[128:136], "little") % (len(data) - begin + 1)
    if sizes:
        hashes = int.from_bytes(made[108:112], "little") % (private // 4 + 1)
        struct.pack_into("<II", made, 104, extents, hashes)
        struct.pack_into("<QQQQ", made, 112, SLOT_HEADER, begin, private, -(-(begin + private) // 4096) * 4096)
        begins = 160 if int.from_bytes(made[8:12], "little") == FIRST else 180
        made[begins:4092] = bytes(4092 - begins)
        place = int.from_bytes(made[160:168], "little")
        if begins == 180 and place <= len(data):
            size = int.from_bytes(made[168:176], "little") % (len(data) - place + 1)
            crc = google_crc32c.value(bytes(made[place : place + size]))
            struct.pack_into("<QI", made, 168, size, crc)
    for at, part in [(152, made[SLOT_HEADER:begin]), (156, made[begin : begin + private])]:
        made[at : at + 4] = google_crc32c.value(bytes(part)).to_bytes(4, "little")
    made[4092:4096] = google_crc32c.value(bytes(made[:4092])).to_bytes(4, "little")
    return bytes(made)


def manifest(data: bytes) -> bool:
    """A manifest."""

    def read() -> None:
        made = Manifest.from_bytes(data, "fuzz")
        assert len(made.records) == made.world_size and [e.rank for e in made.records] == list(range(made.world_size))
        assert sum(e.nbytes for e in made.records) == made.file_size < 2**63
        assert all(e.size <= MAX_RECORD for e in made.records)
        names.step_dir(made.step), names.partial_dir(made.step, made.attempt), names.structure_file(made.structure)
        _named_values(made)

    return _taken(read)


def _named_values(made: Manifest) -> None:
    """What is made of a manifest's named values: marks.json holds it, and a terminal shows it."""
    epoch, metrics = manifest_values.measured_at(made.values, made.step) or (None, {})
    marks = MarksFile(made.run_id, marks=(Mark(made.step, made.attempt, 0, epoch=epoch, metrics=finite(metrics)),))
    assert MarksFile.from_bytes(marks.to_bytes(), "fuzz") == marks
    position = Position.of(made.values)
    assert position is None or json.loads(json.dumps(position.to_json())) == position.to_json()
    shown = [
        manifest_values.text_of_logs(made.values),
        *(text for fact in manifest_values.facts_of(made.values) for text in fact),
    ]
    assert all(is_printable(text) for text in shown if text)


def repair_manifest(data: bytes, sizes: bool) -> bytes:
    """With the last line, which holds the checksum; with sizes there is one, whatever the text ended with."""
    at = data.rfind(_LAST_LINE)
    if at < 0 and not sizes:
        return data
    body = data if at < 0 else data[:at]
    return body + _LAST_LINE + f'{google_crc32c.value(body):08x}"\n}}\n'.encode()


def structure(data: bytes) -> bool:
    """A structure."""

    def read() -> None:
        made = Structure.from_bytes(data, "fuzz")
        assert made.to_bytes() == data
        end = 0
        for tensor in made.tensors:
            if not tensor.spec.nbytes:
                np.empty(0, tensor.spec.dtype).reshape(tensor.spec.shape)
            if tensor.nbytes:
                assert end <= tensor.offset and tensor.end <= made.file_size
                end = tensor.end
            assert not os.path.isabs(tensor.path) and ".." not in tensor.path.split("/")
            assert is_printable(tensor.spec.name + tensor.path)
            (tensor.spec.name + tensor.path).encode()

        assert sum(n for _, n in made.gaps()) + sum(t.nbytes for t in made.tensors) == made.file_size
        assert made.private_nbytes >= 0 and len(made.by_name) == len(made.tensors)

    return _taken(read)


def run_file(data: bytes) -> bool:
    """run.json of a run directory, and the same bytes as its lock's content."""
    folder = Path(_folder())
    (folder / names.RUN_FILE).write_bytes(data)
    with open(folder / names.RUN_FILE, "rb") as file:
        holder = read_lock(file.fileno())
    assert holder is None or 0 < holder["pid"] < 2**31

    def read() -> None:
        made = WritableRun.open(folder)
        assert names.is_id(made.run_id)
        if made.parent is not None:
            parent = made.parent
            assert names.is_id(parent.run_id) and names.is_id(parent.attempt) and names.step_dir(parent.step)
            assert is_printable(parent.path) and str(parent).encode()
        names.local_dir(0, made.run_id)

    return _taken(read)


def config(data: bytes) -> bool:
    """A model's configuration."""

    def read() -> None:
        made = ModelConfig.from_bytes(data, "fuzz")
        assert made.to_bytes() == data and names.is_id(made.run_id) and names.config_file(made.attempt)
        assert made.text.isascii() and json.loads(made.text) == made.value

    return _taken(read)


def plan(data: bytes) -> bool:
    """plan.json, and its sections ``auto`` and ``budget``."""

    def read() -> None:
        made = PlanFile.from_bytes(data, "fuzz")
        assert names.is_id(made.run_id) and PlanFile.from_bytes(made.to_bytes(), "fuzz") == made
        if "auto" in made.sections:
            auto = AutoSection.from_json(made.sections["auto"], "fuzz")
            assert AutoSection.from_json(json.loads(json.dumps(auto.to_json(), allow_nan=False)), "fuzz") == auto
            assert algorithm_1(auto.profile, 0.035, auto.uncommitted, 3600.0).interval >= 1
            assert all(one.isprintable() and len(one) < 2000 for one in sentences(auto))
        if "budget" in made.sections:
            budget = BudgetSection.from_json(made.sections["budget"], "fuzz")
            again = json.loads(json.dumps(budget.to_json(), allow_nan=False))
            assert BudgetSection.from_json(again, "fuzz") == budget
            # One that a policy follows is one that its engine takes.
            most, found = (
                budget.limits.most,
                [one.setting for one in budget.tried] + [budget.chosen or budget.limits.most],
            )
            assert all(getattr(one, name) <= getattr(most, name) for one in found for name in vars(most))
            assert all(one.isprintable() for one in tuned.sentences(budget))

    return _taken(read)


def step(data: bytes) -> bool:
    """A plan of a step, or its profile: which of them the bytes are is for the readers to say."""

    def read() -> None:
        made = StepPlanFile.from_bytes(data, "fuzz")
        assert StepPlanFile.from_bytes(made.to_bytes(), "fuzz") == made
        assert not violations(made.plan.question, made.plan.parts)
        assert 0 <= made.plan.extra <= made.plan.peak and 0 <= made.plan.gap <= 1

    def read_profile() -> None:
        made = StepProfile.from_json(parse_object(data, "fuzz", "no todo"), "fuzz")
        assert StepProfile.from_json(json.loads(json.dumps(made.to_json(), allow_nan=False)), "fuzz") == made
        assert sum(tensor.nbytes for tensor in made.question(at_least=1 << 20).tensors) == made.nbytes

    taken = [_taken(read), _taken(read_profile)]
    assert not all(taken)
    return any(taken)


def marks(data: bytes) -> bool:
    """marks.json, or a tag: which of them the bytes are is for the readers to say."""

    def read() -> None:
        made = MarksFile.from_bytes(data, "fuzz")
        assert names.is_id(made.run_id) and MarksFile.from_bytes(made.to_bytes(), "fuzz") == made
        assert all(math.isfinite(value) for mark in made.marks for value in mark.metrics.values())
        assert all(names.step_dir(step) for step in (*made.removing, *(mark.step for mark in made.marks)))

    def read_tag() -> None:
        made = TagFile.from_bytes(data, "fuzz")
        assert names.step_dir(made.step) and TagFile.from_bytes(made.to_bytes(), "fuzz") == made

    taken = [_taken(read), _taken(read_tag)]
    assert not all(taken)
    return any(taken)


LONGEST, PIECE = 400, 64  # bytes of a line of events and of a piece, so that an input has both


def events(data: bytes) -> bool:
    """A file of events, in pieces, and what commands say of it. Nothing in it is an error."""
    lines = EventLines(LONGEST, PIECE)
    found = list(lines.new(_Bytes(data)))
    *whole, rest = data.split(b"\n")
    short = [line for line in whole if len(line) <= LONGEST]
    assert json.dumps(found) == json.dumps([event for event in map(parse, short) if event is not None])
    assert lines.skipped == len(whole) - len(short) + (len(rest) > LONGEST)

    run = _run_with_events()
    run.store.where(f"{names.EVENTS_DIR}/{names.events_file(files.ATTEMPT)}").write_bytes(data)
    newest_progress(run), newest_restarts(run)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for event in found:
            log.show(event, as_json=False)
            log.show(event, as_json=True)
        log.show_end(run, as_json=False)
        show_engine.show(run, as_json=False)
    assert all(is_printable(line) for line in out.getvalue().split("\n") if line), "it reaches the terminal raw"
    return bool(found)


@functools.cache
def _run_with_events() -> WritableRun:
    """A run whose newest attempt has a file of events."""
    folder = files.write_run(Path(_folder()) / "events")
    files.write_events(folder)
    (folder / names.OWNER_FILE).write_text(files.ATTEMPT + "\n")
    return WritableRun.open(folder)


class _Bytes(Ranges):
    """Bytes as an open file."""

    path, closed = Path("fuzz"), False

    def __init__(self, data: bytes) -> None:
        self.size, self._data = len(data), data

    def read(self, into: np.ndarray, offset: int) -> int:
        part = self._data[offset : offset + len(into)]
        into[: len(part)] = np.frombuffer(part, np.uint8)
        return len(part)

    def close(self) -> None:
        pass


def repair_events(data: bytes, sizes: bool) -> bytes:
    """One value of each line exchanged; with sizes, each line has the members of an event."""
    made, chance = [], random.Random(data)
    for line in data.split(b"\n"):
        value = _exchange(_load(line), chance)
        if isinstance(value, dict) and sizes:
            value |= {
                "v": 1,
                "t": 5,
                "m": 0.5,
                "kind": chance.choice(("attempt", "started", "counted", "progress", "end")),
            }
        with contextlib.suppress(ValueError, RecursionError):
            line = line if value is None else json.dumps(value).encode()
        made.append(line)
    return b"\n".join(made)


def extras(data: bytes) -> bool:
    """The states of what is no tensor."""

    def read() -> None:
        written = state_tree.encode(state_tree.decode(data, "fuzz"), "fuzz")
        assert state_tree.encode(state_tree.decode(written, "fuzz"), "fuzz") == written

    return _taken(read)


def repair_extras(data: bytes, sizes: bool) -> bytes:
    """One value of the header exchanged; with sizes, its length is right."""
    try:
        value, end = json.JSONDecoder().raw_decode(data[8:].decode("latin-1"))
        header = json.dumps(_exchange(value, random.Random(data))).encode()
    except (ValueError, RecursionError):
        return data
    length = len(header).to_bytes(8, "little") if sizes else data[:8]
    return length + header + data[8 + end :]


def repair_structure(data: bytes, sizes: bool) -> bytes:
    """As canonical JSON, one value in it exchanged; with sizes, each tensor's nbytes those of its shape."""
    value = _load(data)
    if value is None:
        return data
    value = _exchange(value, random.Random(data))
    tensors = value.get("tensors") if isinstance(value, dict) and sizes else None
    for tensor in tensors if isinstance(tensors, list) else []:
        with contextlib.suppress(TypeError, KeyError, AttributeError):
            if tensor["dtype"] not in DTYPES or not all(type(n) is int and n < 2**64 for n in tensor["shape"]):
                continue
            tensor["nbytes"] = math.prod(tensor["shape"]) * np.dtype(tensor["dtype"]).itemsize
    with contextlib.suppress(ValueError, RecursionError):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return data


def repair_signed(data: bytes, sizes: bool) -> bytes:
    """One value exchanged; with sizes, with the checksum at its end."""
    value = _load(data)
    if value is None:
        return data
    with contextlib.suppress(ValueError, RecursionError):
        text = json.dumps(_exchange(value, random.Random(data))).encode()
        if not sizes:
            return text
        before, found, _ = text.partition(b', "crc32c"')
        body = before if found else text.removesuffix(b"}")
        return body + f', "crc32c": "{google_crc32c.value(body):08x}"}}\n'.encode()
    return data


# What a hostile file says in place of a value.
HOSTILE = (
    *(None, True, -1, 0, 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**4000, 1.5, float("nan"), float("inf"), -0.0),
    *(
        "",
        "\0",
        "..",
        "../a",
        "/etc/passwd",
        "a/../../b",
        "\ud800",
        "\u202e",
        "\x1b[31m",
        "x" * 300,
        [],
        {},
        [[]],
        [-1],
        {"": 0},
    ),
    *("float128", "object", "per-rank", "rank-local", [0, 2**62, 2**62], [2**40] * 32, [1] * 33, [10**400] * 9),
)


def _load(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _exchange(value: Any, chance: random.Random) -> Any:
    """One value, somewhere in it, exchanged for a hostile one, or for another's."""
    places = []

    def visit(node: Any) -> None:
        for key, child in enumerate(node) if isinstance(node, list) else node.items():
            places.append((node, key))
            if isinstance(child, (list, dict)) and len(places) < 10000:
                visit(child)

    if not isinstance(value, (list, dict)):
        return value
    with contextlib.suppress(RecursionError):
        visit(value)
    if places and chance.random() < 0.7:
        node, key = chance.choice(places)
        other, at = chance.choice(places)
        node[key] = chance.choice(HOSTILE) if chance.random() < 0.7 else copy.deepcopy(other[at])
    return value


_made: list[tempfile.TemporaryDirectory] = []


def _folder() -> str:
    if not _made:
        _made.append(tempfile.TemporaryDirectory(prefix="deepfreeze-fuzz-"))
    return _made[0].name


TARGETS = {
    "record": Target(record, repair_record, (NATIVE / "record",)),
    "slot": Target(slot, repair_slot, (NATIVE / "slot",)),
    "manifest": Target(manifest, repair_manifest, (NATIVE / "manifest",)),
    "structure": Target(structure, repair_structure, (PYTHON / "structure",)),
    "run": Target(run_file, repair_signed, (PYTHON / "run",)),
    "config": Target(config, repair_signed, (PYTHON / "config",)),
    "plan": Target(plan, repair_signed, (PYTHON / "plan",)),
    "step": Target(step, repair_signed, (PYTHON / "step",)),
    "extras": Target(extras, repair_extras, (PYTHON / "extras",)),
    "marks": Target(marks, repair_signed, (PYTHON / "marks",)),
    "events": Target(events, repair_events, (PYTHON / "events",)),
}
