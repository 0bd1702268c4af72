"""What each test costs, from ``tests/costs.tsv``: sorts the files of a run by it, and measures new figures for tools/costs.py."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiers

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "costs.tsv"
MEASURED = ROOT / "build" / "test-costs"  # one file for each tier; tools/costs.py takes them over


def function(nodeid: str) -> str:
    """The node id without the parameters in brackets."""
    return nodeid.partition("[")[0]


def read() -> dict[str, float]:
    """Seconds that each test file takes in `make test`."""
    seconds: dict[str, float] = defaultdict(float)
    for line in TABLE.read_text().splitlines()[1:] if TABLE.exists() else []:
        test, tier, _, took, _ = line.split("\t")
        if tier != "full":
            seconds[test.partition("::")[0]] += float(took)
    return seconds


def promise(item: pytest.Item) -> str:
    """The first sentence of a test's docstring, or its name as a sentence."""
    text = (getattr(item, "function", item).__doc__ or "").strip()
    words = item.name.partition("[")[0].removeprefix("test_").replace("_", " ")
    first = " ".join(text.split("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".") or words


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sorts the files that take longest to the front. At the end of a run one worker then waits for a short file only."""
    seconds = read()
    order = {path: -took for path, took in seconds.items()}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], 0.0))
    for item in items:
        asked = config.getoption("--tier")
        item.user_properties.append(("cost", (asked if asked == "full" else tiers.tier(item), promise(item))))


class Measuring:
    """A plugin that adds up the seconds that the tests of this run take."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds set-up, test and tear-down. A fixture that several tests share counts for the first of them."""
        of, said = dict(report.user_properties).get("cost", (None, ""))
        if of is None:
            return
        row = self._rows.setdefault(
            f"{function(report.nodeid)}\t{of}", {"cases": 0, "seconds": 0.0, "promise": said, "failed": False}
        )
        row["seconds"] += report.duration
        row["cases"] += report.when == "setup"
        row["failed"] |= report.failed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Writes the figures of the tests that passed. Figures of a run that may have left out some of a test's cases are not kept."""
        option, rows = session.config.getoption, self._rows
        some = option("--part") or option("keyword") or option("markexpr")
        if some or any("[" in place for place in session.config.args) or not rows:
            return
        file = MEASURED / f"{option('--tier') or 'some'}.json"
        before = json.loads(file.read_text()) if file.exists() else {}
        whole = {place for place in session.config.args if "::" not in place}
        again = {name.partition("::")[0] for name in rows} if whole else set()
        kept = {name: row for name, row in before.items() if name.partition("::")[0] not in again}
        kept |= {name: row for name, row in rows.items() if not row.pop("failed")}
        MEASURED.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(kept, indent=1))


def pytest_configure(config: pytest.Config) -> None:
    """Measures in pytest's main process, which gets the reports of all workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Measuring(), "deepfreeze-measuring")
