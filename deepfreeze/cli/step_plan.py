"""``deepfreeze plan RUN --schedule``: shows when each part of a checkpoint would be copied and written within the step, and what that
holds."""

from __future__ import annotations

import argparse
import json
from typing import Any

from deepfreeze import arguments as checks
from deepfreeze import wording
from deepfreeze.cli import step_plan_figure
from deepfreeze.cli.output import facts, line, notify, table, waiting
from deepfreeze.errors import OptionError
from deepfreeze.plan.step import planning, usage
from deepfreeze.plan.step.baselines import Baseline
from deepfreeze.plan.step.checkflow import SECONDS
from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.plan.step.question import Question
from deepfreeze.plan.step.step_plan import StepPlan, end_seconds
from deepfreeze.plan.step.step_plan_file import StepPlanFile
from deepfreeze.store import step_plans
from deepfreeze.store.run import Run
from deepfreeze.store.step_plans import StepSection

WHAT_IF = "memory=SIZE, every=STEPS, rate=FACTOR, direct=yes or cyclic=no"


def what_if(text: str) -> tuple[str, Any]:
    """The type of an argument of --what-if: (name, value) of a condition. All else may be the RUN that follows: ("run", text)."""
    name, _, value = text.partition("=")
    if name not in ("memory", "every", "rate", "direct", "cyclic"):
        return "run", text
    try:
        if name == "memory":
            return name, checks.size("--what-if memory=", value)
        if name == "every":
            return name, checks.whole_number("--what-if every=", int(value), 1, 10_000)
        if name == "rate" and 0 < float(value) < 1e6:
            return "faster", float(value)
        if name in ("direct", "cyclic") and value in ("yes", "no"):
            return name, value == "yes"
    except (OptionError, ValueError):
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is none of {WHAT_IF}")


def take_run(arguments: argparse.Namespace) -> None:
    """Makes the RUN that follows the conditions of --what-if the argument RUN. A text that is neither ends the program with exit code 2."""
    others = [text for name, text in arguments.what_if if name == "run"]
    arguments.what_if = [condition for condition in arguments.what_if if condition[0] != "run"]
    if others and not (arguments.what_if and arguments.run is None and len(others) == 1):
        arguments.parser.error(f"argument --what-if: {others[0]!r} is none of {WHAT_IF}")
    if others:
        arguments.run = others[0]


def show(arguments: argparse.Namespace) -> int:
    """Prints or draws the plan of a run's step, or of a profile's. Returns the exit code, 1 if there is neither."""
    if arguments.profile is not None:
        run, kept, title = None, StepSection({}), str(arguments.profile)
        profile = StepProfile.load(arguments.profile)
    else:
        run = Run.open(arguments.run)
        found = step_plans.read_profile(run)
        if found is None:
            return _nothing(run, arguments)
        kept, title = found, str(run.path)
        profile = StepProfile.from_json(kept.profile, run.store.where("plan.json"))
    if not profile.is_steady:
        notify("warning", planning.unsteady(profile))
    if run is not None and kept.plan is not None and not arguments.what_if:
        shown = _read(run, kept.plan, profile)
        if shown is not None:
            return _print(shown, title, arguments)
    training = {"every": kept.every, "memory": kept.memory, "blocks": kept.blocks}
    with waiting(f"planning the step, for up to {SECONDS:.0f} s", shown=not arguments.json):
        made = _made(profile, training | dict(arguments.what_if))
    return _print(made, title, arguments)


def _made(profile: StepProfile, given: dict[str, Any]) -> StepPlanFile:
    """A new plan; without HiGHS the greedy one, which is said."""
    made, without = planning.plan_or_greedy(profile, planning.question(profile, **given))
    if without is not None:
        notify("warning", f"{without} The plan shown is the greedy one.")
    return made


def _read(run: Run, name: str, profile: StepProfile) -> StepPlanFile | None:
    """The plan that is kept; None if its file is gone."""
    found = step_plans.read(run, name)
    if found is None:
        return None
    plan = StepPlanFile.from_bytes(*found)
    plan.check(profile, found[1])
    return plan


