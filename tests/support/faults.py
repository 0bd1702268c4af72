"""Faults of the testing library's engines, set while a process runs (native/testing/fault_env.h says what a plan is)."""

from __future__ import annotations

import ctypes
import os


def plan(text: str = "", log: object = "") -> None:
    """For engines opened from now on, in this process; without arguments: no faults. The engine of DEEPFREEZE_LIBRARY has to be the
    testing library where there is a plan; another one (coverage measures one) has no faults anyway."""
    library = ctypes.CDLL(os.environ["DEEPFREEZE_LIBRARY"])
    if not text and not hasattr(library, "df_testing_faults"):
        return
    call = library.df_testing_faults
    call.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
    if call(text.encode(), str(log).encode()):
        raise ValueError(f"no plan of faults: {text}")
