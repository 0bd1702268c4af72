"""Options of ``deepfreeze.Checkpoint`` as flat names and plain values, for parameters of tests and of their jobs."""

from dataclasses import fields
from typing import Any

import deepfreeze

GROUPS = {"engine": deepfreeze.Engine, "replicas": deepfreeze.Replicas, "capture": deepfreeze.Capture}
#: flat name -> (option of Checkpoint, name of the field in that option's object)
MEMBERS = {field.name: (group, field.name) for group, kind in GROUPS.items() for field in fields(kind)}


def grouped(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with those of a group in an object: {"slots": 1} becomes {"engine": Engine(slots=1)}."""
    made: dict[str, Any] = {}
    members: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        if name in MEMBERS:
            group, member = MEMBERS[name]
            members.setdefault(group, {})[member] = value
        else:
            made[name] = value
    return made | {group: GROUPS[group](**values) for group, values in members.items()}
