"""Plans of faults that a process sets while it runs: what lets one process take cases of many plans."""

import ctypes
from pathlib import Path

import pytest

import veloc_bindings as vb
from tests.support.ranks import options, ranks

FAILS = "fail=EIO:fdatasync:model.weights.h5:1+"


def test_a_plan_is_for_the_engines_opened_from_then_on(tmp_path, testing_library):
    with ranks(testing_library, "") as (rank,):

        def commits(step):
            rank.ask("submit", step=step)
            try:
                rank.ask("wait", step=step, level=vb.EXTERNAL)
            except vb.EngineFault as fault:
                assert "Input/output error" in fault.message
                return False
            return True

        def reopen():
            rank.ask("close")
            rank.ask("open", **options(tmp_path))

        rank.ask("open", **options(tmp_path))
        rank.ask("faults", plan=FAILS)
        assert commits(10), "this engine was there before"
        reopen()
        assert not commits(20)
        rank.ask("faults")
        assert not commits(30), "so was this one"
        reopen()
        assert commits(40)


def test_a_plan_replaces_that_of_the_environment(tmp_path, testing_library):
    with ranks(testing_library, FAILS) as (rank,):
        rank.ask("faults")
        rank.ask("open", **options(tmp_path))
        rank.ask("submit", step=10)
        rank.ask("wait", step=10, level=vb.EXTERNAL)


def test_a_plan_that_cannot_be_read_is_refused(testing_library):
    assert ctypes.CDLL(testing_library).df_testing_faults(b"fail=EIO:fdatasync", b"") == -1


def test_the_product_has_no_faults():
    library = Path(vb.__file__).with_name("libdeepfreeze.so")
    if not library.exists():
        pytest.skip("the engine is elsewhere")
    with pytest.raises(AttributeError):
        _ = ctypes.CDLL(str(library)).df_testing_faults
