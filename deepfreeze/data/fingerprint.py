"""A number that tells two sources apart: after a restart training may go on only with the items with which it began."""

from __future__ import annotations

import os

import numpy as np

from deepfreeze.data.nested import leaves
from deepfreeze.data.source import Source
from deepfreeze.format import crc32c

_ITEMS = 4  # that are read


def fingerprint(source: Source) -> int:
    """The CRC32C of the number of items and of a few of them: their structure, dtypes, shapes and bytes. An item that is not the same when
    it is read twice counts without its bytes. Of files their names count, from the directory on that all of them share, so that data may
    be moved as a whole."""
    crc = crc32c.value(str(source.length).encode())
    if names := source.names:
        shared = os.path.commonprefix([min(names), max(names)]).rfind("/") + 1  # noqa: RUF071  # cut to a directory here
        return crc32c.extend(crc, "\0".join(name[shared:] for name in names).encode("utf-8", "surrogateescape"))
    for number in dict.fromkeys(np.linspace(0, source.length - 1, _ITEMS).astype(int).tolist()):
        (form, data), again = _read(source, number), _read(source, number)
        crc = crc32c.extend(crc, form + (data if (form, data) == again else b""))
    return crc


def _read(source: Source, number: int) -> tuple[bytes, bytes]:
    parts = [(path, np.asarray(leaf)) for path, leaf in leaves(source.item(number))]
    form = [f"{path} {part.dtype.str} {part.shape}" for path, part in parts]
    return "\n".join(form).encode(), b"".join(
        repr(part.tolist()).encode() if part.dtype.hasobject else part.tobytes() for _, part in parts
    )
