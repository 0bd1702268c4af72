"""The direction of imports, read from the sources, and the size of modules. docs/design.md draws the layers."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import deepfreeze

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sorted(p for package in ("deepfreeze", "veloc_bindings") for p in (ROOT / package).rglob("*.py"))
NATIVE = sorted(p for p in (ROOT / "native").rglob("*") if p.suffix in (".cc", ".h"))
MOST_LINES = 450
# Extensions as a user writes them (docs/guide/extend.md), the lines that each may take, and the modules for users.
EXTENSIONS = sorted(p for p in (ROOT / "tests" / "extending").glob("*.py") if not p.name.startswith("test_"))
EXTENSION_LINES = 60
PUBLIC = ("deepfreeze", "deepfreeze.plan", "deepfreeze.events", "deepfreeze.store", "deepfreeze.tiers")

# room: the rooms that it may import besides itself
READ = {"errors", "format", "store"}
STATE = READ | {"frameworks", "state"}
ALLOWED = {
    "veloc_bindings": set(),
    "errors": set(),
    "notices": set(),
    "process_state": set(),
    "wording": set(),
    "arguments": {"errors"},
    "launch": {"arguments", "errors", "notices"},
    "candle": {"arguments", "errors", "plan", "store"},
    "format": {"errors"},
    "engine": {"arguments", "errors", "format", "notices", "process_state", "veloc_bindings"},
    # The engine commits in a directory; reading does without.
    "store": {"engine", "errors", "format", "launch", "notices"},
    "tiers": READ | {"engine", "notices"},
    "events": {"errors", "format", "store"},
    "ranks": {"errors", "launch", "notices"},
    "plan": {"arguments", "errors", "format"},
    "plan.step": {"errors", "format", "wording"},
    "state": {"errors", "format", "frameworks"},
    "frameworks": {"engine", "errors", "format", "veloc_bindings"},
    # A framework is a folder in frameworks/, which its table loads by name.
    "frameworks.*": {
        "engine",
        "errors",
        "events",
        "format",
        "frameworks",
        "plan",
        "plan.step",
        "process_state",
        "ranks",
        "state",
        "veloc_bindings",
    },
    "freeze": STATE | {"arguments", "engine", "frameworks", "notices", "plan", "ranks", "tiers"},
    "retention": READ | {"engine", "events", "freeze", "ranks", "wording"},
    "thaw": STATE | {"engine", "events", "frameworks", "plan", "ranks"},
    "matching": {"errors", "format"},
    "reuse": STATE | {"events", "frameworks", "matching", "ranks", "thaw", "wording"},
    "exports": READ | {"inspect", "thaw"},
    "inspect": READ | {"matching", "thaw"},
    "data": {"arguments", "errors", "events", "format", "launch", "notices"},
    "training": STATE
    | {
        "arguments",
        "candle",
        "engine",
        "events",
        "frameworks",
        "freeze",
        "launch",
        "notices",
        "plan",
        "plan.step",
        "process_state",
        "ranks",
        "retention",
        "thaw",
        "tiers",
        "tuning",
        "wording",
    },
    "tuning": READ | {"engine", "notices", "plan", "tiers"},
    "horovod_build": {"errors"},
    "cli": READ
    | {
        "arguments",
        "engine",
        "events",
        "exports",
        "horovod_build",
        "inspect",
        "matching",
        "notices",
        "plan",
        "plan.step",
        "thaw",
        "tiers",
        "tuning",
        "wording",
    },
    # The package itself: what it loads late, __getattr__ loads by name from a table.
    "__init__": READ | {"exports", "frameworks", "reuse", "thaw"},
    "__main__": {"cli"},
}
# Who may call the file system: the store that is a directory, the node-local tiers, and whoever writes a file of the user's own.
FILE_SYSTEM = {
    *(
        f"deepfreeze/store/{module}.py"
        for module in ("durable", "file_system", "files", "granules", "lock", "parents", "posix_ranges", "posix_store")
    ),
    *(f"deepfreeze/tiers/{module}.py" for module in ("leftovers", "local_tier", "node_memory", "tiers")),
    "deepfreeze/exports/draft.py",
    "deepfreeze/plan/step/profile.py",  # a profile that was made elsewhere
    "deepfreeze/data/iterator_state.py",  # TensorFlow writes an iterator's state into files
    "deepfreeze/state/csv_rows.py",  # the log of the user's CSVLogger
    "deepfreeze/tuning/program_run.py",  # where the runs are, for the command that has started the program
    "deepfreeze/tuning/scratch.py",  # the run that is deleted again
    "deepfreeze/ranks/nodes.py",  # the kernel's boot id
    "deepfreeze/training/first_step.py",  # the kernel's word of when this process began
    "deepfreeze/cli/main.py",  # standard output that nobody reads any more
    *(f"deepfreeze/horovod_build/{module}.py" for module in ("source", "target", "wheel")),
    "deepfreeze/cli/build_horovod.py",  # the end of a log
    *(
        f"deepfreeze/cli/{module}.py" for module in ("programs", "tune", "tune_program")
    ),  # scratch runs, with a log each
}
# What of the module os touches no file of a run.
NO_FILES = {
    "PathLike", "devnull", "environ", "fsdecode", "fspath", "get_terminal_size", "getpid", "path", "sched_getaffinity",
    "strerror",
}  # fmt: skip
# Who asks for the host name: ``nodes`` says which ranks share a machine, and the run's lock tells people where its holder is.
HOST_NAME = {"deepfreeze/ranks/nodes.py", "deepfreeze/store/lock.py"}
PATH_CALLS = re.compile(r"\.(iterdir|unlink|rename|rmdir|mkdir|(read|write)_(bytes|text)|r?glob|symlink_to|touch)\(")
# The modules outside of events/ and cli/ that write to the user, and how. The user asks for either with ``verbose=``.
WRITES = {
    "deepfreeze/state/model_config.py": {"warnings"},  # which it silences
    "deepfreeze/reuse/transfer.py": {"sys.stderr"},  # the report of a transfer
    "deepfreeze/training/wait_line.py": {"sys.stderr"},  # a line that shows the wait for the last commits
}
BIGGEST_ROOM = 0.165  # of all lines: training, which has a file for each trade of a training
MOST_PARAMETERS = 7  # of a constructor in training/
# Records of what a user has chosen, or of all circumstances of something: a field is not a thing to be wired.
RECORDS = {"Checkpoint", "Options", "Start", "Terms"}
FRAMEWORKS = {"tensorflow", "keras", "tf_keras", "horovod"}

# C++ layer: the layers it may include besides itself
INCLUDES = {
    "base": set(),
    "format": {"base"},
    "local": {"base", "format"},
    "store": {"base", "format"},
    "engine": {"base", "format", "local", "store", "deepfreeze"},
    "graph": {"base", "format", "local", "store", "engine", "deepfreeze"},
    "capi": {"base", "format", "local", "store", "engine", "graph", "deepfreeze"},
    "testing": {"base", "format", "local", "store", "engine", "graph", "capi", "deepfreeze"},
    "fuzz": {"base", "format", "local", "testing"},
    "include": {"deepfreeze"},  # the public headers: C, each other, and the standard library alone
}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def layer(module: str) -> str | None:
    """Which of this project's layers a dotted module belongs to; None if it is somebody else's."""
    first, *rest = module.split(".")
    if first == "veloc_bindings":
        return first
    if first != "deepfreeze":
        return None
    if rest[:2] == ["plan", "step"]:
        return "plan.step"
    if rest[:1] == ["frameworks"] and rest[1:2] and (ROOT / "deepfreeze" / "frameworks" / rest[1]).is_dir():
        return "frameworks.*"
    return rest[0] if rest else "__init__"


def own_layer(path: Path) -> str:
    return layer(".".join(path.relative_to(ROOT).with_suffix("").parts)) or "?"


def _typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(path: Path, *, everywhere: bool = True) -> list[str]:
    """The modules that a file imports, also inside functions unless ``everywhere`` is False; not those for types alone."""
    found: list[str] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = path.relative_to(ROOT).parent.parts
                base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [base])])
            # "from deepfreeze import callback" imports a module, "from deepfreeze.format import names" too.
            found.extend(f"{base}.{alias.name}" for alias in node.names)
        elif not _typing_only(node) and (
            everywhere or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        ):
            for child in ast.iter_child_nodes(node):
                visit(child)

    visit(ast.parse(path.read_text()))
    return found


def test_every_layer_imports_only_the_layers_below_it():
    wrong = []
    for path in PYTHON:
        mine = own_layer(path)
        assert mine in ALLOWED, f"{name(path)}: say in this test where {mine} belongs"
        for module in imports(path):
            theirs = layer(module)
            if theirs is not None and theirs != mine and theirs not in ALLOWED[mine]:
                wrong.append(f"{name(path)} ({mine}) imports {module} ({theirs})")
    assert not wrong, "\n".join(wrong)
    assert {own_layer(path) for path in PYTHON} == set(ALLOWED), "a room that is no more, or a new one"


def test_the_bindings_need_the_standard_library_alone():
    for path in PYTHON:
        if own_layer(path) == "veloc_bindings":
            others = {m.split(".")[0] for m in imports(path)} - set(sys.stdlib_module_names) - {"veloc_bindings"}
            assert not others, f"{name(path)} imports {sorted(others)}"


def test_a_framework_is_imported_in_its_own_room_alone():
    """Also inside of functions."""
    for path in PYTHON:
        used = FRAMEWORKS & {module.split(".")[0] for module in imports(path)}
        assert not used or own_layer(path) == "frameworks.*", f"{name(path)} imports {sorted(used)}"


def test_files_are_touched_behind_the_store_alone():
    """Everything else asks ``deepfreeze.store.Store``, so that a run may also be where there is no file system."""
    for path in PYTHON:
        if own_layer(path) == "veloc_bindings" or name(path) in FILE_SYSTEM:
            continue
        text = path.read_text()
        used = {
            node.attr
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
        }
        assert used <= NO_FILES, f"{name(path)} calls the file system: {sorted(used - NO_FILES)}"
        assert not PATH_CALLS.search(text), f"{name(path)} calls the file system: {PATH_CALLS.search(text)}"


def test_what_a_node_is_nodes_alone_say():
    """Two machines may have one host name."""
    asks = re.compile(r"\b(gethostname|getfqdn|nodename|uname|platform\.node|boot_id)\b")
    assert {name(path) for path in PYTHON if asks.search(path.read_text())} == HOST_NAME, "take ranks.nodes.Nodes"


def written_to(path: Path) -> set[str]:
    """The ways to write to the user that a file names."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    used = {module.split(".")[0] for module in imports(path)} | {one.id for one in nodes if isinstance(one, ast.Name)}
    used |= {
        f"{ast.unparse(one.value)}.{one.attr}" for one in nodes if isinstance(one, ast.Attribute) and "std" in one.attr
    }
    return used & {"logging", "warnings", "print", "sys.stderr", "sys.stdout"}


