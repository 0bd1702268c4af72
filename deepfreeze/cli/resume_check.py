"""``deepfreeze resume-check``: kills a program in a rehearsal, and says whether it goes on bit for bit."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from deepfreeze import wording
from deepfreeze.cli import command, output, programs
from deepfreeze.cli.output import line
from deepfreeze.cli.rehearsals import Killed, Rehearsals
from deepfreeze.errors import OptionError
from deepfreeze.format.dataset_groups import WEIGHT
from deepfreeze.inspect.resume_difference import Difference, difference, unrepeatable, unresumed

DIFFERS = 3  # exit codes
UNREPEATABLE = 5
_STEPS = 20
_SECONDS = 3600
_LISTED = 10  # tensors that are listed; JSON has all
_FIRST, _SECOND, _KILLED = "uninterrupted", "repeated", "killed"
_MORE = f"""
The program stays as it is. It is started four times, each time in a scratch run in place of its own: to step N; to step N once more;
then to step K, where all its ranks kill themselves by SIGKILL as soon as the first checkpoint from step K on is committed; and again,
so that it goes on to step N. The checkpoints of step N are compared: all tensors, and of each rank the random seeds and what extra= and
rng= have saved. If the first two starts differ, the program is not repeatable, and no kill is tried. 0.0 and -0.0 don't differ, nor do
two NaNs.

Training ends at step N as after a signal: fit returns, and the program goes on behind it. Other files that the program writes it writes
each time. A program whose trainings have several runs can't be checked: all of them would get the one scratch run.

These environment variables tell deepfreeze.Checkpoint and deepfreeze.capture of the rehearsal:
  DEEPFREEZE_CHECK_RUN    the scratch run, in place of the program's run
  DEEPFREEZE_CHECK_STEPS  N
  DEEPFREEZE_CHECK_AT     K: this step gets a checkpoint, and so does step N, whatever every= says
  DEEPFREEZE_CHECK_KILL   1: the ranks kill themselves at K

With -np the program is started by horovodrun, or by mpirun where there is none, on this machine. Where the ranks are on several nodes,
give the whole command line (srun -n 8 python train.py) and a --keep FOLDER that all nodes share. The launcher must pass the variables to
all ranks, as srun and horovodrun do; Open MPI's mpirun needs -x for each.

exit codes:
  0  the program goes on bit for bit; metrics may have begun anew
  1  the program failed, hung, saved no checkpoint, or ended before step N
  2  the command line is wrong
  {DIFFERS}  after the kill the program trains something else
  {UNREPEATABLE}  the program is not repeatable, even without a kill

examples:
  deepfreeze resume-check -- python train.py
  deepfreeze resume-check --steps 200 --kill 130 -np 2 -- python train.py
  deepfreeze resume-check --keep check -- srun -n 8 python train.py
"""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to argparse's ``commands``."""
    text = """Starts a training program, kills it, starts it again, and compares its last checkpoint with that of a training that nothing
    has interrupted. Names what differs, and the likely cause."""
    short = "does a program go on bit for bit after a kill?"
    parser = command.add(commands, "resume-check", run, short=short, text=text, more=_MORE)
    steps = f"the last step ({_STEPS})"
    parser.add_argument("--steps", metavar="N", type=command.count, default=_STEPS, help=steps)
    parser.add_argument("--kill", metavar="K", type=command.count, help="the step of the kill, below N (N/2)")
    parser.add_argument("-np", metavar="R", dest="ranks", type=command.count, help="start the program with R ranks")
    keep = "keep the scratch runs and the program's output in FOLDER, which must be new or empty"
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help=keep)
    timeout = f"end a program that runs for more than S seconds ({_SECONDS})"
    parser.add_argument("--timeout", metavar="S", type=command.count, default=_SECONDS, help=timeout)
    parser.add_argument("program", metavar="-- PROGRAM", nargs=argparse.REMAINDER, help="how the program is started")