def _nothing(run: Run, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print("null")
    else:
        line(
            f"{run.path}: the step of this run has no profile: it was trained without Capture(profile=True), its step can't be profiled, "
            "or it ended before three checkpoints and 30 more steps. Train it with "
            "deepfreeze.Checkpoint(..., capture=deepfreeze.Capture(profile=True))"
        )
    return 1


def _print(shown: StepPlanFile, title: str, arguments: argparse.Namespace) -> int:
    plan, asked = shown.plan, shown.plan.question
    if arguments.plot is not None:
        step_plan_figure.draw(plan, title, arguments.plot)
    if arguments.json:
        print(json.dumps(_to_json(shown), indent=2))
        return 0
    if arguments.plot is not None:
        line(f"{arguments.plot}: the plan of a step of {title}")
        return 0
    step = sum(window.seconds for window in asked.windows)
    facts([
        ("of", title),
        ("step", f"{_seconds(step)} in {wording.count(len(asked.windows), 'window')}, "
                 f"on {wording.count(shown.world_size, 'rank')}"),
        ("conditions", _conditions(asked)),
        ("saved", f"{wording.size(asked.nbytes)} a rank, in {wording.count(len(plan.parts), 'part')}, every "
                  f"{wording.count(asked.every, 'step')}"),
        ("extra memory", _extra(plan.extra, asked.nbytes)),
        ("at least", _bounds(plan)),
        ("store", f"takes {wording.size(round(asked.nbytes / plan.share_of_rate))} in the time; "
                  f"{plan.share_of_rate:.0%} of it is used"),
        ("written", _end(end_seconds(asked, plan.parts))),
    ])  # fmt: skip
    line("")
    table(
        ("~instead", ">extra memory", ">training waits", ">written after"),
        [_baseline(one, asked) for one in shown.baselines],
    )
    line("")
    if asked.every > 1:
        line(
            f"Each window of the {asked.every} steps of a checkpoint: bytes copied and written in all of them, the most held in any."
        )
    table((">window", "~phase", "~begins with", ">time", ">copied", ">written", ">held"), _windows(shown))
    return 0


def _conditions(asked: Question) -> str:
    bound = (
        "as little memory as can be"
        if asked.memory is None
        else f"at most {wording.size(asked.memory - asked.base)} of copies"
    )
    direct = "parts may be written without a copy" if asked.direct else "every part is copied"
    return f"{bound}; {direct}" + ("" if asked.cyclic else "; nothing is held when a period begins")


def _bounds(plan: StepPlan) -> str:
    base = plan.question.base
    if plan.extra and plan.fine_bound <= base and plan.bound <= base and not plan.is_best:
        return "not known without a solver, or without more time for it"
    bound, finest = (max(0, round(one) - base) for one in (plan.bound, plan.fine_bound))
    if bound <= finest:
        return f"{wording.size(finest)}, however parts are cut (gap {plan.gap:.1%})"
    return f"{wording.size(bound)} with equal parts (gap {plan.gap:.1%}), {wording.size(finest)} with any others"


def _extra(extra: int, whole: int) -> str:
    return f"{wording.size(extra)}, {extra / whole:.2f} of the checkpoint"


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def _end(seconds: float) -> str:
    when = "before" if seconds < 0 else "after"
    return f"{_seconds(abs(seconds))} {when} the end of the captured step"


def _baseline(one: Baseline, asked: Question) -> tuple[str, ...]:
    if one.extra is None:
        return one.name, "no plan", "-", "-"
    return one.name, _extra(one.extra, asked.nbytes), _seconds(one.stall), "-" if one.end is None else _seconds(one.end)


def _windows(shown: StepPlanFile) -> list[tuple[str, ...]]:
    """Of each window of a step, over all steps of a period: bytes that are copied and written in it, and the most that are held."""
    asked, per_step = shown.plan.question, len(shown.plan.question.windows)
    copied = [0] * per_step
    for part in shown.plan.parts:
        if part.copy is not None:
            copied[part.copy % per_step] += part.nbytes
    written = usage.written(asked, shown.plan.parts).reshape(-1, per_step).sum(axis=0)
    held = usage.held(asked, shown.plan.parts).reshape(-1, per_step).max(axis=0)
    return [
        (str(n), one.phase, one.name, _seconds(one.seconds), *(_bytes(each[n]) for each in (copied, written, held)))
        for n, one in enumerate(asked.windows)
    ]


def _bytes(number: Any) -> str:
    return wording.size(int(number)) if number else "-"


def _to_json(shown: StepPlanFile) -> dict[str, Any]:
    """The file's content, with what follows from it."""
    plan = shown.plan
    content: dict[str, Any] = json.loads(shown.to_bytes())
    found = {
        "nbytes": plan.question.nbytes,
        "peak": plan.peak,
        "extra": plan.extra,
        "gap": plan.gap,
        "share_of_rate": plan.share_of_rate,
        "end_seconds": end_seconds(plan.question, plan.parts),
    }
    return content | found