def test_a_room_reports_by_notices_and_events_alone():
    """What happens in a training reaches its file of events and its listeners only if nothing writes to the user by itself."""
    found = {name(path): written_to(path) for path in PYTHON if own_layer(path) not in ("events", "cli")}
    assert {path: ways for path, ways in found.items() if ways} == WRITES, "take a Notify (deepfreeze/notices.py)"


def led_to(*modules: str) -> set[str]:
    """The modules of this project that an import of these loads. AssertionError if it loads a framework."""
    files = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in PYTHON}
    seen: set[str] = set()
    ahead = list(modules)
    while ahead:
        module = ahead.pop()
        if module not in files or module in seen:
            continue
        seen.add(module)
        for other in imports(files[module], everywhere=False):
            assert other.split(".")[0] not in FRAMEWORKS, f"{module} imports {other}"
            ahead += [other, other.rpartition(".")[0]]
    return seen


def test_reading_a_checkpoint_leads_to_no_framework_and_no_engine():
    seen = led_to("deepfreeze", "deepfreeze.cli.main", "deepfreeze.inspect.verify")
    assert "deepfreeze.thaw.read" in seen and "veloc_bindings.engine" not in seen


def test_a_training_leads_to_no_framework():
    """Its model says which framework is loaded."""
    assert {"deepfreeze.training.start", "deepfreeze.tiers.rescue"} <= led_to("deepfreeze.training.training")


