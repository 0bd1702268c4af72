"""A number that tells two sources apart: after a restart training may go on only with the items with which it began."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from deepfreeze.data.nested import leaves
from deepfreeze.data.source import Source
from deepfreeze.format import crc32c

_ITEMS = 4  # that are read
_NAMES = 1 << 12  # that are in memory as one text


def fingerprint(source: Source) -> int:
    """The CRC32C of the number of items and of a few of them: their structure, dtypes, shapes and bytes. An item that is not the same when
    it is read twice counts without its bytes. Of files their names count, from the directory on that all of them share, so that data may
    be moved as a whole."""
    crc = crc32c.value(str(source.length).encode())
    names = source.names()
    if names is not None:
        shared = os.path.commonprefix(_ends(names)).rfind("/") + 1  # noqa: RUF071  # cut to a directory here
        for text in _texts(name[shared:] for name in source.names() or ()):
            crc = crc32c.extend(crc, text.encode("utf-8", "surrogateescape"))
        return crc
    for number in dict.fromkeys(np.linspace(0, source.length - 1, _ITEMS).astype(int).tolist()):
        (form, data), again = _read(source, number), _read(source, number)
        crc = crc32c.extend(crc, form + (data if (form, data) == again else b""))
    return crc


def _ends(names: Iterator[str]) -> tuple[str, str]:
    """The first and the last of the ``names`` in the order of their characters."""
    first = last = next(names)
    for name in names:
        first, last = min(first, name), max(last, name)
    return first, last


def _texts(names: Iterable[str]) -> Iterator[str]:
    """The ``names``, with a null character between any two, in pieces. A list of names may have millions."""
    left, between = iter(names), ""
    while piece := list(islice(left, _NAMES)):
        yield between + "\0".join(piece)
        between = "\0"


def _read(source: Source, number: int) -> tuple[bytes, bytes]:
    parts = [(path, np.asarray(leaf)) for path, leaf in leaves(source.item(number))]
    form = [f"{path} {part.dtype.str} {part.shape}" for path, part in parts]
    return "\n".join(form).encode(), b"".join(
        repr(part.tolist()).encode() if part.dtype.hasobject else part.tobytes() for _, part in parts
    )
