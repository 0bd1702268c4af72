"""The names of all files and directories in docs/format.md. No other module makes or parses one.

A parser returns None for a name that this module would not have made. Such files are not DeepFreeze's, and are left alone:
``step-40`` and ``rank-3.record``, for example, have too few digits.
"""

from __future__ import annotations

import re
import secrets

MODEL_FILE = "model.weights.h5"
MANIFEST_FILE = "manifest.json"
RECORDS_FILE = "records"
RUN_FILE = "run.json"
LOCK_FILE = "lock"
OWNER_FILE = "owner"
MARKS_FILE = "marks.json"
PLAN_FILE = "plan.json"
STRUCTURES_DIR = "structures"
CONFIGS_DIR = "configs"
EVENTS_DIR = "events"
STEP_PLANS_DIR = "plans"
TAGS_DIR = "tags"
ABANDONED_DIR = "abandoned"
DAMAGED_DIR = "damaged"
TRASH_PREFIX = ".trash-"
# The folders of a run that are no checkpoints.
RUN_DIRS = (STRUCTURES_DIR, CONFIGS_DIR, EVENTS_DIR, STEP_PLANS_DIR, TAGS_DIR, ABANDONED_DIR, DAMAGED_DIR)

MAX_STEP = 2**63 - 1
MAX_RANK = 2**32 - 1
MOST_ON_NODE = 4096  # ranks whose records are in one file

_HEX32 = re.compile(r"[0-9a-f]{32}\Z")
_HEX64 = re.compile(r"[0-9a-f]{64}\Z")
_STEP = re.compile(r"step-([0-9]{10,19})\Z")
_PARTIAL = re.compile(r"step-([0-9]{10,19})\.partial-([0-9a-f]{32})\Z")
_FAILED = re.compile(r"step-([0-9]{10,19})\.failed-([0-9a-f]{32})\Z")
_ASIDE = re.compile(r"step-([0-9]{10,19})-([0-9a-f]{32})\Z")
_DAMAGED = re.compile(r"step-([0-9]{10,19})-([0-9a-f]{32}|unknown)(?:\.([0-9]{1,9}))?\Z")
_RECORD = re.compile(r"rank-([0-9]{5,10})\.record\Z")
_NODE_RECORD = re.compile(r"ranks-([0-9]{5,9})-([0-9]{5,9})-([0-9]{1,9})\.record\Z")
_EVENTS = re.compile(r"([0-9a-f]{32})(?:\.rank-([0-9]{5,10}))?\.jsonl\Z")
_STEP_PLAN = re.compile(r"[0-9a-f]{32}\.json\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+.-]{0,199}\Z")
_SLOT = re.compile(r"rank-([0-9]{5,10})-(?:([0-9a-f]{32})-)?([0-9]{1,10})\.slot\Z")


def new_id() -> str:
    """A random 128-bit run or attempt id: 32 lower-case hexadecimal digits."""
    return secrets.token_hex(16)


def is_id(text: object) -> bool:
    """Whether ``text`` is a run or attempt id."""
    return isinstance(text, str) and _HEX32.match(text) is not None


def is_hash(text: object) -> bool:
    """Whether ``text`` is a SHA-256 in 64 lower-case hexadecimal digits."""
    return isinstance(text, str) and _HEX64.match(text) is not None


def step_plan(digits: str) -> str:
    """The name of the file of a step's plan: 32 hexadecimal digits of the question that it answers."""
    return f"{_check_id(digits)}.json"


def is_step_plan(name: str) -> bool:
    """True if ``name`` is that of a step's plan."""
    return _STEP_PLAN.match(name) is not None


def _check_step(step: int) -> int:
    if not 0 <= step <= MAX_STEP:
        raise ValueError(f"step {step} is not within 0..{MAX_STEP}")
    return step


def _check_rank(rank: int) -> int:
    if not 0 <= rank <= MAX_RANK:
        raise ValueError(f"rank {rank} is not within 0..{MAX_RANK}")
    return rank


def _check_id(attempt: str) -> str:
    if not is_id(attempt):
        raise ValueError(f"{attempt!r} is not 32 lower-case hexadecimal digits")
    return attempt


def step_dir(step: int) -> str:
    """The name of a committed checkpoint's directory: ``step-0000000040``. ValueError if ``step`` is not within 0..MAX_STEP."""
    return f"step-{_check_step(step):010d}"


def parse_step_dir(name: str) -> int | None:
    """The step in the name of a committed checkpoint's directory."""
    match = _STEP.match(name)
    return _step(match[1]) if match else None


def partial_dir(step: int, attempt: str) -> str:
    """The name of the directory that an attempt writes a checkpoint into until its commit: ``step-0000000040.partial-ATTEMPT``."""
    return f"{step_dir(step)}.partial-{_check_id(attempt)}"


def parse_partial_dir(name: str) -> tuple[int, str] | None:
    """The (step, attempt) in the name of a partial directory."""
    return _step_and_attempt(_PARTIAL.match(name))


def parse_failed_file(name: str) -> tuple[int, str] | None:
    """The (step, attempt) in the name of the file that tells of a failed step."""
    return _step_and_attempt(_FAILED.match(name))


def abandoned_dir(step: int, attempt: str) -> str:
    """The name, below ``abandoned/``, of a checkpoint that is newer than the one that training went on from."""
    return f"{step_dir(step)}-{_check_id(attempt)}"


def parse_abandoned_dir(name: str) -> tuple[int, str] | None:
    """The (step, attempt) in the name of an abandoned checkpoint's directory."""
    return _step_and_attempt(_ASIDE.match(name))


