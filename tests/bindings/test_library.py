"""What a user reads when the native engine is missing or of another version."""

from __future__ import annotations

import pickle
import shutil

import pytest

from tests.support import processes
from veloc_bindings import LibraryError, _library

pytestmark = pytest.mark.usefixtures("library")


def refuse(path) -> LibraryError:
    with pytest.raises(LibraryError) as caught:
        _library.load_from(path)
    error = caught.value
    for part in (error.where, error.expected, error.found):
        assert part and part in str(error)
    assert error.todo[1:] in str(error) and error.where == str(path)
    return error


def test_missing_library_says_where_it_was_looked_for_and_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv(_library.VARIABLE, str(tmp_path / "none.so"))
    with pytest.raises(LibraryError) as caught:
        _library.find()
    assert caught.value.where == str(tmp_path / "none.so") and "install the package again" in caught.value.todo
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_without_the_variable_package_and_build_tree_are_searched(monkeypatch):
    monkeypatch.delenv(_library.VARIABLE, raising=False)
    beside, build = _library.candidates()
    assert beside.parent.name == "veloc_bindings" and build.parts[-3:] == ("build", "native", _library.NAME)


def test_a_file_that_is_no_library_is_refused(tmp_path):
    path = tmp_path / "text.so"
    path.write_text("not a library")
    assert "loadable" in refuse(path).expected


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")
@pytest.mark.parametrize(
    ("code", "found"), [("unsigned df_abi_version() { return 999; }", "version 999"), ("int f;", "df_abi_version")]
)
def test_a_library_of_another_version_is_refused(tmp_path, code, found):
    source, path = tmp_path / "other.cc", tmp_path / "other.so"
    source.write_text(f'extern "C" {{ {code} }}')
    processes.run(["g++", "-shared", "-fPIC", "-o", path, source], check=True)
    assert found in refuse(path).found
