"""The first process of a sandbox (tests/support/cluster.py): three nodes train, one of them is lost, the job goes on with three and then
with two. three_nodes.py FOLDER EVERY prints what every attempt began with, and what every checkpoint's check has found, as JSON."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import deepfreeze
from deepfreeze.events.event_files import EventFiles
from deepfreeze.inspect.verify import verify
from tests.support.cluster import Cluster
from tests.support.horovod import case

ALL = ["node1", "node2", "node3"]


def newest(run):
    """The newest committed step; 0 if there is none."""
    found = deepfreeze.latest(run) if (run / "run.json").exists() else None
    return 0 if found is None else found.step


def main(folder, every):
    cluster = Cluster(folder, len(ALL))
    run = cluster.store / "run"

    def training(steps, pause):
        options = {"api": "keras", "kind": "dense", "every": every, "keep": 999, "folder": cluster.store, "out": folder}
        return case("ranks", steps=steps, pause=pause, **options)

    with cluster.job(ALL, *training(1000, 0.2)) as job:
        job.until(lambda: newest(run) >= 2 * every)
        cluster.kill("node2")
        lost_at = newest(run)
    cluster.boot("node2")
    for nodes in (ALL, ["node1", "node3"]):
        with cluster.job(nodes, *training(newest(run) + 2 * every, 0)) as job:
            assert job.wait() == 0, job.tails()
    begun = [event for event in EventFiles(run).new() if event["kind"] == "attempt"]
    steps = [info.step for info in deepfreeze.checkpoints(run)]
    print(
        json.dumps(
            {
                "lost at": lost_at,
                "attempts": [[one["ranks"], one["host"], one.get("resumed")] for one in begun],
                "steps": steps,
                "sound": [verify(run, step).ok for step in steps],
                "left": sorted(path.name for path in run.glob("*.partial-*")),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