def run(arguments: argparse.Namespace) -> int:
    """Rehearses, compares and prints. Returns the exit code."""
    try:
        program, steps, at = _checked(arguments)
        with programs.folder(arguments.keep, "deepfreeze-resume-check-") as folder:
            rehearsals = Rehearsals(program, arguments.ranks, steps, at, arguments.timeout, folder, _tell)
            return _rehearse(rehearsals, steps, arguments.json)
    except OptionError as error:
        output.complain(error)
        return 2


def _checked(arguments: argparse.Namespace) -> tuple[list[str], int, int]:
    """The program, N and K. ``OptionError`` if one is wrong."""
    program = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if not program:
        expected, todo = "the command line that starts the program", "put it behind --: -- python train.py"
        raise OptionError(where="resume-check", expected=expected, found="none", todo=todo)
    steps = arguments.steps
    if steps < 2:
        expected, todo = "at least 2 steps, one before the kill and one behind it", "raise --steps"
        raise OptionError(where="--steps", expected=expected, found=str(steps), todo=todo)
    at = steps // 2 if arguments.kill is None else arguments.kill
    if at >= steps:
        expected, todo = f"a step below the last one, {steps}", "lower --kill or raise --steps"
        raise OptionError(where="--kill", expected=expected, found=str(at), todo=todo)
    return program, steps, at


def _rehearse(rehearsals: Rehearsals, steps: int, as_json: bool) -> int:
    first = rehearsals.uninterrupted(_FIRST)
    rehearsals.uninterrupted(_SECOND)
    repeated = _difference(rehearsals, first, _SECOND, as_json)
    if not repeated.same_training:
        causes = unrepeatable(repeated)
        _report(as_json, repeated, "not repeatable", causes, None)
        return UNREPEATABLE
    killed = rehearsals.killed(_KILLED)
    found = _difference(rehearsals, first, _KILLED, as_json)
    causes = unresumed(found, killed.position)
    if killed.resumed is None:
        causes = [
            'the program did not resume: it began at step 0 again (resume="off", or a model that was not restored)'
        ]
    same = found.same_training and killed.resumed is not None
    _report(as_json, found, "resumes" if same else "differs", causes, killed)
    return 0 if same else DIFFERS


def _difference(rehearsals: Rehearsals, first: set[int], second: str, as_json: bool) -> Difference:
    step = rehearsals.compared(first, second)
    with output.bar("comparing", shown=not as_json) as progress:
        return difference(rehearsals.run(_FIRST), rehearsals.run(second), step, progress)


def _report(as_json: bool, found: Difference, verdict: str, causes: list[str], killed: Killed | None) -> None:
    step = found.comparison.first.step
    if as_json:
        values = {
            "verdict": verdict,
            "step": step,
            "killed": None if killed is None else killed.step,
            "resumed": None if killed is None else killed.resumed,
            "tensors": [{"name": label, "kind": kind} for label, kind in found.tensors.items()],
            "states": [{"kind": one.kind, "name": one.name, "ranks": list(one.ranks)} for one in found.states],
            "causes": causes,
        }
        print(json.dumps(values, indent=2))
        return
    if killed is None:
        line(f"not repeatable: two trainings without a kill differ at step {step}. No kill was tried")
    elif verdict == "resumes":
        same = wording.count(found.comparison.same, "tensor")
        but = f", all but {wording.count(len(found.metrics), 'metric')}" if found.metrics else ""
        line(f"goes on bit for bit: killed at step {killed.step}, and the same at step {step} ({same}{but})")
    else:
        line(f"does not go on bit for bit: killed at step {killed.step}, and different at step {step}")
    weights_first = sorted(found.tensors.items(), key=lambda one: one[1] != WEIGHT)
    for label, kind in weights_first[:_LISTED]:
        line(f"  {kind} {label}")
    if len(found.tensors) > _LISTED:
        line(f"  and {len(found.tensors) - _LISTED} more (--json)")
    for state in found.states:
        line(f"  {state}")
    for cause in causes:
        line(f"likely cause: {cause}")


def _tell(text: str) -> None:
    output.notify("info", text)
