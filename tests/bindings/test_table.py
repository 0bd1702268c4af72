"""The one table of the C interface, held against the public header."""

from __future__ import annotations

import ctypes as c
import re
from pathlib import Path

import pytest

from veloc_bindings import _table

pytestmark = pytest.mark.usefixtures("library")

HEADER = Path(__file__).resolve().parents[2] / "native" / "include" / "deepfreeze" / "deepfreeze.h"
TEXT = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)

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
        kind = SCALARS[base]
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


def test_a_struct_of_another_size_is_refused_by_the_library(library):
    from veloc_bindings import _library

    options = _table.COptions(struct_size=c.sizeof(_table.COptions) - 8)
    loaded = _library.load_from(Path(library))
    assert loaded.df_engine_open(c.byref(options), c.byref(c.c_void_p())) == _table.INVALID
    assert b"struct_size" in loaded.df_error()


def test_every_function_is_exported(library):
    exported = c.CDLL(library)
    assert [name for name in _table.FUNCTIONS if not hasattr(exported, name)] == []
