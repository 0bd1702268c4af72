"""What a user reads when the native engine is missing or of another version."""

from __future__ import annotations

import pickle
import shutil
import struct
from pathlib import Path

import pytest

import veloc_bindings
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


def soname(library: Path) -> str | None:
    """The name under which a program looks for this library (ELF of 64 bits, little-endian) at run time if it was linked with it."""
    elf = library.read_bytes()
    (table,), (count,) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<H", elf, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, table + 64 * number) for number in range(count)]
    ((*_, begin, nbytes, link, _, _, _),) = (section for section in sections if section[1] == 6)  # SHT_DYNAMIC
    names = sections[link][4]
    for at in range(begin, begin + nbytes, 16):
        tag, value = struct.unpack_from("<qQ", elf, at)
        if tag == 14:  # DT_SONAME
            return elf[names + value : elf.index(b"\0", names + value)].decode()
    return None


def test_programs_find_the_library_by_the_name_of_its_file():
    """Without a SONAME a program would look where the library was when it was linked. A name with a version would have to be a second
    file, and a wheel has no links. So what tells versions apart is ``df_abi_version``."""
    library = Path(veloc_bindings.__file__).with_name(_library.NAME)
    if not library.exists():
        pytest.skip("the engine is elsewhere")
    assert soname(library) == library.name


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
