"""A part of a training: one trade, such as retention, or the policy that chooses the steps to save.

A training is a list of parts (``parts/table``). ``Session`` shows in which order they are called after an execution; ``Handover``,
``Saves`` and ``Commits`` call them where a checkpoint is handed over, has failed, or is waited for. A part does not know the other parts.

How a part is added: a file in ``parts/`` with a class that derives from ``Part`` and has the methods that it needs; a row in the table,
with the reason for its place; a line in docs/design.md. What the part needs is in ``Begun``; what it knows beyond one ``fit`` lies in
``table.Lasting``. ``tests/training/every_tenth`` is an example, and ``test_parts`` beside it tests the example with ranks that are played.

How ranks agree: each takes the same fields of the control word, in the constructor of the part, because the word is sealed when all parts
are made. So a part that takes a field is there on every rank. A name that another part has taken is an error. A proposal stands until the
rank makes another one. It is agreed on in the next execution where Horovod's ops take the maximum in the graph; at once in a job of one
rank; elsewhere when the ranks meet next, which is at each checkpoint and about once in a second (``ranks/agreement``). The same value may
be read after several executions, so a part remembers which one it has answered. What is proposed after the last execution is never agreed
on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from deepfreeze.engine.records import Report
from deepfreeze.freeze.agreed_structure import AgreedStructure
from deepfreeze.freeze.saver import Saver
from deepfreeze.freeze.settings import SaverSettings
from deepfreeze.plan.comparisons import Compared
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.training.installation import Installation


class Saving(NamedTuple):
    """A checkpoint that is about to be handed to the engine. A named tuple: training waits while copies of it are made.

    - ``step``: its step, which is so many steps ``behind`` the end of an execution of ``steps``.
    - ``stays``: whether it gives way to no other checkpoint: an epoch's last one, or somebody has asked for it.
    - ``compare``: the part of the replicated tensors by which rank 0 compares the ranks; None: no part.
    - ``values``: named values of its manifest."""

    step: int
    behind: int = 0
    steps: int = 1
    stays: bool = False
    compare: Compared | None = None
    values: Mapping[str, Any] | None = None

    def having(self, **fields: Any) -> Saving:
        """A copy that has these fields instead."""
        return self._replace(**fields)


class Part:
    """One part of one ``fit`` or loop.

    The training thread calls all methods, between two executions of the train function. Every rank calls a method after the same
    executions, and in the same order as the other parts' methods, so that a part may talk to the other ranks there: *collective*. Where a
    rank calls a method *by itself*, because it depends on this rank's engine or program, no part may talk to the others.

    An exception ends the training of this rank, and closes its run. What goes wrong on one rank alone is told by ``Agreement.fail``: all
    ranks then raise after the same execution.

    A part has the methods that it needs. Those that it lacks are never called. Where several parts answer, the docstring says what
    counts."""

    # -- Once, when a training begins.

    def begins(self, installation: Installation) -> bool:
        """The captures are in the model, before its first execution. Collective. Returns whether the first execution may capture: all parts
        must say so."""
        return True

    def settings(self, settings: SaverSettings) -> SaverSettings:
        """The saver is about to be opened with these settings. Collective. Returns them, or changed ones, which the next part gets."""
        return settings

    def opens(self, saver: Saver, agreed: AgreedStructure) -> None:
        """The saver is open; ``agreed``: the structure of its checkpoints. Collective. In the first ``fit`` of a model this comes behind
        ``execution_ended`` of the first execution, in which the last variables are made; otherwise before the first execution."""

    # -- After each execution, in this order.

    def execution_ended(self) -> None:
        """First, before anything is waited for. Collective."""

    def reports(self, reports: Sequence[Report]) -> None:
        """The engine was asked for news, and has told these, or nothing. By itself: also while training waits for the engine, as often as
        that takes."""

    def ended(self, done: Execution, schedule: Schedule) -> None:
        """The execution's capture is handed over, and the ranks are about to settle. Collective. In a job of one rank, or where ranks meet
        between executions, this is the last moment for a proposal that is to be settled now. Not called after an execution behind which
        training was to end anyway."""

    def settled(self, done: Execution, schedule: Schedule, skip: int) -> None:
        """The ranks have settled what comes next, and training goes on. Collective. ``skip``: the step that they have agreed to skip, 0 for
        none; ``schedule`` has not passed it yet."""

    def gives_up(self, schedule: Schedule) -> int | None:
        """``schedule`` has the step to capture next. Collective. Returns the step whose checkpoint all ranks give up for it, None if there
        is none. The first part that gives one up decides; the parts behind it are not asked."""
        return None

    def gave_up(self, step: int) -> None:
        """All ranks have given up the checkpoint of ``step``. Collective."""

    def aims(self, done: Execution, schedule: Schedule) -> None:
        """The last moment to move ``schedule`` to another step. Collective."""

    def waits_for_room(self) -> None:
        """The next execution captures a step: waits until that may be saved. By itself; not while a step waits for the next execution, or
        for the callbacks of its epoch. Raises ``EngineError``."""

    def proposes(self, skip: int, schedule: Schedule, steps: int) -> int:
        """The last moment for proposals about a step that is due in the execution after the next one: the ranks settle before that begins.
        Collective. ``skip``: the step that this rank wants all ranks to skip, as the parts before have decided, 0 for none; ``steps``: of
        each execution. Returns ``skip``, or another step, which the next part gets. Raises ``EngineError``."""
        return skip

    def goes_on(self, schedule: Schedule) -> None:
        """Last, also where training ends with this execution. Collective."""

    # -- At a checkpoint: after an execution, at the end of an epoch, or at the end of training.

    def has_room_now(self) -> bool:
        """A step is to be captured that nobody knew of beforehand, such as the last one of a ``fit``. Collective. Returns whether there is
        room for it: all parts must say so. May wait. Raises ``EngineError``."""
        return True

    def has_room_for(self, step: int) -> bool:
        """The checkpoint of ``step`` is about to be handed to the engine. Collective. Returns whether there is room for it: all parts must
        say so. May wait. Raises ``EngineError``."""
        return True

    def saves(self, saving: Saving) -> Saving:
        """The checkpoint has room, and will be handed to the engine. Collective. Returns it, with what this part adds, for the next
        part."""
        return saving

    def captured(self, step: int) -> None:
        """The bytes of ``step`` are captured, and nothing of training changes them any more. By itself: not where the capture has failed.
        Called at once; for a late capture after the next execution. The engine has the step, or gets it when its epoch's callbacks have
        ended."""

    def values_at_release(self) -> Mapping[str, Any]:
        """A step that was held for the callbacks of its epoch is about to be handed to the engine. By itself. Returns named values of its
        manifest, in place of those that ``saves`` has given; those of all parts together."""
        return {}

    def kills_after(self, step: int) -> bool:
        """The engine has ``step``. Collective. Returns whether the process is to be killed as soon as it is committed: one part that says
        so is enough."""
        return False

    def tolerates(self, step: int) -> bool:
        """The store could not take the checkpoint of ``step``. By itself. Returns whether training goes on without an error: one part that
        says so is enough."""
        return False

    # -- Between executions, and at the end.

    def epoch_ended(self, schedule: Schedule, step: int) -> bool:
        """An epoch has ended at ``step``; other callbacks may not have seen it yet. Collective. Returns whether the step is to be saved:
        one part that says so is enough."""
        return False

    def epoch_settled(self, schedule: Schedule) -> None:
        """An epoch has ended, and its last step is saved if it is to be: the last moment to move ``schedule``. Collective."""

    def measured(self, values: Mapping[str, Any], step: int, epoch: int | None) -> None:
        """The program has measured ``values`` at ``step``. By itself: a loop may do so on rank 0 alone. ``epoch``: the number of epochs
        done, at the end of one."""

    def pauses(self) -> None:
        """The next execution may come much later, or never. By itself."""

    def drains(self) -> bool:
        """Every checkpoint is committed or failed, and training waits for nothing more. By itself. Returns whether the engine has further
        work now, for which training then waits: one part that says so is enough."""
        return False

    def ends(self, final: bool, stopped: bool) -> None:
        """Once, at the end of a training that has made a step and has not raised. Collective. ``final``: its last step was to be saved;
        ``stopped``: a signal, the job's end or a rehearsal has ended it."""

    def ends_without_steps(self) -> None:
        """Once, in place of ``ends``, if the training has made no step. Collective."""