def test_no_room_is_named_as_a_public_function_is():
    """Importing ``deepfreeze.export.something`` would put the room in the function's place."""
    rooms = {path.parent.name for path in PYTHON if path.name == "__init__.py"} - {"deepfreeze"}
    assert rooms & set(deepfreeze.__all__) == set() and "format" in rooms


def test_no_room_is_a_cellar():
    lines: Counter[str] = Counter()
    for path in PYTHON:
        lines[own_layer(path)] += path.read_text().count("\n")
    room, most = lines.most_common(1)[0]
    assert most <= BIGGEST_ROOM * lines.total(), f"{room} has {most} of {lines.total()} lines"


def of_training() -> Iterator[tuple[Path, ast.ClassDef]]:
    """The classes in training/, each with its file."""
    for path in PYTHON:
        if own_layer(path) == "training":
            yield from (
                (path, node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
            )


def attributes_set(function: ast.FunctionDef) -> set[str]:
    """The names of the attributes of ``self`` that a method assigns."""
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    return {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "self"}


def test_a_constructor_of_a_training_takes_little_and_makes_all():
    """So that a reader finds in one place what an object knows, and no method relies on another one that was called before."""
    classes = dict.fromkeys(RECORDS, 0)
    for path, owner in of_training():
        methods = {node.name: node for node in owner.body if isinstance(node, ast.FunctionDef)}
        made = {
            node.target.id
            for node in owner.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
        made |= {
            name.id
            for node in owner.body
            if isinstance(node, ast.Assign)
            for name in node.targets
            if isinstance(name, ast.Name)
        }
        parameters = len(made) if owner.decorator_list else 0
        if "__init__" in methods:
            given = methods["__init__"].args
            parameters, made = len(given.args + given.kwonlyargs) - 1, made | attributes_set(methods["__init__"])
        where = f"{name(path)}: {owner.name}"
        if owner.name in RECORDS:
            classes[owner.name] += 1
        else:
            assert parameters <= MOST_PARAMETERS, f"{where} has {parameters} parameters"
        late = {attribute for method in methods.values() for attribute in attributes_set(method) - made}
        assert not late, f"{where} makes {sorted(late)} outside of its constructor"
    assert set(classes.values()) == {1}, "each record is a class of its own"


def test_a_part_of_a_training_knows_no_other_part():
    parts = ROOT / "deepfreeze" / "training" / "parts"
    for path in parts.glob("*.py"):
        others = [module for module in imports(path) if module.startswith("deepfreeze.training.parts")]
        assert not others or path.name == "table.py", f"{name(path)} imports {others}"


def test_the_engines_includes_go_down_only():
    wrong = []
    for path in NATIVE:
        mine = path.relative_to(ROOT / "native").parts[0]
        assert mine in INCLUDES, f"{name(path)}: say in this test where {mine} belongs"
        for header in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.MULTILINE):
            theirs = header.split("/")[0]
            if theirs != mine and theirs not in INCLUDES[mine]:
                wrong.append(f"{name(path)} includes {header}")
            if mine == "testing" and theirs == "capi" and header != "capi/default_env.h":
                wrong.append(f"{name(path)} includes {header}: tests use the C interface through deepfreeze.h")
    assert NATIVE and not wrong, "\n".join(wrong)


def test_the_engine_speaks_to_the_store_alone():
    """No stage knows in what kind of place a run is: a store without directories takes the place of the one that has them."""
    interface = {f"store/{noun}.h" for noun in ("store", "shard_writer", "meeting", "roll", "comparison")}
    chosen = {
        "engine/engine.cc": {"store/posix_store.h", "store/node_meeting.h"},
        "capi/capi.cc": {"store/posix_store.h", "store/probe.h"},
    }
    seen: set[str] = set()
    for path in NATIVE:
        mine = str(path.relative_to(ROOT / "native"))
        headers = set(re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.MULTILINE))
        theirs = {header for header in headers if header.startswith("store/")}
        if mine.startswith(("engine/", "graph/", "capi/")):
            assert theirs <= interface | chosen.get(mine, set()), f"{mine} includes {sorted(theirs - interface)}"
            seen |= theirs
        if mine in interface:
            assert theirs <= interface and "base/env.h" not in headers, f"{mine}: a file system is one implementation"
    assert "store/store.h" in seen and "store/posix_store.h" in seen


