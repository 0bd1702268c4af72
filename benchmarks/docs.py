"""Puts the benchmarks' tables into docs/benchmarks.md, so that no figure is copied by hand. python -m benchmarks.docs --help

Between "<!-- begin NAME -->" and "<!-- end NAME -->" stands what benchmark NAME makes of its JSON file: the function ``tables``
of module benchmarks.NAME. A module that measures nothing names its JSON file itself, as ``FILE``. A section that says ``UNMEASURED`` may
lack its JSON file; any other may not. Everything else in the document stays as it is.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import RESULTS, ROOT, Report, say

DOCUMENT = ROOT / "docs" / "benchmarks.md"
UNMEASURED = "Not measured yet."
_MARKER = re.compile(r"^<!-- (begin|end) (\S+) -->\n?", re.MULTILINE)


class Unusable(Exception):
    """Why the document can't be made; one problem a line."""


class Missing(Unusable):
    """There is no JSON file."""


def sections(text: str) -> list[tuple[str, int, int]]:
    """(name, start, stop) of what lies between each pair of markers."""
    found, problems = [], []
    begun: re.Match | None = None
    for marker in _MARKER.finditer(text):
        kind, name = marker.groups()
        if kind == "begin":
            if begun:
                problems.append(f"{begun[2]}: its begin is followed by the begin of {name}")
            begun = marker
        elif begun is None or begun[2] != name:
            problems.append(f"{name}: its end follows no begin")
            begun = None
        else:
            found.append((name, begun.end(), marker.start()))
            begun = None
    if begun:
        problems.append(f"{begun[2]}: its begin has no end")
    if problems:
        raise Unusable("\n".join(problems))
    return found


def tables(name: str, results: Path) -> str:
    """What a benchmark makes of its JSON file in ``results``."""
    module = f"benchmarks.{name}"
    try:
        benchmark = importlib.import_module(module)
        make = benchmark.tables
    except ModuleNotFoundError as error:
        if error.name != module:
            raise  # the benchmark is there, but something that it imports isn't
        raise Unusable(f"{name}: there is no benchmark of this name") from error
    except AttributeError as error:
        raise Unusable(f"{name}: {module} makes no tables") from error
    path = getattr(benchmark, "FILE", results / f"{name}.json")
    try:
        return make(Report.load(path))
    except FileNotFoundError as error:
        raise Missing(f"{name}: {path} is missing; python -m {module} makes it") from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise Unusable(f"{name}: {path} does not fit it: {error!r}") from error


def rewritten(text: str, results: Path) -> tuple[str, list[str]]:
    """The document with the tables that the JSON files give, and the names of the benchmarks whose tables differ."""
    parts, at, changed, problems = [], 0, [], []
    for name, start, stop in sections(text):
        try:
            body = f"\n{tables(name, results).strip()}\n\n"
        except Unusable as problem:
            if not isinstance(problem, Missing) or text[start:stop].strip() != UNMEASURED:
                problems.append(str(problem))
            continue
        if body != text[start:stop]:
            changed.append(name)
        parts += [text[at:start], body]
        at = stop
    if problems:
        raise Unusable("\n".join(problems))
    return "".join([*parts, text[at:]]), changed


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.docs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if something would change")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="(%(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the JSON files are (%(default)s)")
    args = parser.parse_args(argv)
    try:
        text = args.document.read_text()
        new, changed = rewritten(text, args.results)
    except (OSError, Unusable) as problem:
        raise SystemExit(f"{args.document}:\n{problem}") from problem
    if not changed:
        say(f"{args.document}: nothing to change")
    elif args.check:
        raise SystemExit(f"{args.document} is not what the JSON files give: {', '.join(changed)}")
    else:
        args.document.write_text(new)
        say(f"{args.document}: rewrote {', '.join(changed)}")


if __name__ == "__main__":
    main()
