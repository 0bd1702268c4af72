"""`make docs`: builds the documents as a static site, build/docs/index.html. Needs no .venv: Sphinx and the packages that it imports go
into .venv-docs, which is made once.

A link to a page, an anchor or a picture that does not exist is an error, as is any other warning of Sphinx. Links out of the project
are not followed, because clusters and CI may be offline."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

import system
from project import BUILD, ROOT, Failure, main, run_logged, say

LOCK = ROOT / "tools" / "docs.lock"
VENV = ROOT / ".venv-docs"
STAMP = VENV / ".packages"
PYTHON = VENV / "bin" / "python"
SITE = BUILD / "docs"
ADVICE = "Is there a network? Delete .venv-docs to begin anew."
PROBE = "import furo, google_crc32c, h5py, myst_parser, numpy, rich, sphinx"


def fingerprint():
    return f"{sys.version_info.major}.{sys.version_info.minor} {hashlib.sha256(LOCK.read_bytes()).hexdigest()}"


def ready():
    return STAMP.is_file() and STAMP.read_text() == fingerprint() and PYTHON.exists()


def install():
    shutil.rmtree(VENV, ignore_errors=True)
    absent = system.missing()
    if "venv" in absent and not system.install([system.PACKAGES["venv"]]):
        raise Failure(f"{absent['venv']}\nOn Debian or Ubuntu: sudo apt-get install {system.PACKAGES['venv']}")
    run_logged([sys.executable, "-m", "venv", VENV], "docs.log", "Is the project's folder writable?")
    (VENV / ".gitignore").write_text("*\n")
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    run_logged([*pip, "install", "--no-deps", "--only-binary", ":all:", "-r", LOCK], "docs.log", ADVICE)
    run_logged([*pip, "check"], "docs.log", f"{LOCK.name} lacks a package.")
    run_logged([PYTHON, "-c", PROBE], "docs.log", f"A package in {LOCK.name} does not work on this machine.")
    STAMP.write_text(fingerprint())


def build():
    # Nothing of the user's own environment, and nothing that needs the engine.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    shutil.rmtree(SITE, ignore_errors=True)
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--fresh-env", "--builder", "html"]
    site = [PYTHON, "-m", "sphinx", *options, "--doctree-dir", BUILD / "doctrees", ROOT / "docs", SITE]
    for command in ([PYTHON, ROOT / "docs" / "conf.py"], site):
        if subprocess.run(list(map(str, command)), cwd=ROOT, env=env, stdin=subprocess.DEVNULL, check=False).returncode:
            raise Failure("the documents: see above")
    say(f"the documents: {os.path.relpath(SITE / 'index.html')}")


def docs():
    if sys.version_info < system.PYTHON:
        system.check()  # says what is needed
    BUILD.mkdir(exist_ok=True)
    # Two at once in one clone: the second waits.
    with open(BUILD / "docs.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready():
            say("making .venv-docs and installing the pinned packages (half a minute, once)")
            install()
        build()


if __name__ == "__main__":
    main(docs)
