"""What README.md tells people to do can be done: its commands, files, links and names exist."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import textwrap
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import tomllib

import deepfreeze
from deepfreeze.cli.main import main, parser
from tests.support import configs, files

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "README.md").read_text()
DOCS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
# Indented blocks: lines of four blanks or more, outside of the fenced ones.
INDENTED = re.findall(
    r"(?:^ {4}.*\n)+", re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
)
BLOCKS = [textwrap.dedent(block) for block in INDENTED]
INLINE = list(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", TEXT, flags=re.M | re.S)))
SNIPPETS = [body for language, body in FENCED if language == "python"] + [b for b in BLOCKS if b.startswith("model.")]
COMMANDS = [line for line in [*"".join(BLOCKS).splitlines(), *INLINE] if line and not line.startswith("model.")]


def starting(*words: str) -> list[list[str]]:
    found = [shlex.split(command) for command in COMMANDS if command.split()[: len(words)] == list(words)]
    assert found, f"README has no {' '.join(words)}"
    return found


def test_every_make_target_exists():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {word for command in starting("make") for word in command[1:] if "=" not in word}
    assert {"demo", "test"} <= wanted <= targets


def test_every_command_line_of_ours_is_understood():
    for command in starting("deepfreeze"):
        parser().parse_args(command[1:])


def test_every_command_line_of_ours_works_on_such_a_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "runs").mkdir()
    run = files.write_run(tmp_path / "runs" / "nt3")
    for step, seed in ((20, 0), (30, 1), (40, 2), (50, 3)):
        files.write_checkpoint(run, step, files.sample(seed=seed))
    configs.write_config(run)
    monkeypatch.chdir(tmp_path)
    commands = starting("deepfreeze")
    assert {command[1] for command in commands} == {"ls", "show", "verify", "diff", "export", "prune"}
    for command in commands:
        assert main(command[1:]) == 0, command
        assert capsys.readouterr().out, command
    assert [info.step for info in deepfreeze.checkpoints(run)] == [40, 50]  # what prune --yes leaves
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "nt3.weights.h5", "nt3.safetensors", "nt3.keras"}


def test_every_extra_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {e for command in starting("pip", "install") for e in re.findall(r"[a-z]+", command[2].partition("[")[2])}
    assert named and named <= set(project["optional-dependencies"])


def test_every_module_that_is_run_exists():
    for command in starting("python", "-m"):
        assert importlib.util.find_spec(command[2]), command


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: s.splitlines()[0][:30])
def test_every_snippet_compiles(snippet):
    ast.parse(snippet)


def test_every_name_of_ours_exists():
    used = set(re.findall(r"\bdeepfreeze\.([A-Za-z_]+)", "\n".join([*SNIPPETS, *INLINE])))
    assert "Checkpoint" in used
    assert used - {"core"} <= set(deepfreeze.__all__)


def test_every_option_in_the_table_is_one_of_checkpoint():
    rows = re.findall(r"^\| `(\w+)` \| `?([^`|]+?)`? \|", TEXT, re.MULTILINE)
    from deepfreeze.core.config import Options

    assert len(rows) > 5
    for option, default in rows:
        if option != "every":
            assert ast.literal_eval(default) == getattr(Options(), option), option


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        assert "://" in target or (document.parent / target).exists(), f"{document.name}: {target}"


def test_every_file_named_in_the_text_exists():
    tree = next(block for block in BLOCKS if block.startswith("deepfreeze/"))
    named = {line.split()[0] for line in tree.splitlines()} | {c for c in INLINE if re.fullmatch(r"[a-z_]+/[\w./]+", c)}
    named -= {c for c in named if c.startswith("runs/")}
    assert "native/" in named
    for path in named:
        assert (ROOT / path).exists(), path


def test_the_picture_is_well_formed():
    assert ElementTree.parse(ROOT / "docs" / "paths.svg").getroot().tag.endswith("svg")
