"""docs/benchmarks.md holds what the JSON files give, and nothing that was copied by hand."""

from __future__ import annotations

import sys
import types

import pytest

from benchmarks import docs
from benchmarks.report import ROOT, Report, span
from tests.support import processes

BEFORE = "# Figures\n\n<!-- begin fast -->\nold\n<!-- end fast -->\n\nBetween.\n\n<!-- begin slow -->\n<!-- end slow -->\nEnd.\n"
AFTER = BEFORE.replace("\nold\n", "\n\n2.0\n\n").replace("begin slow -->\n", "begin slow -->\n\n30.0\n\n")


@pytest.fixture
def document(tmp_path, monkeypatch):
    """A document of two benchmarks, beside their results."""
    for name, seconds in (("fast", 2), ("slow", 30)):
        module = types.ModuleType(f"benchmarks.{name}")
        module.tables = lambda report: span(report.find(), "time") + "\n"
        monkeypatch.setitem(sys.modules, module.__name__, module)
        report = Report(name, "")
        report.row().add("time", "s", [seconds])
        report.save(tmp_path / f"{name}.json")
    path = tmp_path / "benchmarks.md"
    path.write_text(BEFORE)
    return path


def run(document, *more):
    docs.main(["--document", str(document), "--results", str(document.parent), *more])


def test_only_what_is_between_the_markers_is_rewritten(document):
    run(document)
    assert document.read_text() == AFTER
    run(document)
    assert document.read_text() == AFTER


def test_check_names_what_differs_and_changes_nothing(document):
    with pytest.raises(SystemExit, match="not what the JSON files give: fast, slow") as caught:
        run(document, "--check")
    assert isinstance(caught.value.code, str), "a message: exit code 1"
    assert document.read_text() == BEFORE
    document.write_text(AFTER)
    run(document, "--check")
    document.write_text(AFTER.replace("30.0", "29.9"))
    with pytest.raises(SystemExit, match=r"give: slow$"):
        run(document, "--check")


@pytest.mark.parametrize("more", [[], ["--check"]])
def test_everything_that_is_missing_is_named_and_nothing_is_written(document, more):
    (document.parent / "fast.json").unlink()
    text = BEFORE + "<!-- begin unheard_of -->\n<!-- end unheard_of -->\n<!-- begin docs -->\n<!-- end docs -->\n"
    document.write_text(text)
    with pytest.raises(SystemExit) as caught:
        run(document, *more)
    lines = caught.value.code.splitlines()[1:]
    assert len(lines) == 3
    assert "fast.json is missing; python -m benchmarks.fast makes it" in lines[0]
    assert lines[1] == "unheard_of: there is no benchmark of this name"
    assert lines[2].startswith("docs: ")
    assert document.read_text() == text


def test_a_section_that_was_never_measured_stays_until_it_is(document):
    (document.parent / "fast.json").rename(document.parent / "later")
    document.write_text(BEFORE.replace("old", docs.UNMEASURED))
    run(document)
    assert document.read_text() == AFTER.replace("\n\n2.0\n\n", f"\n{docs.UNMEASURED}\n")
    (document.parent / "later").rename(document.parent / "fast.json")
    run(document)
    assert document.read_text() == AFTER


def test_a_file_that_is_no_report_is_named(document):
    for text in ("{", "{}", "[]", '{"rows": [], "surprise": 1}'):
        (document.parent / "slow.json").write_text(text)
        with pytest.raises(SystemExit, match=r"slow: .*slow\.json does not fit it"):
            run(document)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<!-- begin fast -->\n", "fast: its begin has no end"),
        ("<!-- end fast -->\n", "fast: its end follows no begin"),
        ("<!-- begin fast -->\n<!-- end slow -->\n", "slow: its end follows no begin"),
        ("<!-- begin fast -->\n<!-- begin slow -->\n<!-- end slow -->\n", "fast: its begin is followed by"),
    ],
)
def test_markers_that_are_not_in_pairs_are_refused(document, text, problem):
    document.write_text(text)
    with pytest.raises(SystemExit, match=problem):
        run(document)
    assert document.read_text() == text


def test_a_missing_document_is_named(tmp_path):
    with pytest.raises(SystemExit, match=r"nowhere\.md"):
        run(tmp_path / "nowhere.md")


def test_the_document_is_made_without_tensorflow():
    script = (
        "import sys\n"
        "from benchmarks import docs\n"
        "names = {name for name, _, _ in docs.sections(docs.DOCUMENT.read_text())}\n"
        "for name in names | {'scaling'}: __import__(f'benchmarks.{name}')\n"
        "print(sorted({'tensorflow', 'keras', 'matplotlib'} & set(sys.modules)))\n"
    )
    done = processes.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
