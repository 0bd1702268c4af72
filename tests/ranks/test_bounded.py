"""A rank that waits for others in vain says so, gives up in bounded time, and takes no other call's values."""

import os
import pickle
import signal
import threading
import time
import types

import numpy as np
import pytest

from deepfreeze.errors import WaitError, WorldError
from deepfreeze.ranks import bounded, horovod_world, mpi_world
from deepfreeze.ranks.caller import Caller
from deepfreeze.ranks.wait import Patience, Wait, name_of_call
from deepfreeze.ranks.world import current, each, on_rank_0, together
from tests.support.communicators import Blocking, Polled, pair

KINDS = [Polled, Blocking]


@pytest.fixture(autouse=True)
def another_process(monkeypatch):
    """Each test is a process of its own."""
    monkeypatch.setattr(mpi_world, "_callers", [])
    monkeypatch.setattr(mpi_world, "_lost", [])


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def waits(timeout=600.0, size=2, rank=0):
    said, clock = [], Clock()
    patience = Patience("deepfreeze.Checkpoint", timeout, lambda level, message: said.append((level, message)))
    return Wait(patience, "start.begin", rank, size, "Look there", clock), said, clock


def ranks(kind, actions, timeout=30.0, whos=None, **more):
    """Runs one action on each rank; returns by rank what it returned, or the exception that it raised."""
    comms, found = pair(kind, len(actions)), {}

    def run(rank):
        try:
            who = "deepfreeze.Checkpoint" if whos is None else whos[rank]
            found[rank] = actions[rank](current(comms[rank], Patience(who, timeout, **more)))
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(actions))]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    return [found[rank] for rank in range(len(actions))]


@pytest.mark.parametrize(("size", "others"), [(2, "rank 1"), (5, "4 other ranks")])
def test_a_long_wait_is_reported_after_20_s_and_each_minute(size, others):
    wait, said, clock = waits(size=size)
    for seconds in range(210):
        clock.now = float(seconds)
        assert 0 < wait.look() <= 60
    assert [level for level, _ in said] == ["warning"] * 4
    assert all(f"({at} s)" in message for at, (_, message) in zip((20, 80, 140, 200), said, strict=True))
    assert f"deepfreeze.Checkpoint on rank 0 waits for {others} since " in said[0][1] and "in start.begin" in said[0][1]
    assert "600 s (timeout=)" in said[0][1] and "Look there" in said[0][1]
    clock.now = 600.0
    with pytest.raises(WaitError, match=f"expected {others} to come to start.begin; found no answer for 600 s"):
        wait.look()


def test_a_rank_at_work_is_waited_for_without_a_bound():
    wait, said, clock = waits(timeout=10.0)
    for seconds in range(1, 100):
        clock.now = seconds * 5.0
        wait.look()
        wait.moved([1])
    assert {level for level, _ in said} == {"info"} and "At work there: rank 1" in said[0][1]
    clock.now += 10.0
    with pytest.raises(WaitError, match="no answer for 10 s"):
        wait.look()


