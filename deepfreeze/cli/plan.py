"""``deepfreeze plan``: prints how often a run's training takes checkpoints, and why."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepfreeze import wording
from deepfreeze.cli import command, plan_figure, plan_recovery, plan_sentences, step_plan, tuned
from deepfreeze.cli.output import facts, line, table
from deepfreeze.cli.plan_sentences import BOUNDS, REASONS, bounds, deciding, every, percent, seconds
from deepfreeze.events.restarts import Restarts, newest_restarts
from deepfreeze.format import names
from deepfreeze.plan import budget_section
from deepfreeze.plan.auto_section import SECTION, AutoSection
from deepfreeze.plan.budget_section import BudgetSection
from deepfreeze.plan.checkfreq import Profile
from deepfreeze.store import step_plans
from deepfreeze.store.plan import read_section
from deepfreeze.store.run import Run

_NEWEST = 10  # of the decisions and of the overheads that the text has
_MORE = f"""
A training with every="auto" times some steps without a checkpoint, then two checkpoints. From that profile it works out how many steps
apart checkpoints may be (CheckFreq, FAST 2021, section 4.2; the letters in brackets are that paper's). Three bounds are worked out, and
the longest interval counts. After each four checkpoints the training measures the overhead anew, and makes the interval longer or shorter.
--explain says the same in sentences.

A training with every=deepfreeze.plan.Budget(...) tries the engine before, as deepfreeze tune does: a table has each setting that was tried,
the time of a commit (Tw), and how long each checkpoint takes while N are on their way at once (Tw / N). The bound of the commits is Tw / (N
q t) then, q being 1 + the budget and t a step (PCcheck, ASPLOS 2025, section 4).

A table says how much a kill costs at most: finished steps that are trained again, and the time until training is where it was, the
restart included (PCcheck, ASPLOS 2025, section 4). It holds for commits and steps that take as long as measured; no commit makes it more
than the interval times one more than the checkpoints under way. A checkpoint that is skipped, given up or failed adds an interval.

The profile is that of one rank: the one whose wish decided last. The newest {_NEWEST} decisions and overheads are listed; --json and --plot
have up to {AutoSection.MOST_DECISIONS} and {AutoSection.MOST_WINDOWS}. A job that is started again begins with this plan, which is in
RUN/plan.json, and a running job may be watched.

--schedule shows another plan: in which windows of a step each tensor could be copied, and in which its copy could be written, so that
training never waits and the copies hold as little memory as can be (Checkflow, 2025). It needs the profile of a training with
Capture(profile=True). Training does not act on it. --what-if plans the step anew under other conditions, without a training: memory=SIZE
that captures may hold, every=STEPS, a store that is rate=FACTOR times as fast, tensors that may be written without a copy (direct=yes), or
nothing held when a period begins (cyclic=no). The best plan needs HiGHS (pip install "deepfreeze[plan]"); without it the greedy one is
shown.

exit codes:
  0  the plan was shown
  1  the run has no plan, or a damaged one; there is no such run; no plan of the step keeps the bounds; or the picture can't be drawn
  2  the command line is wrong

examples:
  deepfreeze plan runs/nt3                   profile, bounds, decisions
  deepfreeze plan runs/nt3 --explain         why this interval?
  deepfreeze plan runs/nt3 --plot plan.png   interval and overhead over steps
  deepfreeze plan runs/nt3 --json            all of it, for a program
  deepfreeze plan runs/nt3 --schedule        the plan of its step
  deepfreeze plan runs/nt3 --schedule --plot step.png
  deepfreeze plan runs/nt3 --what-if memory=300MB every=2
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = """Shows the plan of a run that is trained with every="auto" or with a Budget: the measurements, the setting and the interval
    that followed from them, and how interval and overhead went on."""
    parser = command.add(
        commands, "plan", run, short="show how often checkpoints are taken, and why", text=text, more=_MORE
    )
    parser.set_defaults(parser=parser)
    parser.add_argument("run", metavar="RUN", nargs="?", help="the run's directory")
    parser.add_argument("--explain", action="store_true", help="print whole sentences")
    text = "draw interval and overhead over steps, or the step's plan; replaces FILE.png if it exists; needs matplotlib"
    parser.add_argument("--plot", metavar="FILE.png", type=_picture, help=text)
    text = "show the step's plan instead: when each part of a checkpoint would be copied and written"
    parser.add_argument("--schedule", action="store_true", help=text)
    text = f"plan the step anew: {step_plan.WHAT_IF}"
    parser.add_argument(
        "--what-if",
        metavar="NAME=VALUE",
        nargs="+",
        action="extend",
        default=[],
        type=step_plan.what_if,
        help=text,
    )
    text = "plan the step of a profile that was made elsewhere, instead of a run's"
    parser.add_argument("--profile", metavar="FILE.json", type=Path, help=text)


def _picture(text: str) -> Path:
    """The type of the argument FILE.png."""
    if not text.lower().endswith(".png"):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a .png file")
    return Path(text)


def run(arguments: argparse.Namespace) -> int:
    """Prints or draws the plan. Returns the exit code, 1 if there is none."""
    step_plan.take_run(arguments)
    if arguments.run is None and arguments.profile is None:
        arguments.parser.error("a RUN, or --profile FILE.json, is missing")
    if arguments.run is not None and arguments.profile is not None:
        arguments.parser.error("give a RUN or --profile FILE.json, not both: each of them has a profile")
    if arguments.schedule or arguments.what_if or arguments.profile is not None:
        if arguments.explain:
            arguments.parser.error("--explain explains the interval of a run: a plan of the step has no sentences")
        return step_plan.show(arguments)
    opened_run = Run.open(arguments.run)
    found, budget, section = _sections(opened_run)
    if found is None or section is None:
        if budget is not None:
            return _without_interval(budget, found, arguments)
        if arguments.json:
            print("null")
        else:
            line(
                f'{opened_run.path}: this run has no plan: it was trained without every="auto" or a Budget, or ended before its steps '
                'and two checkpoints were timed. Train it with deepfreeze.Checkpoint(..., every="auto")'
                + (
                    ""
                    if step_plans.read_profile(opened_run) is None
                    else ". It has a plan of its step: --schedule shows it"
                )
            )
        return 1
    if arguments.plot is not None:
        plan_figure.draw(section, str(opened_run.path), arguments.plot)
    restarts = newest_restarts(opened_run)
    if arguments.json:
        print(json.dumps({**found, "recovery": plan_recovery.to_json(section, restarts)}, indent=2))
    elif arguments.explain:
        for sentence in [*(tuned.sentences(budget) if budget is not None else ()), *plan_sentences.sentences(section)]:
            line(sentence)
        line(plan_recovery.sentence(section, restarts))
    elif arguments.plot is not None:
        line(f"{arguments.plot}: the interval and the overhead of {opened_run.path}, up to step {section.last_step}")
    else:
        _print(opened_run, section, restarts, budget)
    return 0


def _sections(opened_run: Run) -> tuple[Mapping[str, Any] | None, BudgetSection | None, AutoSection | None]:
    """The section of ``plan.json`` that was written for the newest step, and what is in it: of ``Budget``, or else of ``Auto``."""
    where = opened_run.store.where(names.PLAN_FILE)
    plain, of_budget = read_section(opened_run, SECTION), read_section(opened_run, budget_section.SECTION)
    section = None if plain is None else AutoSection.from_json(plain, where)
    budget = None if of_budget is None else BudgetSection.from_json(of_budget, where)
    if budget is not None and _is_newer(budget, section):
        return of_budget, budget, budget.auto
    return plain, None, section


def _is_newer(budget: BudgetSection, section: AutoSection | None) -> bool:
    """True if ``Budget`` has written later than ``Auto``, by the steps up to which they tell. ``deepfreeze tune`` tells of none."""
    if section is None:
        return True
    return budget.auto is not None and (not budget.auto.decisions or budget.auto.last_step >= section.last_step)


def _without_interval(budget: BudgetSection, found: Mapping[str, Any] | None, arguments: argparse.Namespace) -> int:
    """Prints what a search has found that ended before there was an interval."""
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    for sentence in tuned.sentences(budget):
        line(sentence)
    line("")
    tuned.trials(budget.tried, budget.chosen)
    return 0


def _print(opened_run: Run, section: AutoSection, restarts: Restarts | None, budget: BudgetSection | None) -> None:
    conditions = section.conditions
    unused = budget is not None and not section.decisions
    mtbf = "not given (mtbf), so they set no bound" if section.mtbf is None else f"one in {seconds(section.mtbf)}"
    facts([
        ("run", str(opened_run.path)),
        ("interval", every(section.interval) + ("" if unused else f", from step {section.step} on")),
        ("because", "deepfreeze tune has found it; no job has used it yet" if unused else
                    f"{REASONS[section.reason]} (rank {section.rank})"),
        ("budget", f"checkpoints may make the training {percent(section.overhead)} longer"),
        ("failures", mtbf),
        ("under way", f"at most {wording.count(section.uncommitted, 'checkpoint')} at once"),
        ("measured on", f"{wording.count(conditions.world_size, 'rank')} with {conditions.cores:g} "
                        f"core{'s' * (conditions.cores != 1)} each, "
                        f"local tier {conditions.tier}"),
        ("restart", plan_recovery.restart(restarts)),
        *(() if budget is None else (("limits", tuned.limits(budget.limits)), ("the search", tuned.outcome(budget)))),
    ])  # fmt: skip
    if budget is not None:
        line("")
        tuned.trials(budget.tried, budget.chosen)
    line("")
    table((f"~profile of rank {section.rank}", ">value"), _profile(section.profile, section.terms.cost))
    line("")
    table(("~bound", ">steps", ""), _bounds(section))
    line("")
    table(plan_recovery.HEADS, plan_recovery.rows(section, restarts))
    if section.decisions:
        line("")
        table((">from step", ">was", ">is", "~because", ">rank"), _decisions(section))
    if section.windows:
        line("")
        table((">to step", ">interval", ">overhead", "95 % interval"), _windows(section))


def _bounds(section: AutoSection) -> list[tuple[str, ...]]:
    chosen = deciding(section) if section.interval == section.terms.interval else ()
    return [
        (BOUNDS[name], "-" if steps is None else str(steps), "decided" if name in chosen else "")
        for name, steps in bounds(section).items()
    ]


def _decisions(section: AutoSection) -> list[tuple[str, ...]]:
    newest = section.decisions[-_NEWEST:]
    return [(str(d.step), str(d.before or "-"), str(d.after), REASONS[d.reason], str(d.rank)) for d in newest]


def _windows(section: AutoSection) -> list[tuple[str, ...]]:
    newest = section.windows[-_NEWEST:]
    return [
        (str(w.step), str(w.interval), percent(w.overhead), f"{percent(w.low)} to {percent(w.high)}") for w in newest
    ]


def _profile(profile: Profile, cost: float) -> list[tuple[str, str]]:
    rows = [("a step without a checkpoint (Ti)", seconds(profile.iteration))]
    if profile.cost is None:  # else it is measured, and nothing follows from this
        rows.append(("the writing of weights in it (Tw)", seconds(profile.update)))
    rows += [
        ("size of the rank's part (m)", wording.size(profile.nbytes)),
        ("the copy of the rank's part (Tc)", seconds(profile.copy)),
        ("from the hand-over to the commit (Ts)", seconds(profile.persist)),
    ]
    if profile.device_copy is not None:
        rows.append(("the copy on the device (Tg)", seconds(profile.device_copy)))
    if profile.device_size:
        used = f"{wording.size(profile.device_used)} of {wording.size(profile.device_size)}"
        rows.append(("the device's memory in use (M, Mmax)", used))
    how = "measured" if profile.cost is not None else "worked out from the above"
    return [*rows, (f"a checkpoint makes the training longer by (To), {how}", seconds(cost))]
