"""An option of the engine is declared once in Python (``Engine``) and once in C (``df_options``)."""

from dataclasses import fields, replace

import pytest

from deepfreeze.engine.backend import Opening
from deepfreeze.engine.backends.embedded.backend import EmbeddedBackend
from deepfreeze.engine.options import Engine
from deepfreeze.engine.target import Target
from veloc_bindings._options import c_options

OPENING = Opening(target=Target("/run", "1" * 32, "2" * 32), structure=b"3" * 32, file_size=1)
# Those that another word of df_options tells, or none: training itself skips and replaces.
ELSEWHERE = {"io": ("buffered", "cached", 1), "when_full": ("skip", None, None)}
VALUES = {
    "in_flight": 5,
    "slots": 6,
    "writers": 7,
    "chunk_bytes": 8192,
    "nice": 9,
    "rate": 1 << 21,
    "uncommitted": 11,
    "transfers": 10,
}


@pytest.mark.parametrize("name", [one.name for one in fields(Engine)])
def test_every_option_of_the_user_reaches_the_engine(monkeypatch, name):
    given = {}
    monkeypatch.setattr(EmbeddedBackend, "__init__", lambda self, in_memory, **options: given.update(options))
    value, field, in_c = ELSEWHERE.get(name) or (VALUES[name], name, VALUES[name])
    engine = replace(Engine(uncommitted=12), **{name: value})
    EmbeddedBackend.of(replace(OPENING, engine=engine))
    options = c_options(**given)
    if field is not None:
        assert getattr(options, field) == in_c
