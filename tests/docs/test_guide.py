"""The user guide in docs/: its pages are in the table of contents, its links lead somewhere, its code runs, what it quotes is there.

Needs nothing of what builds the site. Run as a program (``test_guide.py FOLDER``), this file runs the pages' code; with ``ranks`` behind
the folder, the code for several ranks."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import shlex
import sys
import traceback
from pathlib import Path

import pytest

import deepfreeze
from deepfreeze.cli.main import main, parser
from deepfreeze.training.options import Options
from tests.support import processes, sources

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text() for path in sorted(DOCS.rglob("*.md"))}
GUIDE = {name: text for name, text in PAGES.items() if name.startswith("guide/") or name == "index.md"}
# A fenced block, and the comment in the line before it.
FENCE = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
LAUNCHED = "guide/cluster.md"


def blocks(text: str, language: str) -> list[tuple[str, str]]:
    """(note, body) of each block in this language."""
    return [(m["note"] or "", m["body"]) for m in FENCE.finditer(text) if m["language"] == language]


def prose(text: str) -> str:
    """The page without its code."""
    return re.sub(r"(?:^ {4}.*\n)+", "", FENCE.sub("", text), flags=re.MULTILINE)


def conf():
    spec = importlib.util.spec_from_file_location("docs_conf", DOCS / "conf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The table of contents, the links


def test_every_page_is_in_the_table_of_contents():
    listed = [f"{page}.md" for _, page in conf().ENTRY.findall(PAGES["index.md"])]
    assert sorted([*listed, "index.md"]) == sorted(PAGES)


def slugs(text: str) -> set[str]:
    """What a code host and the site call the headings."""
    headings = re.findall(r"^#{1,4} (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_and_anchor_leads_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(PAGES[page])):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        path = (DOCS / page).parent / target if target else DOCS / page
        assert path.exists(), f"{page}: {link}"
        assert not anchor or anchor in slugs(path.read_text()), f"{page}: {link}"


def test_every_picture_is_used_by_a_relative_path():
    used = {m for text in PAGES.values() for m in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)}
    assert used and all("://" not in path and not path.startswith("/") for path in used)


# Code


@pytest.mark.parametrize("page", GUIDE)
def test_python_compiles_and_its_names_exist(page):
    for _, body in blocks(GUIDE[page], "python"):
        ast.parse(body)
        used = set(re.findall(r"\bdeepfreeze\.([A-Za-z_]+)", body))
        rooms = {name for name in used if importlib.util.find_spec(f"deepfreeze.{name}") is not None}
        assert used - rooms <= set(deepfreeze.__all__), page


@pytest.mark.parametrize("page", GUIDE)
def test_shell_parses_and_its_commands_are_understood(page):
    for _, body in blocks(GUIDE[page], "bash"):
        done = processes.run(["bash", "-n"], input=body, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for words in commands(body):
            parser().parse_args(words)
    for code in re.findall(r"`deepfreeze ([a-z]+ [^`]+)`", prose(GUIDE[page])):
        if "runs/" in code:
            parser().parse_args(shlex.split(code))


def commands(body: str) -> list[list[str]]:
    """The deepfreeze commands in a shell block, as lists of arguments."""
    return [shlex.split(line, comments=True)[1:] for line in body.splitlines() if line.startswith("deepfreeze ")]


def runnable(page: str) -> list[tuple[str, str]]:
    """(language, body) of the blocks that have no note, or are a file of the tests, from the first one in Python on; of shell blocks the
    commands are run."""
    fences = [m for m in FENCE.finditer(GUIDE[page]) if (m["note"] or "file: tests/").startswith("file: tests/")]
    found = [(m["language"], m["body"]) for m in fences]
    first = next((n for n, (language, _) in enumerate(found) if language == "python"), len(found))
    return [block for block in found[first:] if block[0] == "python" or (block[0] == "bash" and commands(block[1]))]


def run_page(page: str) -> None:
    """Runs a page's blocks one after the other, and holds what they print against the comments behind it."""
    said: list[str] = []
    space = {"print": lambda *values: said.append(" ".join(map(str, values)))}
    first, *rest = runnable("guide/start.md")
    for language, body in [first, *(rest if page == "guide/start.md" else runnable(page))]:
        if language == "bash":
            for words in commands(body):
                assert main(words) == 0, words
            continue
        said.clear()
        exec(compile(body, page, "exec"), space)
        wanted = re.findall(r"^ *print\(.*\)  # (.*)$", body, re.MULTILINE)
        assert said == wanted, f"{page} says {wanted}, and the code {said}"


