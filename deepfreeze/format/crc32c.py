"""CRC32C, the checksum of all files (docs/format.md): google-crc32c's where that is installed, else numpy's arithmetic.

A checksum is linear: those of parts, each carried over the bytes behind it, add up (by exclusive or) to that of the whole. So a block
is folded in halves until one word is left, the first half of each fold carried over the second, all words of it at once.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, lowest bit first
_ONES = 0xFFFFFFFF
_BLOCK = 1 << 18  # bytes; what is folded stays in the cache


def extend_by_numpy(crc: int, data: Any) -> int:
    """The checksum of what ``crc`` is the checksum of, and ``data`` behind it: any object with contiguous bytes."""
    view = memoryview(data)
    if view.nbytes == 0:
        return crc
    whole, state = np.frombuffer(view, np.uint8), crc ^ _ONES
    for at in range(0, len(whole), _BLOCK):
        state = _over(state, whole[at : at + _BLOCK])
    return state ^ _ONES


def value_by_numpy(data: Any) -> int:
    """The checksum of ``data``."""
    return extend_by_numpy(0, data)


def _over(state: int, data: np.ndarray) -> int:
    """The register after one block, which began with ``state``."""
    if len(data) < 4:
        for byte in data.tolist():
            state = int(_byte()[(state ^ byte) & 0xFF]) ^ state >> 8
        return state
    # What the register holds is added to the first word; zeros in front of it change nothing.
    folds = (-(-len(data) // 4) - 1).bit_length()
    padded = np.zeros(4 << folds, np.uint8)
    begin = len(padded) - len(data)
    padded[begin:] = data
    padded[begin : begin + 4] ^= np.frombuffer(state.to_bytes(4, "little"), np.uint8)
    words = padded.view("<u4")
    for fold in reversed(range(folds)):
        half = len(words) // 2
        words = _carried(words[:half], _tables(fold)) ^ words[half:]
    return int(_carried(words, _tables(0))[0])


def _carried(words: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """Each word's register after as many zero bytes as the tables are for."""
    parts = words.view(np.uint8).reshape(-1, 4)
    found = tables[0].take(parts[:, 0])
    for byte in (1, 2, 3):
        found ^= tables[byte].take(parts[:, byte])
    return found


@functools.cache
def _tables(fold: int) -> np.ndarray:
    """What each value of each byte of a register becomes over 4 << fold zero bytes."""
    single = 1 << np.arange(32, dtype="<u4")
    if fold:
        images = _carried(_carried(single, _tables(fold - 1)), _tables(fold - 1))
    else:
        images = single
        for _ in range(32):
            images = images >> 1 ^ (images & 1) * np.uint32(_POLYNOMIAL)
    tables = np.zeros((4, 256), "<u4")
    for bit in range(32):
        byte, n = divmod(bit, 8)
        tables[byte, 1 << n : 2 << n] = tables[byte, : 1 << n] ^ images[bit]
    return tables


@functools.cache
def _byte() -> np.ndarray:
    """What each value of the lowest byte of a register becomes over one zero byte."""
    # As over four of them, of which three lie before the value.
    return _tables(0)[3]


try:
    import google_crc32c

    _compiled = google_crc32c.implementation != "python"  # which is a loop over bytes
except ImportError:
    _compiled = False

if _compiled:
    extend, value = google_crc32c.extend, google_crc32c.value
else:
    extend, value = extend_by_numpy, value_by_numpy