def test_no_two_files_of_the_engine_have_one_name():
    """A header and its source do, and so do a public header and the functions that it declares."""
    places = defaultdict(set)
    for path in NATIVE:
        folder = path.relative_to(ROOT / "native").parent
        places[path.stem].add("capi" if folder.parts[0] == "include" else str(folder))
    assert {stem: found for stem, found in places.items() if len(found) > 1} == {}


def test_the_engine_calls_the_system_through_its_env_alone():
    """What the sweeps over every operation don't see they prove nothing about. A thread's priority is no file."""
    calls = {"fcntl.h", "dirent.h", "sys/stat.h", "sys/mman.h", "sys/uio.h", "sys/vfs.h", "fstream", "filesystem"}
    free = {"base/posix_env.cc": calls | {"unistd.h"}, "base/thread.cc": {"unistd.h"}}
    wrong = []
    for path in NATIVE:
        mine = str(path.relative_to(ROOT / "native"))
        used = set(re.findall(r"^\s*#\s*include\s*<([^>]+)>", path.read_text(), re.MULTILINE)) & (calls | {"unistd.h"})
        if not mine.startswith(("testing/", "fuzz/")) and used - free.get(mine, set()):
            wrong.append(f"{name(path)} includes {sorted(used)}: only base/posix_env.cc talks to the system")
    assert not wrong, "\n".join(wrong)


