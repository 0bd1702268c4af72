"""The bounds within which a policy may choose the engine's setting, as they follow from a training's options and from the run's store."""

from __future__ import annotations

from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.limits import Limits
from deepfreeze.plan.pccheck import Setting
from deepfreeze.ranks.world import World, on_rank_0
from deepfreeze.retention.usage import most_kept
from deepfreeze.store import file_system
from deepfreeze.training.options import Options

_MOST_KEPT = 64  # checkpoints of which it is found out how many a rule keeps


class EngineLimits:
    """The bounds of one training."""

    def __init__(self, options: Options, run: str, waiting: int, world: World) -> None:
        """``run``: the run's directory; ``waiting``: how many checkpoints may wait for their metrics beside those that are kept."""
        self._options, self._run, self._waiting, self._world = options, run, waiting, world

    def of(self, saver: Saver) -> Limits:
        """Collective. The bounds of the engine that ``saver`` has open, the same on all ranks."""
        room = min(self._world.gather(saver.most_uncommitted))
        return on_rank_0(self._world, lambda: self._limits(saver, room))

    def _limits(self, saver: Saver, room: int) -> Limits:
        """``room``: how many uncommitted checkpoints every rank's memory and slots have room for."""
        options, engine = self._options, saver.engine_options
        bound = "options" if engine.uncommitted else "memory and slots"
        if options.storage is not None:
            kept = min(most_kept(options.keep, _MOST_KEPT), _MOST_KEPT)
            stored = options.storage // saver.checkpoint_nbytes - kept - self._waiting
            if stored < room:
                room, bound = max(1, stored), "storage"
        behind = 1 if engine.when_full == "replace" else 0
        transfers = max(1, min(engine.transfers, room - behind))
        # As the user has given them: "auto" may mean another path at each start.
        given = options.engine
        texts = [f"{name}={getattr(given, name)}" for name in ("chunk_bytes", "io", "nice", "rate", "when_full")]
        return Limits(
            most=Setting(engine.writers, transfers, room),
            behind=behind,
            bound=bound,
            store=file_system.named(self._run),
            options=", ".join([*texts, f"state={options.state}"]),
        )