def run_pages(folder: Path) -> None:
    """Each page in a directory of its own; what went wrong, by page, in results.json."""
    results = {}
    for number, page in enumerate(page for page in GUIDE if runnable(page)):
        here = folder / str(number)
        (here / "runs").mkdir(parents=True)
        os.chdir(here)
        try:
            run_page(page)
            results[page] = None
        except BaseException:
            results[page] = traceback.format_exc()
    (folder / "results.json").write_text(json.dumps(results))


RANKED = [(page, body) for page, text in GUIDE.items() for note, body in blocks(text, "python") if note == "on ranks"]


def run_ranked(folder: Path) -> None:
    """The blocks for several ranks, each with the model and the data of the start page in a directory of its own. To be run on every
    rank."""
    import tensorflow as tf

    _, model = runnable("guide/start.md")[0]
    for number, (page, body) in enumerate(RANKED):
        here = folder / str(number)
        (here / "runs").mkdir(parents=True, exist_ok=True)
        os.chdir(here)
        space: dict[str, object] = {}
        exec(compile(model, "guide/start.md", "exec"), space)
        space["data"] = tf.data.Dataset.from_tensor_slices((space["x"], space["y"])).repeat().batch(32)
        exec(compile(body, page, "exec"), space)


BUSY_S = 600  # all pages together take 35 to 55 s on an idle machine


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All pages in one process: TensorFlow is loaded once."""
    from tests.support import jobs

    folder = tmp_path_factory.mktemp("guide")
    with jobs.job(__file__, folder) as guide:
        assert guide.wait(BUSY_S) == 0, guide.tails()
    return json.loads((folder / "results.json").read_text())


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in GUIDE if runnable(page)])
def test_the_code_runs_and_prints_what_the_page_says(page, results):
    assert results[page] is None, results[page]


@pytest.mark.full
@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.ranks
def test_the_program_for_clusters_stops_at_a_signal_and_goes_on(tmp_path):
    """The program for clusters stops at a signal to mpirun and goes on with other ranks."""
    import signal

    from tests.support import jobs

    ((_, program),) = [block for block in blocks(GUIDE[LAUNCHED], "python") if block[0] == "file: train.py"]
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "runs").mkdir()
    run = tmp_path / "runs" / "cluster"
    with jobs.job(tmp_path / "train.py", ranks=2, RUN=str(run), STEPS="1000000") as job:
        job.until(lambda: list(run.glob("step-*/manifest.json")))
        job.process.send_signal(signal.SIGUSR1)
        assert job.wait() == 75
    stopped = deepfreeze.latest(run)
    assert stopped.world_size == 2

    jobs.run(tmp_path / "train.py", RUN=str(run), STEPS=str(stopped.step + 10))
    assert (deepfreeze.latest(run).step, deepfreeze.latest(run).world_size) == (stopped.step + 10, 1)


@pytest.mark.full
@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.ranks
def test_the_code_for_several_ranks_trains_to_its_last_step(tmp_path):
    from tests.support import jobs

    jobs.run(__file__, tmp_path, "ranks", ranks=2)
    steps = {page: [] for page, _ in RANKED}
    for number, (page, _) in enumerate(RANKED):
        steps[page] += [deepfreeze.latest(run).step for run in (tmp_path / str(number) / "runs").iterdir()]
    assert steps == {"guide/coming-from-horovod.md": [24 * 250, 1000], "guide/trainings.md": []}


# What the pages quote


def test_the_help_texts_are_those_of_the_commands():
    page = PAGES["guide/cli.md"]
    current = conf().with_help(page)
    # argparse's line breaks differ between versions of Python.
    assert page.split() == current.split(), "write them anew: make docs"
    assert "### verify" in page


def test_the_page_about_extensions_shows_the_files_as_they_are():
    page = PAGES["guide/extend.md"]
    assert page == conf().with_files(page), "write them anew: make docs"
    shown = {note.removeprefix("file: ") for note, _ in blocks(page, "python") if note}
    files = {f"tests/extending/{path.name}" for path in (ROOT / "tests" / "extending").glob("*.py")}
    assert shown == {file for file in files if "/test_" not in file}


def test_every_public_name_is_in_the_reference():
    names = conf().NAME.findall(PAGES["guide/api.md"])
    own = [name for name in names if "." not in name]
    assert sorted(own) == sorted(deepfreeze.__all__), "docs/guide/api.md lists the public names"
    for room in ("data", "events", "plan", "store", "tiers"):
        public = importlib.import_module(f"deepfreeze.{room}").__all__
        # Constants are named in the page's sentences, because they have no docstring.
        assert {f"{room}.{name}" for name in public if not name.isupper()} == {
            n for n in names if n.startswith(f"{room}.")
        }


def test_every_option_that_the_guide_names_exists():
    groups = (deepfreeze.Engine, deepfreeze.Replicas, deepfreeze.Capture)
    known = {*Options.__dataclass_fields__, "every", "step"} | {
        name for group in groups for name in group.__dataclass_fields__
    }
    for page in ("guide/options.md", "guide/resume.md"):
        used = re.findall(r"`([a-z_]+)=[^`]*`", prose(GUIDE[page]))
        assert used and set(used) <= known, page
    assert set(known - {"step"}) <= set(
        re.findall(r"`(?:[A-Z][a-z]+\()?([a-z_]+)(?:=[^`]*)?`", GUIDE["guide/options.md"])
    ), "every option is there"
    tables = re.findall(r"^\|[^|]+\| (.*) \|$", GUIDE["guide/coming-from.md"], re.MULTILINE)
    kerases = {"append", "initial_epoch"}  # of CSVLogger, and of fit
    assert {name for row in tables for name in re.findall(r"`([a-z_]+)=", row)} <= known | kerases


MESSAGES = [body.strip() for _, body in blocks(GUIDE["guide/troubleshooting.md"], "text")]


def in_order(words: list[str], text: str) -> bool:
    end = 0
    for word in words:
        begin = text.find(word, end)
        if begin < 0:
            return False
        end = begin + len(word)
    return True


def unsaid(message: str) -> list[str]:
    """The parts of a message that the sources don't say. One function says all of them; or others say the long ones among
    them, two at most: ``found`` may carry what the engine said, as of rank 0. Within a part the words come in their order."""
    said = re.sub(r"^.*?: expected ", "", message.lower())  # where it happened differs too
    parts, long = {}, set()
    # <...> is what differs from case to case; the parts are joined by errors.py and native/base/status.cc.
    for part in re.split(r"; (?:found )?|^found |\. (?=\S)|\n", said):
        fixed = [words.strip(" .:;,()") for words in re.split(r"<[^<>]*>", part)]
        fixed = [words for words in fixed if len(words) > 1]
        if fixed:
            parts[part] = fixed
            long |= {part} if sum(map(len, fixed)) >= 12 else set()
    if not long:
        return ["a part that is long enough to be looked for"]
    found = {frozenset(p for p, fixed in parts.items() if in_order(fixed, place)) for place in sources.places()}
    others = [one | other for one in found for other in found]
    ways = (parts.keys() - own - (other & long) for own in found if own & long for other in others)
    return sorted(min(ways, key=len, default=long))


def test_every_message_is_one_that_the_sources_can_say():
    assert len(MESSAGES) > 80
    assert {message: missing for message in MESSAGES if (missing := unsaid(message))} == {}


@pytest.mark.parametrize(
    "message",
    [
        "<runs/nt3>: expected directories or nothing above it; found <runs>, a fire. Choose another path, or move that fire away.",
        "<runs/nt3>: expected nothing above it or directories; found <runs>, a file. Choose another path, or move that file away.",
        "<...>: expected Keras on TensorFlow; found step <15>. Make the variables attributes of a tf.Module.",
        "step <...>: saved",
        "That step",
    ],
    ids=["word", "order", "places", "short", "words"],
)
def test_another_message_is_none_that_the_sources_can_say(message):
    assert unsaid(message)


# The environment that builds the site


def test_the_site_is_built_from_exact_pins_that_agree_with_the_projects():
    locks = [(ROOT / "tools" / name).read_text() for name in ("docs.lock", "requirements.lock")]
    pins, own = ({n.lower(): v for n, v in re.findall(r"^([\w.-]+)==([\w.]+)$", lock, re.M)} for lock in locks)
    lines = [line for line in locks[0].splitlines() if line and not line.startswith("#")]
    assert len(lines) == len(pins) > 10
    assert {name: pins[name] for name in pins if name in own and pins[name] != own[name]} == {}


if __name__ == "__main__":
    (run_ranked if "ranks" in sys.argv else run_pages)(Path(sys.argv[1]))
