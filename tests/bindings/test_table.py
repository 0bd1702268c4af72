"""The one table of the C interface, held against the public header."""

from __future__ import annotations

import ctypes as c
import os
import re
from pathlib import Path

import pytest

from veloc_bindings import _table

pytestmark = pytest.mark.usefixtures("library")

HEADERS = Path(__file__).resolve().parents[2] / "native" / "include" / "deepfreeze"
TEXT = re.sub(r"/\*.*?\*/", "", "".join(path.read_text() for path in sorted(HEADERS.iterdir())), flags=re.S)

SCALARS = {
    "int": c.c_int,
    "int32_t": c.c_int32,
    "uint32_t": c.c_uint32,
    "int64_t": c.c_int64,
    "uint64_t": c.c_uint64,
    "uint8_t": c.c_uint8,
    "size_t": c.c_size_t,
    "double": c.c_double,
    "char": c.c_char,
}


def as_ctypes(declaration: str) -> tuple[str, type]:
    """("n", c_size_t) for "size_t n", and so on; the name is empty for a bare type."""
    words = re.fullmatch(r"(?:const\s+)?(\w+)\s*((?:\*\s*(?:const\s*)?)*)(\w*)\s*(?:\[(\d+)\])?", declaration.strip())
    assert words, declaration
    base, stars, name, length = words.groups()
    stars = "".join(re.findall(r"\*", stars))
    if stars:
        if base == "void" or base == "df_engine":
            kind = c.c_void_p if stars == "*" else c.POINTER(c.c_void_p)
        elif base == "char":
            kind = c.c_char_p
        else:
            kind = c.POINTER(_table.STRUCTS.get(base) or SCALARS[base])
    else:
        kind = _table.STRUCTS.get(base) or SCALARS[base]
    return name, kind * int(length) if length else kind


def functions() -> dict[str, tuple[type, list[type]]]:
    found = {}
    for result, stars, name, arguments in re.findall(
        r"DF_API\s+((?:const )?\w+)\s*(\**)\s*(df_\w+)\((.*?)\);", TEXT, re.S
    ):
        kinds = []
        for argument in arguments.split(",") if arguments.strip() != "void" else []:
            _, kind = as_ctypes(argument)
            if isinstance(kind, type) and issubclass(kind, c.Array):  # an array argument is a pointer
                kind = c.POINTER(kind._type_)
            kinds.append(kind)
        found[name] = (as_ctypes(result + stars)[1], kinds)
    return found


def enum(name: str) -> dict[str, int]:
    """The constants of an enum of the header, with their numbers."""
    (body,) = re.findall(rf"typedef enum {name} \{{(.*?)\}}", TEXT, re.S)
    return {constant: int(value) for constant, value in re.findall(r"\b(DF_[A-Z_]+) = (\d+)", body)}


def test_every_function_is_in_the_table_with_its_types():
    assert functions() == _table.FUNCTIONS
    assert len(re.findall(r"\bdf_\w+\(", TEXT)) == len(_table.FUNCTIONS)


def test_every_struct_has_the_header_s_fields_in_order():
    found = {}
    for name, body in re.findall(r"typedef struct (df_\w+) \{(.*?)\}", TEXT, re.S):
        found[name] = [as_ctypes(field) for field in body.split(";") if field.strip()]
    assert found == {name: list(struct._fields_) for name, struct in _table.STRUCTS.items()}


def test_every_constant_has_the_header_s_value():
    found = {name: int(value) for name, value in re.findall(r"\b(DF_[A-Z_]+) = (\d+)", TEXT)}
    found["DF_ABI_VERSION"] = int(re.search(r"#define DF_ABI_VERSION (\d+)", TEXT)[1])
    assert found == _table.CONSTANTS


REQUIRED = _table.COptions.local_dir.offset  # bytes that every caller has


class NewerOptions(c.Structure):
    """The options of a caller who knows one more."""

    _fields_ = [*_table.COptions._fields_, ("later", c.c_uint64)]


def opened(
    library: str, run: Path, kind: type[c.Structure] = _table.COptions, size: int | None = None, **fields
) -> tuple[int, str]:
    """Opens an engine with ``size`` bytes of options and closes it; the code, and the message."""
    from veloc_bindings import _library

    loaded = _library.load_from(Path(library))
    least = {"world": 1, "file_size": 4096, "run_dir": os.fsencode(run)}
    options = kind(struct_size=c.sizeof(kind) if size is None else size, **least | fields)
    # Behind the bytes that the caller has, nothing can be read.
    exact = (c.c_char * options.struct_size).from_buffer_copy(bytes(options)[: options.struct_size])
    handle = c.c_void_p()
    code = loaded.df_engine_open(c.cast(exact, c.POINTER(_table.COptions)), c.byref(handle))
    message = loaded.df_error().decode()
    if handle:
        count = c.c_uint32()
        loaded.df_engine_room(handle, c.byref(count))
        message += f"room for {count.value}"
        loaded.df_engine_close(handle)
    return code, message


@pytest.mark.parametrize("size", range(REQUIRED, c.sizeof(_table.COptions), 8))
def test_options_that_an_older_caller_lacks_have_defaults(library, tmp_path, size):
    whole = {"in_flight": 1, "slots": 1, "writers": 1, "chunk_bytes": 4096, "commit_timeout_ms": 1000}
    given = size > _table.COptions.in_flight.offset
    assert opened(library, tmp_path, size=size, **whole) == (_table.OK, f"room for {1 if given else 2}")


def test_an_option_that_the_library_does_not_know_is_refused(library, tmp_path):
    numbers = {"in_flight": 1, "slots": 1, "writers": 1, "chunk_bytes": 4096}
    assert opened(library, tmp_path, NewerOptions, **numbers) == (_table.OK, "room for 1")
    code, message = opened(library, tmp_path, NewerOptions, later=1 << 56, **numbers)
    assert code == _table.INVALID and "one more that is set" in message


@pytest.mark.parametrize("size", [0, 8, REQUIRED - 8, REQUIRED + 4, 1 << 20])
def test_a_size_that_no_caller_s_options_have_is_refused(library, tmp_path, size):
    options = _table.COptions(struct_size=size, world=1, file_size=4096, run_dir=os.fsencode(tmp_path))
    from veloc_bindings import _library

    loaded = _library.load_from(Path(library))
    assert loaded.df_engine_open(c.byref(options), c.byref(c.c_void_p())) == _table.INVALID
    assert b"struct_size" in loaded.df_error()


def test_a_backend_that_the_library_does_not_have_is_refused(library, tmp_path):
    numbers = {"in_flight": 1, "slots": 1, "writers": 1, "chunk_bytes": 4096}
    code, message = opened(library, tmp_path, backend=1, **numbers)
    assert code == _table.INVALID and "no backend 1" in message


def test_options_have_no_gaps():
    """In a gap an older caller has any bytes, and a later field would take them for its value."""
    assert sum(c.sizeof(kind) for _, kind in _table.COptions._fields_) == c.sizeof(_table.COptions)


def test_every_function_is_exported(library):
    exported = c.CDLL(library)
    assert [name for name in _table.FUNCTIONS if not hasattr(exported, name)] == []