def test_each_look_comes_in_time_for_the_next_report_and_the_end():
    wait, _, clock = waits(timeout=30.0)
    assert wait.look() == 20.0
    clock.now = 20.0
    assert wait.look() == 10.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_nobody_joins_gives_up_and_calls_nobody_again(kind):
    comm = pair(kind)[0]
    world = current(comm, Patience("deepfreeze.Checkpoint", 0.05))
    with pytest.raises(WaitError, match=r"expected rank 1 to come to test_bounded\.test_a_rank.*python -m mpi4py"):
        world.gather(1)
    for call in (lambda: world.broadcast(1), lambda: world.maximum(np.arange(3)), lambda: each(world, int)):
        with pytest.raises(WaitError, match="found an earlier call that was given up"):
            call()
    made = current(comm, Patience("deepfreeze.capture", 30.0))  # another world of the same ranks
    with pytest.raises(WaitError, match="an earlier call"):
        made.gather(1)
    if kind is Polled:
        assert len(comm.requests) == 1
        assert ranks(kind, [lambda world: world.gather(1)] * 2) == [[1, 1]] * 2, (
            "of other communicators nothing is lost"
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_ranks_that_join_get_the_values_of_all(kind, size):
    def action(world):
        values = world.gather({"rank": world.rank, "more": b"x" * 3000 * world.rank})
        greatest = world.maximum(np.array([world.rank, -world.rank, 2**62]))
        return [one["rank"] for one in values], world.broadcast(world.rank + 7), greatest.tolist(), greatest.dtype

    wanted = (list(range(size)), 7, [size - 1, 0, 2**62], np.int64)
    assert ranks(kind, [action] * size) == [wanted] * size


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_make_other_calls_hear_so_each(kind):
    def first(world):
        return on_rank_0(world, lambda: 1)

    def second(world):
        return world.gather(None)

    found = ranks(kind, [first, second, first])
    assert all(isinstance(error, WorldError) for error in found), found
    assert "rank 1 to come to the same call" in str(found[0]) and "test_bounded.second there" in str(found[0])
    assert "rank 0 to come to the same call" in str(found[1]) and "test_bounded.first there" in str(found[1])


def test_ranks_with_the_callbacks_in_another_order_hear_so_each():
    found = ranks(
        Polled, [lambda world: world.gather(1)] * 2, whos=["deepfreeze.Checkpoint", "deepfreeze.BroadcastState"]
    )
    assert all(isinstance(error, WorldError) and "callbacks in the same order" in error.todo for error in found), found


def test_a_call_that_was_interrupted_leaves_nothing_to_the_next_one():
    """MPI matches calls by their order: half of one can't be followed by another."""

    class Interrupted(Polled):
        def Iallgather(self, send, receive):
            request = super().Iallgather(send, receive)
            request.Test = lambda: (_ for _ in ()).throw(KeyboardInterrupt())
            return request

    world = current(pair(Interrupted)[0], Patience("deepfreeze.Checkpoint", 5.0))
    with pytest.raises(KeyboardInterrupt):
        world.gather(1)
    with pytest.raises(WaitError, match="earlier call"):
        world.gather(1)


def wait_of(seconds):
    return Wait(Patience("deepfreeze.Checkpoint", seconds), "start.begin", 0, 2, "Look there")


def test_calls_of_a_thread_come_in_the_order_in_which_they_were_given():
    caller, order, first = Caller(), [], threading.Event()

    def slow():
        first.wait(30)
        order.append("slow")

    class Interrupting(Wait):
        def look(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        caller.call(slow, Interrupting(Patience(), "a", 0, 2, ""))
    threading.Timer(0.05, first.set).start()
    assert caller.call(lambda: order.append("next") or 5, wait_of(30)) == 5
    assert order == ["slow", "next"]


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_ends_a_wait_at_once(kind):
    world = current(pair(kind)[0], Patience("deepfreeze.Checkpoint", 60.0))
    main = threading.main_thread().ident
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT)).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        world.gather(1)
    assert time.monotonic() - begin < 30
    signal.signal(signal.SIGINT, before)


def test_a_call_that_is_given_up_may_end_later_and_nobody_hears_of_it():
    caller, over, ended = Caller(), threading.Event(), threading.Event()
    with pytest.raises(WaitError):
        caller.call(lambda: (over.wait(30), ended.set()), wait_of(0.02))
    over.set()
    assert ended.wait(30)
    with pytest.raises(WaitError, match="an earlier call that was given up"):
        caller.call(lambda: 1, wait_of(30))


def test_an_exception_of_a_call_is_the_callers():
    caller = Caller()
    with pytest.raises(ZeroDivisionError):
        caller.call(lambda: 1 / 0, wait_of(30))
    assert caller.call(lambda: 3, wait_of(30)) == 3


def test_a_rank_at_work_beats_until_it_is_done():
    caller, beats, thrice = Caller(), [], threading.Event()

    def beat():
        beats.append(threading.current_thread().name)
        if len(beats) == 3:
            thrice.set()

    with caller.working(beat, 0.01):
        assert thrice.wait(30)
    assert caller.call(lambda: 1, wait_of(30)) == 1
    assert set(beats) == {"deepfreeze-ranks"}


def test_a_rank_whose_work_was_interrupted_beats_no_more():
    caller, beats = Caller(), []
    with pytest.raises(KeyboardInterrupt), caller.working(lambda: beats.append(1), 0.01):
        raise KeyboardInterrupt
    caller.call(lambda: None, wait_of(30))
    had = len(beats)
    caller.call(lambda: threading.Event().wait(0.05), wait_of(30))
    assert len(beats) == had


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_a_thread_of_its_own():
    caller = Caller()
    assert caller.call(lambda: 1, wait_of(30)) == 1
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, pickle.dumps(caller.call(lambda: 41 + 1, wait_of(10))))
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert pickle.load(pipe) == 42
    os.waitpid(child, 0)


