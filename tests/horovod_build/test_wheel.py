"""Horovod's wheel: built once, kept in the cache, and what is shown where a step fails. A small source distribution stands for Horovod's;
`make setup` builds the real one."""

import io
import json
import tarfile
import zipfile

import pytest

from deepfreeze.cli.main import main
from deepfreeze.errors import InstallError
from deepfreeze.horovod_build import source, wheel
from deepfreeze.horovod_build.target import BuildTarget
from deepfreeze.horovod_build.wheel import Builder
from tests.support import jobs
from tests.support.refusals import refused

SETUP = """
import os, sys
import setuptools
print("built with MPI" if os.environ.get("HOROVOD_WITH_MPI") else "built without MPI", flush=True)
setuptools.setup(name="horovod", version="0.28.1", packages=["horovod", "horovod.runner"])
"""
FAILING = "print('the reason', flush=True)\nraise SystemExit(3)\n"
FILES = {"horovod/__init__.py": "", "horovod/runner/__init__.py": ""}
FILES["horovod/runner/mpi_run.py"] = "flags = ['-bind-to none', '-map-by slot']\n"


def archive(folder, setup=SETUP):
    path = folder / "horovod-0.28.1.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in {**FILES, "setup.py": setup}.items():
            entry = tarfile.TarInfo(f"horovod-0.28.1/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def builder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    said = []
    yield Builder(BuildTarget.here(with_mpi=False), lambda doing, seconds: said.append(doing))
    assert "building" in said or not said


def test_a_wheel_is_built_once_and_taken_from_the_cache_after_that(tmp_path, builder):
    assert builder.cached() is None
    made = builder.build(archive(tmp_path))
    assert made.parent == builder.home and made == builder.cached() and "cache/deepfreeze/wheels" in str(made)
    assert zipfile.ZipFile(made).read("horovod/runner/mpi_run.py") == b"flags = ['--bind-to none', '--map-by slot']\n"
    assert "built without MPI" in builder.log.read_text()
    before = made.stat().st_mtime_ns
    assert builder.build(tmp_path / "nothing.tar.gz") == made and made.stat().st_mtime_ns == before
    refused(lambda: builder.build(tmp_path / "nothing.tar.gz", anew=True), InstallError, where="nothing.tar.gz")
    assert builder.cached() == made, "a build that failed takes no wheel away"


def test_a_step_that_fails_names_its_log_which_is_shown(tmp_path, builder, monkeypatch, capsys):
    error = refused(
        lambda: builder.build(archive(tmp_path, FAILING)), InstallError, where=builder.log, todo="MAKEFLAGS=-j1"
    )
    assert "while building" in error.found and "the reason" in builder.log.read_text()
    command = ["build-horovod", "--without-mpi", "--source", str(archive(tmp_path, FAILING))]
    assert main(command) == 1
    said = capsys.readouterr()
    assert "Horovod 0.28.1 for TensorFlow" in said.out and "Gloo alone" in said.out
    assert "the reason" in said.err and builder.log.name in said.err


def test_what_is_no_program_is_an_error_with_the_reason(tmp_path, builder, monkeypatch):
    monkeypatch.setattr(wheel.sys, "executable", "/nowhere/python")
    found = "no /nowhere/python that starts (No such file or directory)"
    refused(lambda: builder.build(archive(tmp_path)), InstallError, found=found)


def test_a_cached_wheel_that_does_not_start_is_built_anew(tmp_path, builder, monkeypatch):
    kept = builder.build(archive(tmp_path))
    kept.write_bytes(b"damaged")
    installed = []

    def install(self, made):
        installed.append(made.read_bytes())
        if installed[-1] == b"damaged":
            raise builder._failure("a damaged wheel", "build it anew")

    monkeypatch.setattr(Builder, "install", install)
    assert builder.make_ready(archive(tmp_path)) is False and len(installed) == 2
    assert builder.make_ready(archive(tmp_path)) is True and zipfile.is_zipfile(builder.cached())


@pytest.mark.skipif(not jobs.installed("horovod"), reason="Horovod is not installed here")
def test_a_horovod_that_is_there_is_mended_and_nothing_else_is_done(monkeypatch, capsys):
    mended = []
    monkeypatch.setattr(source, "mend", mended.append)
    assert main(["build-horovod", "--mend", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"mended": str(mended[0])} and mended[0].name == "horovod"
