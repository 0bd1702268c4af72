"""The vocabularies of a model's lookups: StringLookup, IntegerLookup, TextVectorization, those of a FeatureSpace, and every other object
that Keras saves with the model and that answers ``get_vocabulary()``, such as a tokenizer.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from deepfreeze.format.strict_json import is_printable
from deepfreeze.format.vocabularies import Vocabulary, differing
from deepfreeze.state.keras_objects import saveables
from deepfreeze.state.training_state import unique_name


def vocabularies_of(objects: Iterable[Any]) -> list[Vocabulary]:
    """The vocabulary of each lookup among the ``objects`` (see ``derived_state.objects_of``), in their order. A lookup inside of another
    one (TextVectorization has a StringLookup) is not listed. Takes about 3 s of processor time for a million words."""
    lookups = [one for one in objects if callable(getattr(one, "get_vocabulary", None))]
    inner = {key for one in lookups for key in saveables(one) if key != id(one)}
    names: set[str] = set()
    found = []
    for one in lookups:
        words = _words(one) if id(one) not in inner else None
        if words is not None:
            name = getattr(one, "name", None)
            layer = name if isinstance(name, str) and is_printable(name) else type(one).__name__
            found.append(Vocabulary.of(unique_name(layer, names), words))
    return found


def _words(lookup: Any) -> Iterable[object] | None:
    """The lookup's words, in the order of their numbers. None if it can't tell: a tokenizer raises before it is given any, and a method of
    this name may want arguments."""
    try:
        return iter(lookup.get_vocabulary())
    except Exception:
        return None


def warning_of_others(saved: Sequence[Vocabulary], own: Sequence[Vocabulary], step: int) -> str | None:
    """The message for the user of a model whose layers have other vocabularies than the ``saved`` ones, of the checkpoint of ``step``; None
    if they have the same."""
    pairs = differing(saved, own)
    if not pairs:
        return None
    parts = [f"{mine.layer!r} ({mine.words} words, and {theirs.words} in the checkpoint)" for theirs, mine in pairs]
    return (
        f"step {step} was saved with another vocabulary in {_listed(parts)}: the rows of weights that belong to words now stand for "
        "other words. Vocabularies are in no weights file: give the layer the one that it had, by set_vocabulary() or by adapt() on the "
        "same data"
    )


def warning_of_ranks(by_rank: Sequence[Sequence[Vocabulary]]) -> str | None:
    """The message for the user of a job whose ranks have different vocabularies; None if all have rank 0's."""
    for rank, own in enumerate(by_rank):
        pairs = differing(by_rank[0], own)
        if pairs:
            return (
                f"rank {rank} has another vocabulary than rank 0 in {_listed([repr(mine.layer) for _, mine in pairs])}: the ranks average "
                "gradients of weights that stand for different words. Adapt the layer on rank 0 and send its get_vocabulary() to all "
                "ranks, or have all ranks adapt it on the same data"
            )
    return None


def _listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - 3} more layers" if len(parts) > 3 else ""
    return f"layer{'s' if len(parts) > 1 else ''} {', '.join(parts[:3])}{more}"
