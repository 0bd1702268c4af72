"""The two lines that rank 0 prints of an attempt by default (``verbose=1``): from where training goes on, and what was saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepfreeze import wording
from deepfreeze.events.stats import Stats
from deepfreeze.format.position import Position
from deepfreeze.plan.epochs import Fit, GoingOn


def resumed(run: str, step: int, created: str, now: float, position: Position | None = None, epochs: str = "") -> str:
    """The first line, if a checkpoint was restored. ``created``: when it was committed, as its manifest has it; ``now``: seconds since
    1970; ``position``: the checkpoint's; ``epochs``: one of the texts below, "" if nothing is to be said."""
    where = ""
    if position is not None:
        of = f" of {position.batches}" if position.batches else ""
        where = f" (epoch {position.epoch + 1}, batch {position.batch}{of})"
    line = f"{wording.near(run)} resumed at step {step}{where}, saved {wording.age(created, now)} ago"
    return f"{line}: {epochs}" if epochs else line


def going_on(plan: GoingOn, fit: Fit) -> str:
    """Which epoch ``fit`` begins with, counted from 1 as Keras shows it, and how much is left."""
    if plan.stopped:
        return (
            "EarlyStopping has ended this fit, and nothing is left to train of it (resume_epochs=False trains it again)"
        )
    if plan.finished:
        return "nothing is left to train of this fit (resume_epochs=False trains it again)"
    repeated = fit.batches is not None and plan.trained % fit.batches > 0
    left = plan.total - plan.trained
    batches = f"{left} batch{'' if left == 1 else 'es'}"
    what = f"goes on with batch {plan.batch + 1}" if plan.begun else "begins again" if repeated else "comes next"
    return f"epoch {plan.epoch + 1} of {fit.epochs} {what}, {batches} to go"


def no_input(step: int) -> str:
    """The message where a job with ``data=`` is resumed from a checkpoint of a job without."""
    return f"step {step} was saved without data=, so nobody knows which samples it was trained on: the interrupted epoch begins again"


def cut_short(position: Position) -> str:
    """The message where the epoch of ``position`` is over for a job with larger batches, which leaves the rest of it out."""
    return (
        f"epoch {position.epoch + 1} ends with batch {position.batch} of {position.batches}: what is left of it does not fill a batch of "
        "this job. The history, and the callbacks in extra=, have not seen the epoch's end, and lack it"
    )


def no_data(step: int, data: str) -> str:
    """The message where a job without ``data=`` is resumed from a checkpoint of a job with it. ``data``: the class of the data."""
    return (
        f"step {step} knows its place in the data, a {data}, and this job has no data= to go on from there: the samples begin where the "
        f"program begins them. Checkpoint(..., data=...) takes the same {data} as before"
    )


def metrics_of_rank_0(plan: GoingOn, before: int, now: int) -> str:
    """The message where an epoch goes on with ``now`` ranks that ``before`` ranks have begun."""
    return (
        f"the metrics of epoch {plan.epoch + 1} go on from those of rank 0 on all ranks: {before} ranks have begun the epoch, "
        f"and {now} go on"
    )


def other_batches(fit: Fit, position: Position) -> str:
    """Why ``fit`` begins with epoch 1."""
    return f"fit begins with epoch 1, for its epochs have {fit.batches} batches now and not {position.batches}"


def not_movable(plan: GoingOn) -> str:
    """The message where no callback can choose the epoch with which ``fit`` begins."""
    why = "this version of Keras lets no callback choose the first epoch"
    return f"epochs that are finished are trained again: {why}. fit(initial_epoch={plan.epoch}) leaves them out"


def left_out(plan: GoingOn, begun: int) -> str:
    """The message where ``fit`` has ``begun`` with a later epoch than that of the checkpoint which could be restored."""
    which = f"epoch {begun} is" if begun == plan.epoch + 1 else f"epochs {plan.epoch + 1} to {begun} are"
    return (
        f"{which} left out: the model was not built when fit began, so the first epoch was chosen by a newer checkpoint, which could not "
        "be restored. Start the job again when it has ended: it trains as many batches as are missing"
    )


def fresh(run: str, resume: str, made: Sequence[str] = ()) -> str:
    """The first line, if no checkpoint was restored. ``resume``: the option of this name; ``made``: the paths of the directories above the
    run that were missing."""
    near = wording.near(run)
    line = f"{near} is new" if resume != "off" else f'{near}: nothing is restored (resume="off")'
    if not made:
        return line
    above = "the directory above it was" if len(made) == 1 else "the directories above it were"
    return f"{line}; {above} made: {', '.join(map(wording.near, made))}"


@dataclass(frozen=True)
class Before:
    """The figures of ``Stats`` when an attempt begins: its last line tells of what came after them."""

    captures: int
    commits: int
    given_up: int
    waited: float

    @classmethod
    def of(cls, stats: Stats) -> Before:
        """The figures as they are now."""
        return cls(stats.captures, stats.commits, stats.given_up, stats.waited)


def end(before: Before, stats: Stats, file_size: int) -> str | None:
    """The last line; None if nothing was captured since ``before``. ``file_size``: bytes of a checkpoint's model file."""
    captures, commits = stats.captures - before.captures, stats.commits - before.commits
    if captures == 0:
        return None
    saved = wording.count(commits, "checkpoint")
    if commits < captures:
        saved = f"{commits} of {wording.count(captures, 'checkpoint')}"
    newest = f"; newest step {max(list(stats.committed)[-commits:])}" if commits else ""
    waited = wording.duration(stats.waited - before.waited)
    given_up = stats.given_up - before.given_up
    if given_up:
        saved += f" ({given_up} given up for newer ones)"
    return f"{saved}, {wording.size(commits * file_size)}, training waited {waited}{newest}"
