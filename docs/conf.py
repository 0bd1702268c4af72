"""The site: Sphinx, with pages in Markdown (MyST). ``make docs`` builds it.

The pages are plain Markdown that reads well on a code host too. What Sphinx needs beyond that is made here from what the pages say:
the table of contents from the lists of links in index.md, the reference from the lists of names in guide/api.md. Run as a program,
this file writes the commands' help texts into guide/cli.md, and the files that guide/extend.md shows into that page. Imports nothing of
Sphinx unless that calls it.
"""

import argparse
import os
import pydoc
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

import deepfreeze  # noqa: E402

project = "DeepFreeze"
version = release = deepfreeze.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}

# What the docstrings' modules import and documentation does not need.
autodoc_mock_imports = ["horovod", "keras", "mpi4py", "tensorflow", "tf_keras"]
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"
default_role = "literal"
myst_heading_anchors = 4
smartquotes = False  # what is quoted is a value to type

html_theme = "furo"
html_title = f"DeepFreeze {release}"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False

COMMANDS = DOCS / "guide" / "cli.md"
EXTENSIONS = DOCS / "guide" / "extend.md"
# Pages that stand for a file outside of docs/, which Sphinx can't read.
STANDINS = {
    "readme": ROOT / "README.md",
    "changelog": ROOT / "CHANGELOG.md",
    "contributing": ROOT / "CONTRIBUTING.md",
    "security": ROOT / "SECURITY.md",
}

ENTRY = re.compile(r"^- \[([^\]]+)\]\(([\w./-]+)\.md\)", re.MULTILINE)
NAME = re.compile(r"^- `([\w.]+)`$", re.MULTILINE)
HELP = re.compile(r"(<!-- begin help:.*?-->\n).*?(<!-- end help -->)", re.DOTALL)
FILE = re.compile(r"(<!-- file: (tests/[\w./]+) -->\n```python\n).*?^(```)$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\[[^\]]+\])\(([^):#]+)(#[^)]*)?\)")
_PLAIN = {}  # docstrings of attributes, as they were before napoleon


def contents(text):
    """index.md with a hidden table of contents for each of its lists of pages."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    trees = []
    for caption, body in zip(parts[1::2], parts[2::2], strict=True):
        pages = "\n".join(f"{title} <{page}>" for title, page in ENTRY.findall(body))
        trees.append(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n")
    return text + "".join(trees)


def reference(text):
    """guide/api.md with each name's docstring in place of its line."""
    from sphinx.ext.autodoc.mock import mock

    def directive(match):
        with mock(autodoc_mock_imports):
            value = pydoc.locate(f"deepfreeze.{match[1]}")
        kind = "autofunction"
        options = ""
        if isinstance(value, type):
            kind, options = "autoclass", "   :members:\n"
            if issubclass(value, Exception):
                kind, options = "autoexception", "   :show-inheritance:\n"
        return f"```{{eval-rst}}\n.. {kind}:: deepfreeze.{match[1]}\n{options}```\n"

    return NAME.sub(directive, text)


def relinked(text, source, page):
    """The links of ``source`` as they must be on the site's ``page``: to a page that stands for the file, if there is one. The
    site gets copies of other files that are linked to; of a link to a folder only the text stays."""
    pages = {file: DOCS / f"{name}.md" for name, file in STANDINS.items()}

    def link(match):
        text, target, anchor = match[1], Path(os.path.normpath(source.parent / match[2])), match[3] or ""
        if target.is_dir():
            return text[1:-1]
        return f"{text}({os.path.relpath(pages.get(target, target), page.parent)}{anchor})"

    return LINK.sub(link, text)


def with_help(text):
    """guide/cli.md with the help texts as the commands print them now."""
    from deepfreeze.cli.main import parser

    wanted = {"COLUMNS": "80", "NO_COLOR": "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        top = parser()
        (commands,) = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
        blocks = [f"```text\n{top.format_help().rstrip()}\n```\n"]
        blocks += [
            f"### {name}\n\n```text\n{sub.format_help().rstrip()}\n```\n" for name, sub in commands.choices.items()
        ]
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return HELP.sub(lambda match: f"{match[1]}\n{chr(10).join(blocks)}\n{match[2]}", text)


def with_files(text):
    """guide/extend.md with the files that it shows as they are now."""
    return FILE.sub(lambda match: f"{match[1]}{(ROOT / match[2]).read_text()}{match[3]}", text)


def source_read(app, name, text):
    """Sphinx has read a page."""
    page = DOCS / f"{name}.md"
    source = STANDINS.get(name, page)
    if source != page:
        text[0] = source.read_text()
        app.env.note_dependency(str(source))
    if name == "index":
        text[0] = contents(text[0])
    if name == "guide/api":
        text[0] = reference(text[0])
    text[0] = relinked(text[0], source, page)


def before_napoleon(app, what, name, value, options, lines):
    """What a docstring indents behind an empty line is code, as in Markdown; reStructuredText wants to be told."""
    found, above = [], ""
    for line in lines:
        indent, before = (len(text) - len(text.lstrip()) for text in (line, above))
        if line and found and not found[-1] and indent > before and above and not above.endswith("::"):
            found += [" " * before + "::", ""]
        found.append(line)
        above = line or above
    lines[:] = found
    _PLAIN[name] = list(found) if what in ("attribute", "data", "property") else None


def after_napoleon(app, what, name, value, options, lines):
    """Napoleon takes what stands before a colon in a one-line docstring for a type; here it never is."""
    if _PLAIN.get(name) is not None:
        lines[:] = _PLAIN[name]


def skip_member(app, what, name, value, skip, options):
    """Keras calls a callback's hooks, nobody else."""
    return True if name.startswith("on_") or name in ("set_model", "set_params") else None


def setup(app):
    """Sphinx calls this."""
    app.connect("source-read", source_read)
    app.connect("autodoc-process-docstring", before_napoleon, priority=100)
    app.connect("autodoc-process-docstring", after_napoleon, priority=900)
    app.connect("autodoc-skip-member", skip_member)


if __name__ == "__main__":
    for page, written, parts in ((COMMANDS, with_help, "help texts"), (EXTENSIONS, with_files, "files")):
        old = page.read_text()
        new = written(old)
        if new != old:
            page.write_text(new)
            print(f"      {page.relative_to(ROOT)}: {parts} written anew")