def test_a_rank_at_work_speaks_of_the_same_call_as_those_that_wait(monkeypatch):
    """As Horovod's ranks do, of which there is one here."""
    sent, beaten = [], threading.Event()

    def gather(data):
        message = pickle.loads(data.tobytes()[horovod_world._HEADER.size :])
        sent.append(message)
        if message.at_work:
            beaten.set()
        return types.SimpleNamespace(numpy=lambda: data)

    monkeypatch.setattr(horovod_world, "caller", Caller())
    monkeypatch.setattr(horovod_world, "_ops", lambda hvd: (gather, None))
    hvd = types.SimpleNamespace(rank=lambda: 0, size=lambda: 1)
    world = horovod_world.HorovodWorld(hvd, Patience("deepfreeze.Checkpoint", 0.2))
    assert together(world, lambda: beaten.wait(30) and 5) == [5]
    assert len(sent) > 1 and [message.at_work for message in sent[-2:]] == [True, False]
    named = "test_bounded.test_a_rank_at_work_speaks_of_the_same_call_as_those_that_wait"
    assert {(message.who, message.call) for message in sent} == {("deepfreeze.Checkpoint", named)}


def test_a_rank_at_work_may_come_to_other_calls_before_the_one_it_works_for(monkeypatch):
    """The other rank traces a step slowly. This rank has come to a call that the trace makes."""
    mine = "test_bounded.test_a_rank_at_work_may_come_to_other_calls_before_the_one_it_works_for"
    others = [
        bounded.Message("deepfreeze.Checkpoint", "input_position.prepare", at_work=True),
        bounded.Message("deepfreeze.BroadcastState", mine, 7),
    ]

    def gather(data):
        _, number = horovod_world._HEADER.unpack_from(data)
        other = pickle.dumps(others.pop(0))
        message = horovod_world._HEADER.pack(len(other), number) + other
        return types.SimpleNamespace(numpy=lambda: np.concatenate([data, np.frombuffer(message, np.uint8)]))

    monkeypatch.setattr(horovod_world, "caller", Caller())
    monkeypatch.setattr(horovod_world, "_ops", lambda hvd: (gather, None))
    hvd = types.SimpleNamespace(rank=lambda: 0, size=lambda: 2)
    world = horovod_world.HorovodWorld(hvd, Patience("deepfreeze.BroadcastState", 30.0))
    assert world.gather(5) == [5, 7]


def test_a_stale_call_of_another_rank_is_no_answer(monkeypatch):
    def gather(data):
        other = horovod_world._HEADER.pack(3, 10**6) + b"old"
        return types.SimpleNamespace(numpy=lambda: np.concatenate([data, np.frombuffer(other, np.uint8)]))

    monkeypatch.setattr(horovod_world, "caller", Caller())
    monkeypatch.setattr(horovod_world, "_ops", lambda hvd: (gather, None))
    world = horovod_world.HorovodWorld(types.SimpleNamespace(rank=lambda: 0, size=lambda: 2))
    with pytest.raises(WorldError, match=r"rank 1 to come to the same call.*found call 1000000 in place of call"):
        world.gather(1)


def test_what_horovod_says_when_a_rank_has_ended_is_passed_on(monkeypatch):
    def gather(data):
        raise RuntimeError(
            "{{node deepfreeze.gather}} Horovod has been shut down. This was caused by an exception\n[[Op]]"
        )

    monkeypatch.setattr(horovod_world, "caller", Caller())
    monkeypatch.setattr(horovod_world, "_ops", lambda hvd: (gather, None))
    world = horovod_world.HorovodWorld(types.SimpleNamespace(rank=lambda: 1, size=lambda: 2))
    with pytest.raises(
        WorldError, match=r"found Horovod has been shut down\. This was caused by an exception\. See which rank"
    ):
        world.gather(1)


def test_a_call_is_named_after_the_function_that_makes_it():
    assert name_of_call() == "test_bounded.test_a_call_is_named_after_the_function_that_makes_it"
