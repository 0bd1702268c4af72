"""Faults of the testing library's engines, set while a process runs (native/testing/fault_env.h says what a plan is)."""

from __future__ import annotations

import ctypes
import os


def plan(text: str = "", log: object = "") -> None:
    """Sets the plan of faults for engines that this process opens from now on; without arguments there are no faults. ``log``: the
    path of the faults' log file, or empty.

    With a plan, DEEPFREEZE_LIBRARY must name the testing library. Another library (the one of which coverage is measured) can't have
    faults, so an empty plan is fine with it. Raises ``ValueError`` for a plan that can't be read."""
    library = ctypes.CDLL(os.environ["DEEPFREEZE_LIBRARY"])
    if not text and not hasattr(library, "df_testing_faults"):
        return
    call = library.df_testing_faults
    call.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
    if call(text.encode(), str(log).encode()):
        raise ValueError(f"no plan of faults: {text}")
