"""Writes the files that fuzzing begins with, by hand from docs/format.md: python -m tests.hostile.seeds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from deepfreeze.plan.step.baselines import baselines
from deepfreeze.plan.step.step_plan_file import StepPlanFile
from tests.support import configs, files, plans, step_profiles

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native" / "fuzz" / "corpus"
PYTHON = ROOT / "tests" / "hostile" / "corpus"

HASH = "ab" * 32


def records() -> dict[str, bytes]:
    """Records."""
    many = [(64 * i, 60, i) for i in range(20)]
    found = {}
    for name, extents, private, changes in [
        ("small", [(32, 16, 1), (64, 8, 0xDEADBEEF)], b"seed", {}),
        ("nothing", [], b"", {}),
        ("private", [], bytes(range(64)), {"rank": 0, "world": 1}),
        ("whole", [(0, 4096, 7)], b"", {"rank": 0, "world": 1, "step": 2**63 - 1}),
        ("many", many, b"s" * 16, {}),
        ("overlap", [(32, 16, 0), (40, 16, 0)], b"", {}),
        ("outside", [(2**64 - 8, 16, 0)], b"", {}),
        ("largest", [(0, 2**63 - 1, 0)], b"", {"file_size": 2**63 - 1}),
        ("too large", [(0, 2**64 - 1, 0)], b"", {"file_size": 2**64 - 1}),
        ("no file", [], b"", {"file_size": 0}),
    ]:
        values = {"structure": HASH, "step": 40, "rank": 1, "world": 2, "file_size": 4096, "extents": len(extents)}
        found[name] = files.record(files.identity(**{**values, **changes}), extents, private)
    ident = files.identity(structure=HASH, step=40, rank=1, world=2, file_size=4096, extents=1)
    for name, section in _sections().items():
        found[f"2 {name}"] = files.record(ident, [(32, 16, 1)], b"seed", section)
    return found


def _sections() -> dict[str, bytes]:
    """Sections of named values."""
    return {
        "values": files.UNKNOWN,
        "no values": b"",
        "attachments": files.section(attachments=bytes(300)),
        "one value": files.section(position=b"7"),
        "order": files.section(b=b"") + files.section(a=b""),
        "twice": files.section(a=b"") * 2,
        "upper": files.section(A=b""),
        "cut": files.UNKNOWN[:-1],
    }


def slots() -> dict[str, bytes]:
    """Slots."""
    found = {}
    for name, extents, private in [
        ("small", [(32, b"a" * 16), (64, b"b" * 8)], b"seed"),
        ("nothing", [], b""),
        ("private", [], bytes(range(64))),
        ("large extent", [(0, b"x" * 10), (10, b"y" * 4096), (8190, b"z")], b"s" * 8),
    ]:
        ident = files.identity(structure=HASH, step=40, rank=1, world=2, file_size=10000, extents=len(extents))
        found[name] = files.slot(ident, extents, private)
    ident = files.identity(structure=HASH, step=40, rank=1, world=2, file_size=10000, extents=1)
    for name, section in _sections().items():
        found[f"2 {name}"] = files.slot(ident, [(32, b"a" * 16)], b"seed", section)
    found["not whole"] = bytes(4096)
    return found


def manifests() -> dict[str, bytes]:
    """Manifests."""

    def entry(rank: int, nbytes: int, extents: int = 1, private: int = 0) -> dict:
        size = 128 + 24 * extents + private + 4
        return {
            "rank": rank,
            "bytes": nbytes,
            "extents": extents,
            "private": private,
            "size": size,
            "crc32c": "00c0ffee",
        }

    def second(rank: int, nbytes: int, values: int = 0) -> dict:
        found = entry(rank, nbytes)
        size = found["size"] + 8 + values
        return {
            **{k: v for k, v in found.items() if k not in ("size", "crc32c")},
            "values": values,
            "size": size,
            "crc32c": "00c0ffee",
        }

    def made(*entries: dict, file_size: int | None = None, **changes) -> bytes:
        total = sum(e["bytes"] for e in entries) if file_size is None else file_size
        return files.manifest(
            **{"step": 40, "structure": HASH, "file_size": total, "records": list(entries), **changes}
        )

    return {
        "one": made(entry(0, 4096)),
        "two": made(entry(0, 100, 2, 8), entry(1, 65436), diverged=3),
        "many": made(*(entry(rank, 1000 + rank, 3, 16) for rank in range(12))),
        "a rank of nothing": made(entry(0, 10), entry(1, 0, 0)),
        "wrong sum": made(entry(0, 10), file_size=11),
        "wrong size": made({**entry(0, 10), "size": 1}),
        "no such day": made(entry(0, 10), created="2026-02-30T03:35:58Z"),
        "huge": made(entry(0, 2**63 - 1), step=2**63 - 1),
        "huger": made(entry(0, 2**63)),
        "nobody": made(file_size=1),
        "2 two": made(second(0, 100), second(1, 65436, 40), values="{}"),
        "2 values": made(second(0, 100, 7), values='{"from the future":[1,{"a":"}"}]}'),
        "2 logs": made(second(0, 100), values='{"logs":{"epoch":3,"step":40,"values":{"loss":0.5,"lost":"nan"}}}'),
        "2 huge logs": made(
            second(0, 100),
            values=f'{{"logs":{{"epoch":{2**63},"step":40,"values":{{"loss":1{"0" * 400}}}}},"metadata":{{"a":[1]}}}}',
        ),
        "2 position": made(
            second(0, 100), values='{"position":{"fit":0,"epoch":1,"batch":2,"batches":null,"epochs":3,"trained":7}}'
        ),
        "2 without values": made(second(0, 100)),
        "2 first entries": made(entry(0, 100), values="{}"),
        "2 wrong size": made({**second(0, 10), "size": 160}, values="{}"),
        "3": made(second(0, 100), values="{}").replace(b'"format": 2', b'"format": 3'),
    }


def structures() -> dict[str, bytes]:
    """Structures."""
    golden = files.sample().structure
    value = json.loads(golden)

    def edited(**changes) -> bytes:
        first = {**value["tensors"][1], **changes}
        tensors = [value["tensors"][0], first, *value["tensors"][2:]]
        return json.dumps({**value, "tensors": tensors}, sort_keys=True, separators=(",", ":")).encode()

    return {
        "sample": golden,
        "weights": files.sample(state="weights").structure,
        "2": files.sample(version=2).structure,
        "2 without values": golden.replace(b'"format":1', b'"format":2'),
        "2 list": files.sample(version=2).structure.replace(
            b'"values":{"from the future":[1,{"a":null}]}', b'"values":[]'
        ),
        "no tensors": json.dumps({**value, "tensors": []}, sort_keys=True, separators=(",", ":")).encode(),
        "large shape": edited(shape=[2**62, 2**62]),
        "long integer": golden.replace(b'"shape":[50,40]', b'"shape":[' + b"9" * 4000 + b"," + b"9" * 4000 + b"]"),
        "path": edited(path="../a"),
        "surrogate": golden.replace(b"dense/kernel", b"dense/\\ud800"),
        "unicode": edited(name="Dichte/\u00e4\u6f22"),
    }


def runs() -> dict[str, bytes]:
    """run.json."""
    value = {"format": 1, "run_id": files.RUN_ID, "created": files.CREATED}
    parent = {"path": "/runs/old", "run_id": "ab" * 16, "step": 40, "attempt": files.ATTEMPT}
    return {
        "run": json.dumps(value).encode(),
        "parent": json.dumps({**value, "parent": parent}).encode(),
        "version": json.dumps({**value, "format": 2}).encode(),
        "nan": json.dumps({**value, "format": float("nan")}).encode(),
        "deep": b'{"format":' + b"[" * 500 + b"]" * 500 + b"}",
    }


def model_configs() -> dict[str, bytes]:
    """configs/ATTEMPT.json."""
    layer = {
        "class_name": "Dense",
        "config": {"name": "a", "units": 3, "scale": 1e-3},
        "build_config": {"shape": [None, 4]},
    }
    return {
        "sequential": configs.config_bytes(),
        "layer": configs.config_bytes({**configs.SEQUENTIAL, "config": {"layers": [layer, layer]}}),
        "infinity": configs.config_bytes({**configs.SEQUENTIAL, "config": float("inf")}),
        "unicode": configs.config_bytes({**configs.SEQUENTIAL, "registered_name": "Dichte/\u00e4\u6f22"}),
        "no class": configs.config_bytes({"config": {}}),
    }


def plans_of_runs() -> dict[str, bytes]:
    """plan.json."""

    def plan(sections: Any, **changes: Any) -> bytes:
        return configs.sign(json.dumps({"format": 1, "run_id": files.RUN_ID, "sections": sections, **changes}).encode())

    auto = plans.section_json()
    other = {"key": {"nodes": 2}, "deep": [[1.5, None, "\u00e4"]], "rate": 1e300}
    return {
        "auto": plan({"auto": auto}),
        "none": plan({}),
        "others": plan({"from-the_future2": other, "auto": auto, "z": {"key": {}}}),
        "failures": plan({"auto": plans.section_json(mtbf=3600.0, reason="failures")}),
        "budget": plan({"budget": plans.budget_json()}),
        "budget without an interval": plan(
            {"auto": auto, "budget": plans.budget_json(auto=None, chosen=None, tried=[])}
        ),
        "no key": plan({"auto": {"interval": 2}}),
        "name": plan({"../auto": auto}),
        "list": plan([auto]),
        "infinity": configs.sign(
            f'{{"format": 1, "run_id": "{files.RUN_ID}", "sections": {{"a": {{"key": {{}}, "rate": 1e999}}}}}}'.encode()
        ),
        "version": plan({}, format=2),
        "deep": plan({"auto": {"key": json.loads("[" * 60 + "]" * 60)}}),
    }


def plans_of_steps() -> dict[str, bytes]:
    """Plans of a step, and its profile."""
    made = step_profiles.profile(windows=4, seconds=0.25)
    few = replace(made, tensors=made.tensors[-2:])

    def plan(**options: Any) -> bytes:
        of = step_profiles.plan(few, **options)
        return StepPlanFile.of(few, of, baselines(of.question, [10] * 2)).to_bytes()

    whole = json.loads(plan())
    part = whole["parts"][0]
    return {
        "profile": json.dumps(few.to_json()).encode(),
        "plan": plan(),
        "without a cycle": plan(cyclic=False, direct=True),
        "bound": plan(memory=10**9, every=2),
        "late": signed({**whole, "parts": [{**part, "write": 10**9}, *whole["parts"][1:]]}),
        "twice": signed({**whole, "parts": [part, *whole["parts"]]}),
        "unordered": json.dumps({**few.to_json(), "windows": few.to_json()["windows"][::-1]}).encode(),
    }


def signed(value: dict[str, Any]) -> bytes:
    """The bytes of a sealed file with this content."""
    return configs.sign(json.dumps({key: one for key, one in value.items() if key != "crc32c"}).encode())


def extra_states() -> dict[str, bytes]:
    """Trees of states, as a record holds them."""

    def tree(value: Any, rest: bytes = b"") -> bytes:
        header = json.dumps(value, separators=(",", ":")).encode()
        return len(header).to_bytes(8, "little") + header + rest

    def states(**objects: Any) -> dict:
        part = {"dict": [[name, value] for name, value in objects.items()]}
        return {"dict": [["objects", part], ["rng", {"dict": []}]]}

    return {
        "none": tree(states()),
        "values": tree(states(a=[1, None, True, "x", 1.5, {"float": "nan"}], b={"tuple": [1, {"tuple": []}]})),
        "array": tree(states(a={"array": ["float32", [2, 3]]}, b={"array": ["bool", []]}), bytes(25) + b"behind"),
        "bytes": tree(states(a={"bytes": 4}), b"abcd"),
        "too few": tree(states(a={"array": ["int64", [2**40, 2**40]]}), bytes(16)),
        "deep": tree(states(a=json.loads("[" * 60 + "]" * 60))),
        "long": (2**63).to_bytes(8, "little") + b"{}",
        "long shape": tree(states(a={"array": ["int8", [10**400] * 9]})),
        "dimensions": tree(states(a={"array": ["int8", [1] * 65]})),
    }


def marks_of_runs() -> dict[str, bytes]:
    """marks.json, and tags."""
    one = {"step": 40, "attempt": files.ATTEMPT, "time": 1_700_000_000, "diverged": False}
    more = {**one, "epoch": 3, "measured": 45, "metrics": {"val_loss": 0.125, "\u00e4": 1e-300}, "reason": "epoch 3"}

    def marks(*checkpoints: dict[str, Any], **changes: Any) -> bytes:
        content = {
            "format": 1,
            "run_id": files.RUN_ID,
            "rule": "Latest(2)",
            "removing": [10],
            "checkpoints": checkpoints,
        }
        return configs.sign(json.dumps(content | changes).encode())

    return {
        "none": marks(),
        "two": marks({**one, "step": 30}, more),
        "huge metric": marks({**more, "metrics": {"loss": 10**400}}),
        "no metric": marks({**more, "metrics": {"loss": True}}),
        "removing": marks(removing=[-1]),
        "tag": configs.sign(
            json.dumps({"format": 1, "run_id": files.RUN_ID, "step": 40, "attempt": files.ATTEMPT}).encode()
        ),
    }


def events_of_runs() -> dict[str, bytes]:
    """Files of events."""
    counts = {"direct_bytes": 10, "syncs": 2}
    engine = {
        "waits": 1,
        "wait_s": 0.5,
        "looks": 3,
        "pauses": 0,
        "pause_s": 0.0,
        "external": counts,
        "local": counts,
        "threads": {"main": 0.5},
    }
    unfinished = {
        "step": 5,
        "level": "local",
        "nbytes": 9,
        "local": 9,
        "external": 1,
        "published": False,
        "seconds": 2.5,
        "waits_for": "",
    }
    members: list[dict[str, Any]] = [
        {"kind": "attempt", "step": 0, "attempt": files.ATTEMPT, "ranks": 2, "host": "node", "pid": 7},
        {"kind": "started", "step": 1, "seconds": 12.5, "since": "process"},
        {"kind": "captured", "step": 5, "nbytes": 10},
        {"kind": "progress", "unfinished": [unfinished]},
        {"kind": "counted", "engine": engine},
        {"kind": "end", "finished": True},
    ]
    lines = [json.dumps({"v": 1, "t": 5, "m": 0.5, **one}).encode() + b"\n" for one in members]
    end = lines[-1].removesuffix(b"}\n")
    return {
        "all": b"".join(lines),
        "running": b"".join(lines[:4]),
        "torn": b"".join(lines)[:-5],
        "long line": b"x" * 500 + b"\n" + lines[0] + b"y" * 500,
        "huge": b"".join(lines).replace(b"12.5", b"1" + b"0" * 400).replace(b": 10", b": 1" + b"0" * 400),
        "deep": end + b', "error": ' + b"[" * 150 + b"]" * 150 + b"}\n",
        "raw": end.replace(b"true", b"false") + b', "error": "\\u001b[2J"}\n',
    }


SEEDS = {
    NATIVE / "record": records, NATIVE / "slot": slots, NATIVE / "manifest": manifests,
    PYTHON / "structure": structures, PYTHON / "run": runs,
    PYTHON / "config": model_configs, PYTHON / "extras": extra_states, PYTHON / "plan": plans_of_runs,
    PYTHON / "step": plans_of_steps, PYTHON / "marks": marks_of_runs, PYTHON / "events": events_of_runs,
}  # fmt: skip


def write() -> None:
    """All of them; what a fuzzer found since stays."""
    for folder, make in SEEDS.items():
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in make().items():
            (folder / f"seed-{name.replace(' ', '-')}").write_bytes(data)


if __name__ == "__main__":
    write()
