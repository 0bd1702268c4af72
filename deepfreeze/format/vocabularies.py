"""The named value ``vocabularies`` of a structure: which vocabulary each lookup of the model had. No weights file has a vocabulary, and
with another one of the same size the rows of an embedding mean other words.

    "vocabularies": [{"hash": "9f86d081...", "layer": "text_vectorization", "words": 20000}, ...]
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deepfreeze.format.strict_json import MAX_INT, is_printable

VOCABULARIES = "vocabularies"


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of one ``layer`` (its name): the number of its ``words``, and their ``hash`` (SHA-256, 64 hexadecimal digits)."""

    layer: str
    words: int
    hash: str

    @classmethod
    def of(cls, layer: str, words: Iterable[object]) -> Vocabulary:
        """``words``: in the order of their numbers. The hash is of each word's text in UTF-8, with its length in bytes and a colon before
        it: of b"3:cat3:dog" for two words."""
        digest, count = hashlib.sha256(), 0
        for word in words:
            text = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogatepass")
            digest.update(b"%d:%s" % (len(text), text))
            count += 1
        return cls(layer, count, digest.hexdigest())

    def to_json(self) -> dict[str, Any]:
        """The element of the named value."""
        return {"hash": self.hash, "layer": self.layer, "words": self.words}


def to_values(vocabularies: Sequence[Vocabulary]) -> dict[str, Any]:
    """The named values of a structure: empty for a model without vocabularies."""
    return {VOCABULARIES: [one.to_json() for one in vocabularies]} if vocabularies else {}


def of_values(values: Mapping[str, Any]) -> list[Vocabulary]:
    """The vocabularies among the named ``values`` of a structure. Empty for a structure that has none, and for a form that this version
    does not know."""
    found = []
    items = values.get(VOCABULARIES)
    for item in items if isinstance(items, list) else ():
        layer, words, digest = (
            (item.get(key) for key in ("layer", "words", "hash")) if isinstance(item, dict) else (None,) * 3
        )
        if not isinstance(layer, str) or not is_printable(layer) or not isinstance(digest, str):
            continue
        if type(words) is int and 0 <= words <= MAX_INT:
            found.append(Vocabulary(layer, words, digest))
    return found


def differing(saved: Sequence[Vocabulary], own: Sequence[Vocabulary]) -> list[tuple[Vocabulary, Vocabulary]]:
    """(saved, own) of each layer that has another vocabulary than it had. Layers are paired by name, and those whose names only one side
    has in order, if both sides have as many of them: Keras numbers layers without a name (``string_lookup_1``), in each process and for
    each model anew. For that reason too nothing differs if all layers have the same vocabularies in the same order. What has no partner
    is left out."""
    if [one.hash for one in saved] == [one.hash for one in own]:
        return []
    by_name = {one.layer: one for one in saved}
    pairs = [(by_name[one.layer], one) for one in own if one.layer in by_name]
    named = {one.layer for _, one in pairs}
    left = [[one for one in side if one.layer not in named] for side in (saved, own)]
    if len(left[0]) == len(left[1]):
        pairs += zip(*left, strict=True)
    return [(theirs, mine) for theirs, mine in pairs if theirs.hash != mine.hash]
