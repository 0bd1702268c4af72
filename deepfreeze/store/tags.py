"""Tags: names that people give to checkpoints. A tag is a file of its own, ``RUN/tags/NAME``, and needs no lock: the checkpoints of a
running job can be tagged too.

A tag and the removal of its checkpoint may meet. The job first notes in marks.json which steps it will remove, and reads the tags after
that. ``tag`` first makes its file, and reads marks.json after that. So at least one of the two sees the other: the checkpoint stays, or
``tag`` fails.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from deepfreeze.errors import CorruptError, Error, NotFoundError, OptionError, RunError
from deepfreeze.format import names
from deepfreeze.format.marks import MAX_MARKS, MAX_TAG, MarksFile, TagFile
from deepfreeze.store.durable import DIRECTORY_MODE, FILE_MODE, refused, sync_dir, unreadable
from deepfreeze.store.files import read_small
from deepfreeze.store.run import Run

_RULE = "letters, digits, _, -, + and ., not digits alone"


def tag(run: Run, step: int, name: str) -> TagFile:
    """Gives the committed checkpoint of ``step`` the tag ``name``. OptionError for a name that can't be one; RunError if another checkpoint
    has the tag, or the system refuses; NotFoundError if there is no such checkpoint, also because a job removes it at this moment."""
    _require_name(name)
    made = TagFile(run.run_id, step, run.manifest(step).attempt)
    file = _file(run, name)
    try:
        file.parent.mkdir(DIRECTORY_MODE, exist_ok=True)
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    except FileExistsError:
        taken = _read(file)
        if taken == made:
            return made
        todo = f"choose another name, or remove the tag first: deepfreeze untag {run.path}@{name}"
        raise RunError(where=file, expected="a new tag", found=f"step {taken.step} has it", todo=todo) from None
    except OSError as error:
        raise refused(file, error) from error
    try:
        try:
            os.write(fd, made.to_bytes())
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_dir(file.parent)
        sync_dir(run.path)
        _require_staying(run, made)
    except BaseException as error:
        with contextlib.suppress(OSError):
            file.unlink()
        if isinstance(error, OSError) and not isinstance(error, Error):
            raise refused(file, error) from error
        raise
    return made


def untag(run: Run, name: str) -> TagFile | None:
    """Removes the tag ``name`` and returns what it said, None if its file was damaged. NotFoundError if there is no such tag."""
    _require_name(name)
    file = _file(run, name)
    try:
        found = _read(file)
    except CorruptError:
        found = None
    except FileNotFoundError:
        raise _no_such(run, name) from None
    try:
        file.unlink()
        sync_dir(file.parent)
    except FileNotFoundError:
        raise _no_such(run, name) from None
    except OSError as error:
        raise refused(file, error) from error
    return found


def tags(run: Run) -> dict[str, TagFile]:
    """The tags of a run by their names, sorted. A file that is still empty is none: the call of ``tag`` that makes it has yet to ask
    whether the checkpoint stays. CorruptError if a tag is damaged, RunError if the system does not read it."""
    folder = run.path / names.TAGS_DIR
    try:
        listed = sorted(name for name in os.listdir(folder) if names.is_tag(name))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise refused(folder, error) from error
    found = {}
    for name in listed:
        try:
            if (data := read_small(folder / name, MAX_TAG)) != b"":
                found[name] = TagFile.from_bytes(data, folder / name)
        except FileNotFoundError:
            continue  # removed since it was listed
        except OSError as error:
            raise unreadable(folder / name, error) from error
    return found


def tagged_step(run: Run, name: str) -> int:
    """The step of the checkpoint that has the tag ``name``. NotFoundError if there is no such tag, or the checkpoint is gone."""
    if name.isdigit():
        todo = "pass a step as a number, as deepfreeze.checkpoints lists it"
        raise OptionError(where="step=", expected="a whole number from 0, or a tag", found=repr(name), todo=todo)
    if not names.is_tag(name):
        raise _no_such(run, name)
    try:
        found = _read(_file(run, name))
    except FileNotFoundError:
        raise _no_such(run, name) from None
    except OSError as error:
        raise unreadable(_file(run, name), error) from error
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
    file = run.path / names.MARKS_FILE
    try:
        found = MarksFile.from_bytes(read_small(file, MAX_MARKS), file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(file, error) from error
    if found.run_id != run.run_id:
        todo = "move the file away: it belongs to another run"
        raise CorruptError(where=file, expected=f"marks of run {run.run_id}", found=found.run_id, todo=todo)
    return found


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


def _file(run: Run, name: str) -> Path:
    return run.path / names.TAGS_DIR / name


def _read(file: Path) -> TagFile:
    return TagFile.from_bytes(read_small(file, MAX_TAG), file)


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