def test_no_module_is_too_large():
    lines = {name(path): path.read_text().count("\n") for path in [*PYTHON, *NATIVE]}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}, "one noun to a module"


def private(path: Path) -> list[str]:
    """What a file uses of this project besides public names: imports, and attributes of the package, also of a module that it has given
    a name of its own. Modules are imported by import statements alone."""
    names = {module: getattr(importlib.import_module(module), "__all__", ()) for module in PUBLIC}
    public = {f"{module}.{one}" for module in PUBLIC for one in names[module]} | {*PUBLIC}
    nodes = list(ast.walk(ast.parse(path.read_text())))
    called = {"deepfreeze": "deepfreeze"}  # what a name in the file stands for
    for node in nodes:
        if isinstance(node, ast.Import):
            called |= {one.asname: one.name for one in node.names if one.asname}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            called |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    used = set()
    for node in nodes:
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            whole = f"{called.get(first, first)}.{rest}"
            if whole.startswith("deepfreeze.") and whole.rpartition(".")[0] in PUBLIC:
                used.add(whole)
    own = {
        module
        for module in imports(path)
        if module.split(".")[0] in ("deepfreeze", "veloc_bindings", "tests", "importlib")
    }
    return sorted((used | own) - public)


def test_an_extension_takes_few_lines_and_public_names():
    wrong = {name(path): private(path) for path in EXTENSIONS}
    assert wrong and not any(wrong.values()), f"a public interface lacks what an extension needs: {wrong}"
    lines = {name(path): path.read_text().count("\n") for path in EXTENSIONS}
    assert {path: count for path, count in lines.items() if count > EXTENSION_LINES} == {}, "an interface asks too much"


@pytest.mark.parametrize(
    "line",
    [
        "from deepfreeze.plan.policy import NEVER",
        "import deepfreeze.store.run",
        "from deepfreeze.events import journal",
        "import deepfreeze\nwith deepfreeze._policies() as x: pass",
        "import deepfreeze.plan\ndeepfreeze.plan.schedule.Schedule",
        "import deepfreeze.store as s\ns.run.Run",
        "from deepfreeze import store\nstore.run.Run",
        "import importlib\nimportlib.import_module('deepfreeze.store.run')",
        "from veloc_bindings import OK",
        "from tests.support import trainings",
        "from . import prime_steps",
    ],
)
def test_a_private_name_in_an_extension_is_found(line, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "tests" / "extending" / "mine.py"
    path.parent.mkdir(parents=True)
    path.write_text(line + "\n")
    assert private(path)
