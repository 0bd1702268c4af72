"""Checkpointing without TensorFlow: numpy, safetensors, torch.distributed.checkpoint, Orbax. Runs in .venv-peers."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import safetensors
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from benchmarks.peers_child import RATE, Channel, Peer, fsync, serve, thin

Arrays = Mapping[str, np.ndarray]
Tensors = dict[str, torch.Tensor]


class Numpy(Peer):
    """One file, each array written as it lies in memory, then fsync: no library at all."""

    name, fsync = "numpy, one file", "yes"

    def __init__(self, arrays: dict[str, np.ndarray], gradients: Arrays) -> None:
        self.arrays, self._gradients = arrays, gradients

    def update(self) -> None:
        """See Peer. Through torch, which has it in one pass; numpy would need memory for the product."""
        for name, array in self.arrays.items():
            torch.from_numpy(array).sub_(torch.from_numpy(self._gradients[name]), alpha=RATE)

    def save(self, folder: Path) -> None:
        """See Peer."""
        with open(folder / "state", "wb", buffering=0) as file:
            for array in self.arrays.values():
                array.tofile(file)
        fsync(folder / "state")
        fsync(folder)

    def restore(self, folder: Path) -> None:
        """See Peer."""
        with open(folder / "state", "rb", buffering=0) as file:
            for array in self.arrays.values():
                rest = memoryview(array).cast("B")
                while rest:
                    rest = rest[file.readinto(rest) :]

    def sample(self) -> list[np.ndarray]:
        """See Peer."""
        return [thin(array.reshape(-1)).copy() for array in self.arrays.values()]


class Orbax(Peer):
    """AsyncCheckpointer over jax arrays, of which it keeps references; the update may then not reuse their memory."""

    name, fsync, background = "Orbax async", "yes", True

    def __init__(self, arrays: Arrays, gradients: Arrays) -> None:
        self._arrays = {name: jax.numpy.array(array) for name, array in arrays.items()}
        self._gradients = {name: jax.numpy.asarray(array) for name, array in gradients.items()}
        self._checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
        # Donated, the arrays are updated in place, unless something else holds them.
        self._descend = jax.jit(
            lambda arrays, gradients: jax.tree.map(lambda a, g: a - RATE * g, arrays, gradients), donate_argnums=0
        )
        self._thin = jax.jit(lambda arrays: [thin(array.reshape(-1)) for array in arrays.values()])

    def update(self) -> None:
        """See Peer."""
        self._arrays = jax.block_until_ready(self._descend(self._arrays, self._gradients))

    def save(self, folder: Path) -> None:
        """See Peer."""
        self._checkpointer.save(folder / "state", args=ocp.args.StandardSave(self._arrays))

    def wait(self) -> None:
        """See Peer."""
        self._checkpointer.wait_until_finished()

    def restore(self, folder: Path) -> None:
        """See Peer. Arrays of jax can't be written: the new ones become the state."""
        restored = self._checkpointer.restore(folder / "state", args=ocp.args.StandardRestore(self._arrays))
        self._arrays = jax.block_until_ready(restored)

    def sample(self) -> list[np.ndarray]:
        """See Peer."""
        return [np.asarray(values) for values in self._thin(self._arrays)]


class Torch(Peer):
    """torch tensors; what the two approaches over them share."""

    def __init__(self, tensors: Tensors, gradients: Tensors) -> None:
        self.tensors, self._gradients = tensors, gradients

    def update(self) -> None:
        """See Peer."""
        for name, tensor in self.tensors.items():
            tensor.sub_(self._gradients[name], alpha=RATE)

    def sample(self) -> list[np.ndarray]:
        """See Peer."""
        return [thin(tensor.reshape(-1)).numpy().copy() for tensor in self.tensors.values()]


class TorchDistributed(Torch):
    """torch.distributed.checkpoint.async_save of one process, with one stager kept: it copies into memory it has touched."""

    name, fsync, background = "torch DCP async_save", "yes", True

    def __init__(self, tensors: Tensors, gradients: Tensors) -> None:
        super().__init__(tensors, gradients)
        self._saving: Any = None
        # The other options want an accelerator; and tensors updated in place must be staged before async_save returns.
        options = StagingOptions(
            use_pinned_memory=False, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=False
        )
        self._stager = DefaultStager(options)

    def save(self, folder: Path) -> None:
        """See Peer."""
        self._saving = dcp.async_save(
            dict(self.tensors), checkpoint_id=folder / "state", async_stager=self._stager, no_dist=True
        )

    def wait(self) -> None:
        """See Peer."""
        self._saving.result()

    def restore(self, folder: Path) -> None:
        """See Peer."""
        dcp.load(self.tensors, checkpoint_id=folder / "state", no_dist=True)


class Safetensors(Torch):
    """safetensors' save_file, then fsync of the file and its directory."""

    # The library itself doesn't; its users who need durability add these two lines.
    name, fsync = "safetensors", "yes"

    def save(self, folder: Path) -> None:
        """See Peer."""
        safetensors.torch.save_file(self.tensors, folder / "state.safetensors")
        fsync(folder / "state.safetensors")
        fsync(folder)

    def restore(self, folder: Path) -> None:
        """See Peer."""
        with safetensors.safe_open(folder / "state.safetensors", "pt") as file:
            for name, tensor in self.tensors.items():
                tensor.copy_(file.get_tensor(name))


def start(side: str, arrays: dict[str, np.ndarray], channel: Channel, folder: Path) -> None:
    """Serves them all. Approaches over the same kind of tensors share them, as long as they can."""
    gradients = {name: _aligned(array) for name, array in arrays.items()}
    tensors = {name: torch.from_numpy(array).clone() for name, array in arrays.items()}
    slopes = {name: torch.from_numpy(array) for name, array in gradients.items()}
    peers = [
        Numpy(arrays, gradients),
        Safetensors(tensors, slopes),
        TorchDistributed(tensors, slopes),
        Orbax(arrays, gradients),
    ]
    packages = ("numpy", "torch", "safetensors", "orbax-checkpoint", "jax", "tensorstore")
    versions = {package: importlib.metadata.version(package) for package in packages}
    serve({peer.name: peer for peer in peers}, versions, channel, folder)


def _aligned(like: np.ndarray) -> np.ndarray:
    """Ones, where jax takes an array without copying it."""
    room = np.empty(like.nbytes + 64, np.uint8)
    begin = -room.ctypes.data % 64
    ones = room[begin : begin + like.nbytes].view(like.dtype).reshape(like.shape)
    ones[...] = 1
    return ones
