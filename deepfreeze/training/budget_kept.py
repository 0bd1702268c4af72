"""The warning that a training is too short for its budget."""

from __future__ import annotations

from deepfreeze.plan.policy import Reason


def beyond(policy: str, reason: Reason, interval: int, left: int) -> str | None:
    """The message for the user if the ``interval`` that was chosen is longer than the ``left`` steps that the ``fit`` has still to train,
    because checkpoints cost so much; else None. ``policy``: its text; ``reason``: of the rank whose wish has decided."""
    terms, iteration = reason.terms, reason.profile.iteration
    if interval <= left or terms.by_budget <= left:
        return None
    share = terms.cost / (max(1, left) * iteration)
    return (
        f"every={policy}: expected an interval within the {left} steps that this fit has left; found that one checkpoint makes training "
        f"{terms.cost:.3g} s longer, so that the budget allows one every {terms.by_budget} steps. The one at the end of the fit makes "
        f'these steps {100 * share:.3g} % longer. Raise overhead=, or make checkpoints cheaper: more ranks, or state="weights"'
    )
