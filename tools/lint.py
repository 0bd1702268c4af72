"""`make lint`: the checks that take seconds: formats, style, types, and whether the tests stay within their time."""

import costs
from checks import native_sources, run, tool
from project import ROOT, main

PACKAGES = ("deepfreeze", "veloc_bindings")
FOLDERS = [
    name
    for name in (*PACKAGES, "benchmarks", "docs", "examples", "tests", "tools", "setup.py")
    if (ROOT / name).exists()
]


def python_style():
    tool("ruff", "check", *FOLDERS)
    tool("ruff", "format", "--check", *FOLDERS)


def python_types():
    tool("mypy", *(argument for package in PACKAGES for argument in ("-p", package)))


def native_style():
    benchmarks = sorted((ROOT / "benchmarks").glob("*.cc"))
    tool("clang-format", "--dry-run", "-Werror", *native_sources(".h", ".cc", ".cpp", ".c"), *benchmarks)


CHECKS = {
    "ruff": python_style,
    "mypy": python_types,
    "clang-format": native_style,
    "time of the tests": lambda: costs.check(costs.read()),
}

if __name__ == "__main__":
    main(lambda: run("lint", CHECKS))