def damaged_dir(step: int, attempt: str | None, number: int = 1) -> str:
    """The name, below ``damaged/``, of a damaged checkpoint. ``attempt``: None if the manifest can't be read. ``number``: 1 for the
    first damaged checkpoint of this step and attempt, 2 for the second, and so on.
    """
    name = f"{step_dir(step)}-{'unknown' if attempt is None else _check_id(attempt)}"
    return name if number == 1 else f"{name}.{number}"


def parse_damaged_dir(name: str) -> tuple[int, str | None] | None:
    """The (step, attempt) in the name of a damaged checkpoint's directory; attempt None if the name has ``unknown`` there."""
    match = _DAMAGED.match(name)
    if match is None or (match[3] is not None and (int(match[3]) < 2 or match[3][0] == "0")):
        return None
    step = _step(match[1])
    return None if step is None else (step, None if match[2] == "unknown" else match[2])


def trash_dir(step: int, attempt: str) -> str:
    """The name that a checkpoint's directory gets before its files are deleted."""
    return f"{TRASH_PREFIX}{step_dir(step)}-{_check_id(attempt)}"


def parse_trash_dir(name: str) -> tuple[int, str] | None:
    """The (step, attempt) in the name of a directory that is being deleted."""
    if not name.startswith(TRASH_PREFIX):
        return None
    return _step_and_attempt(_ASIDE.match(name[len(TRASH_PREFIX) :]))


def record_file(rank: int) -> str:
    """The name of a rank's record in a checkpoint's directory: ``rank-00003.record``. ValueError if ``rank`` is not within
    0..MAX_RANK."""
    return f"rank-{_check_rank(rank):05d}.record"


def parse_record_file(name: str) -> int | None:
    """The rank in the name of a record."""
    match = _RECORD.match(name)
    return _rank(match[1]) if match else None


def node_record_file(ranks: range) -> str:
    """The name of the file that has the records of a node's ranks, in a partial directory: ``ranks-00001-00007-2.record`` for the ranks
    1, 3, 5 and 7. ``ranks``: ascending."""
    return f"ranks-{_check_rank(ranks[0]):05d}-{_check_rank(ranks[-1]):05d}-{ranks.step}.record"


def parse_node_record_file(name: str) -> range | None:
    """The ranks in the name of the file that has the records of a node's ranks."""
    match = _NODE_RECORD.match(name)
    if match is None:
        return None
    first, last, distance = map(int, match.groups())
    if distance < 1 or last < first or (last - first) % distance:
        return None
    ranks = range(first, last + 1, distance)
    return ranks if len(ranks) <= MOST_ON_NODE and node_record_file(ranks) == name else None


def structure_file(structure_hash: str) -> str:
    """The name, below ``structures/``, of the file of the structure with this hash. ValueError if the hash is not a SHA-256 in
    hexadecimal."""
    if not is_hash(structure_hash):
        raise ValueError(f"{structure_hash!r} is not 64 lower-case hexadecimal digits")
    return f"{structure_hash}.json"


def config_file(attempt: str) -> str:
    """The name, below ``configs/``, of the file with the configuration of an attempt's model. ValueError if ``attempt`` is no id."""
    return f"{_check_id(attempt)}.json"


def events_file(attempt: str, rank: int = 0) -> str:
    """The name, below ``events/``, of the file with an attempt's events: ``ATTEMPT.jsonl``; of those that only one of the other ranks
    knows: ``ATTEMPT.rank-00003.jsonl``. ValueError if ``attempt`` is no id or ``rank`` is not within 0..MAX_RANK."""
    return f"{_check_id(attempt)}{f'.rank-{_check_rank(rank):05d}' if rank else ''}.jsonl"


def parse_events_file(name: str) -> tuple[str, int] | None:
    """The (attempt, rank) in the name of a file with events."""
    match = _EVENTS.match(name)
    if match is None:
        return None
    rank = 0 if match[2] is None else _rank(match[2])
    return None if rank is None or (match[2] is not None and rank == 0) else (match[1], rank)


def is_tag(name: object) -> bool:
    """Whether ``name`` can be a tag, which is a file's name below ``tags/``: at most 200 letters, digits, "_", "-", "+" and "." of ASCII,
    a letter, digit or "_" first, and not of digits alone (RUN@40 is a step)."""
    return isinstance(name, str) and _TAG.match(name) is not None and not name.isdigit()


def local_dir(uid: int, run_id: str) -> str:
    """The path of a run's directory relative to the local tier's base directory: ``deepfreeze-UID/RUN_ID``."""
    return f"deepfreeze-{uid}/{_check_id(run_id)}"


def parse_slot_file(name: str) -> tuple[int, str | None, int] | None:
    """The (rank, attempt, index) in the name of a slot. attempt is None in names of early versions, whose attempts shared slots."""
    match = _SLOT.match(name)
    if not match:
        return None
    rank, index = _rank(match[1]), int(match[3])
    return None if rank is None or str(index) != match[3] else (rank, match[2], index)


def temporary(name: str) -> str:
    """The name under which a file's new content is written before the rename to ``name``."""
    return f"{name}.tmp"


def _step(digits: str) -> int | None:
    step = int(digits)
    return step if step <= MAX_STEP and f"{step:010d}" == digits else None


def _rank(digits: str) -> int | None:
    rank = int(digits)
    return rank if rank <= MAX_RANK and f"{rank:05d}" == digits else None


def _step_and_attempt(match: re.Match[str] | None) -> tuple[int, str] | None:
    if match is None:
        return None
    step = _step(match[1])
    return None if step is None else (step, match[2])
