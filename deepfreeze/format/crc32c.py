"""CRC32C, the checksum of all files (docs/format.md). ``extend`` and ``value`` are those of the package google-crc32c where it is
installed, and are computed with numpy elsewhere.

How numpy computes it: CRC32C is a 32-bit shift register that takes in the data byte by byte. The register is a linear function of the
data, with exclusive or as the sum: register(A then B) = advance(register(A), len(B)) xor register(B), where ``advance`` shifts a
register over that many zero bytes. A block of N words is therefore folded: each word of its first half is advanced over half a block,
and xored with the word of the second half at the same place. All words of a half are handled by one numpy operation, and after log2(N)
folds one word is left.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, lowest bit first
_ONES = 0xFFFFFFFF
_BLOCK = 1 << 18  # bytes folded at a time; they stay in the processor's cache


def extend_by_numpy(crc: int, data: Any) -> int:
    """The checksum of some bytes followed by ``data``, where ``crc`` is the checksum of these bytes (0 of none). ``data`` is any
    object with a contiguous buffer."""
    view = memoryview(data)
    if view.nbytes == 0:
        return crc
    whole, state = np.frombuffer(view, np.uint8), crc ^ _ONES
    for at in range(0, len(whole), _BLOCK):
        state = _register_after(state, whole[at : at + _BLOCK])
    return state ^ _ONES


def value_by_numpy(data: Any) -> int:
    """The checksum of ``data``."""
    return extend_by_numpy(0, data)


def _register_after(state: int, data: np.ndarray) -> int:
    """The register after one block of bytes (uint8, shape ``(nbytes,)``), if it was ``state`` before."""
    if len(data) < 4:
        for byte in data.tolist():
            state = int(_byte_table()[(state ^ byte) & 0xFF]) ^ state >> 8
        return state
    # The register is xored into the first word. Zeros in front of that word change nothing: they fill up to a power of two.
    folds = (-(-len(data) // 4) - 1).bit_length()
    padded = np.zeros(4 << folds, np.uint8)
    begin = len(padded) - len(data)
    padded[begin:] = data
    padded[begin : begin + 4] ^= np.frombuffer(state.to_bytes(4, "little"), np.uint8)
    words = padded.view("<u4")
    for fold in reversed(range(folds)):
        half = len(words) // 2
        words = _advanced(words[:half], _tables(fold)) ^ words[half:]
    return int(_advanced(words, _tables(0))[0])


def _advanced(words: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """The registers ``words`` (uint32, shape ``(words,)``) after the number of zero bytes that ``tables`` are made for."""
    parts = words.view(np.uint8).reshape(-1, 4)
    registers = tables[0].take(parts[:, 0])
    for byte in (1, 2, 3):
        registers ^= tables[byte].take(parts[:, byte])
    return registers


@functools.cache
def _tables(fold: int) -> np.ndarray:
    """Tables (uint32, shape ``(4, 256)``) that advance a register over ``4 << fold`` zero bytes: ``tables[byte, value]`` is the
    register after them, if its byte number ``byte`` was ``value`` and the other three bytes were 0."""
    single = 1 << np.arange(32, dtype="<u4")
    if fold:
        images = _advanced(_advanced(single, _tables(fold - 1)), _tables(fold - 1))
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
def _byte_table() -> np.ndarray:
    """A table (uint32, shape ``(256,)``) that advances a register over one zero byte, by the value of its lowest byte."""
    # The highest byte moves down to the lowest place over three zero bytes: over four, it is advanced by the one that is left.
    return _tables(0)[3]


try:
    import google_crc32c

    _compiled = google_crc32c.implementation != "python"  # its pure Python is a loop over bytes, slower than numpy
except ImportError:
    _compiled = False

if _compiled:
    extend, value = google_crc32c.extend, google_crc32c.value
else:
    extend, value = extend_by_numpy, value_by_numpy
