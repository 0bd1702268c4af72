"""Tags: names that people give to checkpoints. A tag is a file of its own, ``RUN/tags/NAME``, and needs no lock: the checkpoints of a
running job can be tagged too.

A tag and the removal of its checkpoint may meet. The job, or ``prune``, first notes in marks.json which steps it will remove, and reads the
tags after that; it removes no other step. ``tag`` first makes its file, and reads marks.json after that. So at least one of the two sees
the other: the checkpoint stays, or ``tag`` fails.
"""

from __future__ import annotations

import contextlib

from deepfreeze.errors import CorruptError, Error, NotFoundError, OptionError, RunError
from deepfreeze.format import names
from deepfreeze.format.marks import MAX_MARKS, MAX_TAG, MarksFile, TagFile
from deepfreeze.store import owner
from deepfreeze.store.failures import refused, unreadable
from deepfreeze.store.run import Run

_RULE = "letters, digits, _, -, + and ., not digits alone"


def tag(run: Run, step: int, name: str) -> TagFile:
    """Gives the committed checkpoint of ``step`` the tag ``name``. OptionError for a name that can't be one; RunError if another checkpoint
    has the tag, or the system refuses; NotFoundError if there is no such checkpoint, also because a job removes it at this moment."""
    _require_name(name)
    made = TagFile(run.run_id, step, run.manifest(step).attempt)
    file = _file(name)
    where = run.store.where(file)
    try:
        created = run.store.create(file, made.to_bytes())
    except OSError as error:
        raise refused(where, error) from error
    if not created:
        taken = _read(run, file)
        if taken == made:
            return made
        todo = f"choose another name, or remove the tag first: deepfreeze untag {run.path}@{name}"
        raise RunError(where=where, expected="a new tag", found=f"step {taken.step} has it", todo=todo)
    try:
        _require_staying(run, made)
    except BaseException:
        with contextlib.suppress(OSError):
            run.store.remove(file)
        raise
    return made


def untag(run: Run, name: str) -> TagFile | None:
    """Removes the tag ``name`` and returns what it said, None if its file was damaged. NotFoundError if there is no such tag."""
    _require_name(name)
    file, found = _file(name), None
    try:
        with contextlib.suppress(CorruptError):
            found = _read(run, file)
        run.store.remove(file)
    except FileNotFoundError:
        raise _no_such(run, name) from None
    except OSError as error:
        raise refused(run.store.where(file), error) from error
    return found


def tags(run: Run) -> dict[str, TagFile]:
    """The tags of a run by their names, sorted. CorruptError if a tag is damaged, RunError if the system does not read it."""
    try:
        listed = sorted(name for name in run.store.list(names.TAGS_DIR) if names.is_tag(name))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise refused(run.store.where(names.TAGS_DIR), error) from error
    found = {}
    for name in listed:
        try:
            found[name] = _read(run, _file(name))
        except FileNotFoundError:
            continue  # removed since it was listed
        except OSError as error:
            raise unreadable(run.store.where(_file(name)), error) from error
    return found


def tagged_step(run: Run, name: str) -> int:
    """The step of the checkpoint that has the tag ``name``. NotFoundError if there is no such tag, or the checkpoint is gone."""
    if name.isdigit():
        todo = "pass a step as a number, as deepfreeze.checkpoints lists it"
        raise OptionError(where="step=", expected="a whole number from 0, or a tag", found=repr(name), todo=todo)
    if not names.is_tag(name):
        raise _no_such(run, name)
    try:
        found = _read(run, _file(name))
    except FileNotFoundError:
        raise _no_such(run, name) from None
    except OSError as error:
        raise unreadable(run.store.where(_file(name)), error) from error
    try:
        if run.manifest(found.step).attempt == found.attempt:
            return found.step
    except NotFoundError:
        pass
    expected, gone = (
        f"the checkpoint of step {found.step} that has the tag {name}",
        "none: it was removed or moved away",
    )
    todo = f"remove the tag: deepfreeze untag {run.path}@{name}"
    raise NotFoundError(where=run.path, expected=expected, found=gone, todo=todo)


def by_checkpoint(found: dict[str, TagFile]) -> dict[tuple[int, str], tuple[str, ...]]:
    """The names of the tags of each (step, attempt)."""
    result: dict[tuple[int, str], tuple[str, ...]] = {}
    for name, one in found.items():
        result[one.step, one.attempt] = (*result.get((one.step, one.attempt), ()), name)
    return result


def read_marks(run: Run) -> MarksFile | None:
    """The content of marks.json; None if there is no such file. CorruptError if it is damaged or another run's, RunError if the system does
    not read it."""
    return owner.read(
        run, names.MARKS_FILE, MAX_MARKS, MarksFile.from_bytes, "move the file away: it belongs to another run"
    )


def _require_staying(run: Run, made: TagFile) -> None:
    """NotFoundError if a job is removing the checkpoint, or has removed it."""
    try:
        marks = read_marks(run)
    except Error:
        marks = None  # damaged: the job that writes it anew does not remove by it
    going = marks is not None and made.step in marks.removing
    try:
        going = going or run.manifest(made.step).attempt != made.attempt
    except NotFoundError:
        going = True
    if going:
        found = "the job that has the run is removing it at this moment"
        todo = "tag a newer checkpoint, or give the job a rule that keeps what you want to tag (keep=)"
        raise NotFoundError(where=run.step_path(made.step), expected="a checkpoint that stays", found=found, todo=todo)


def _file(name: str) -> str:
    return f"{names.TAGS_DIR}/{name}"


def _read(run: Run, file: str) -> TagFile:
    return TagFile.from_bytes(run.store.read(file, MAX_TAG), run.store.where(file))


def _require_name(name: str) -> None:
    if not names.is_tag(name):
        todo = "choose another name, such as paper-v2"
        raise OptionError(where="tag", expected=f"a name of {_RULE}", found=repr(name)[:200], todo=todo)


def _no_such(run: Run, name: str) -> NotFoundError:
    try:
        known = ", ".join(tags(run)) or "no tags"
    except Error:
        known = "others"
    todo = f"choose one of these, or make it: deepfreeze tag {run.path}@STEP NAME"
    return NotFoundError(where=run.path, expected=f"a tag {name}", found=known[:500], todo=todo)
