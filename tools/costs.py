"""Keeps tests/costs.tsv, the table of what each test costs, and says whether `make check` and `make test` stay within their time.

Without arguments it checks three things: every test has a row, every row has a test, and the rows' seconds add up to no more than the time
that each command may take. With `--take` it first writes what the last runs of the tests measured into the table. These may be
`make check`, `make test`, `make test-all`, or pytest on a few files. A run with -k or -m is not used, because it may leave out some of
a test's cases."""

import argparse
import ast
import heapq
import json
from collections import defaultdict

from project import BUILD, ROOT, Failure, main, say

TABLE = ROOT / "tests" / "costs.tsv"
MEASURED = BUILD / "test-costs"
HEADER = "test\ttier\tcases\tseconds\tpromise\n"
WORKERS = 2
START_S = 15  # to collect the tests and to import TensorFlow
# tier: (its bound in seconds, those whose tests it runs)
BOUNDS = {
    "check": (120 - 30, ("check",)),
    "test": (600, ("check", "test")),
}  # lint comes before the tests of `make check`


def read():
    rows = {}
    for line in TABLE.read_text().splitlines()[1:] if TABLE.exists() else []:
        test, tier, cases, seconds, promise = line.split("\t")
        rows[test, tier] = (int(cases), float(seconds), promise)
    return rows


def write(rows):
    lines = [
        f"{test}\t{tier}\t{cases}\t{seconds:.1f}\t{promise}\n"
        for (test, tier), (cases, seconds, promise) in sorted(rows.items())
    ]
    TABLE.write_text(HEADER + "".join(lines))


def defined():
    """Every test function in tests/, as PATH::NAME."""
    return {
        f"{path.relative_to(ROOT)}::{node.name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def always_full():
    """The test functions that a decorator gives to `make test-all` alone, in all their cases."""
    return {
        f"{path.relative_to(ROOT)}::{node.name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and "pytest.mark.full" in map(ast.unparse, node.decorator_list)
    }


def take(rows):
    """The rows with the measured figures in place of those that differ by more than noise; without rows of tests that are gone."""
    there, measured = defined(), set()
    for test in always_full():
        if row := rows.pop((test, "test"), None):
            rows.setdefault((test, "full"), row)
    for file in sorted(MEASURED.glob("*.json"), key=lambda file: file.stat().st_mtime):
        for key, row in json.loads(file.read_text()).items():
            test, tier = key.split("\t")
            _, seconds, _ = rows.get((test, tier), (0, -1.0, ""))
            measured.add((test, tier))
            moved = abs(row["seconds"] - seconds) > max(0.5, 0.25 * seconds)
            rows[test, tier] = (row["cases"], row["seconds"] if moved or seconds < 0 else seconds, row["promise"])
            # A test that has moved to another tier is no longer in its old one; a sweep is in two.
            for other in {"check", "test"} - {tier} if tier != "full" else ():
                rows.pop((test, other), None)
    # What `make test` did not run of a file has become a test of `make test-all`.
    run = {test.partition("::")[0] for test, tier in measured if tier == "test"}
    for test, tier in [key for key in rows if key[1] == "test" and key not in measured]:
        if test.partition("::")[0] in run:
            rows.setdefault((test, "full"), rows.pop((test, tier)))
    return {(test, tier): row for (test, tier), row in rows.items() if test in there}


def wall(rows, tiers):
    """The seconds that the tests of these tiers take on two workers, which take file after file, the longest ones first."""
    files = defaultdict(float)
    for (test, tier), (_, seconds, _) in rows.items():
        if tier in tiers:
            files[test.partition("::")[0]] += seconds
    ends = [0.0] * WORKERS
    for seconds in sorted(files.values(), reverse=True):
        heapq.heapreplace(ends, ends[0] + seconds)
    return START_S + max(ends)


def check(rows):
    wrong = []
    listed = {test for test, _ in rows}
    for test in sorted(defined() - listed):
        wrong.append(f"{test} has no row: run it, then make costs")
    for test in sorted(listed - defined()):
        wrong.append(f"{test} has a row and is no test: make costs")
    for tier, (bound, tiers) in BOUNDS.items():
        seconds = wall(rows, tiers)
        say(f"make {tier}: {seconds:.0f} of {bound} s on {WORKERS} cores, by tests/costs.tsv")
        if seconds > bound:
            dear = sorted(((row[1], test) for (test, of), row in rows.items() if of in tiers), reverse=True)[:10]
            wrong.append(f"`make {tier}` would take longer than {bound} s. Its dearest tests:")
            wrong += [f"  {took:6.1f} s  {test}" for took, test in dear]
    if wrong:
        raise Failure("\n".join(wrong))


def costs():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--take", action="store_true", help="take over what the last runs measured")
    rows = read()
    if parser.parse_args().take:
        rows = take(rows)
        write(rows)
    check(rows)


if __name__ == "__main__":
    main(costs)
