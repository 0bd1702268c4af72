"""Case: two ranks of which one calls the others in vain, as the scripts of people do who know ModelCheckpoint. CASE: rank-0, rank-1 (the
callback on that rank alone), exception (rank 1 has one before ``fit``, which its program survives), callbacks (in another order on rank 1),
checkpoints (two, in another order), metrics (AverageMetrics on rank 0 alone), at-work (rank 0 restores for longer than ``timeout``).
Returns the error, if there is one."""

import time

import models

import deepfreeze
from deepfreeze.tiers import rescue


def run(api, folder, case, timeout, world="horovod"):
    keras = models.framework(api)
    if world == "mpi":
        from mpi4py import MPI

        rank, options = MPI.COMM_WORLD.Get_rank(), {"world": MPI.COMM_WORLD}
    else:
        import horovod.tensorflow as hvd

        hvd.init()
        rank, options = hvd.rank(), {}
    options |= {"timeout": timeout, "verbose": 0}
    optimizer = keras.optimizers.SGD(1e-3)
    model = models.build(keras, "dense", optimizer=models.averaging(keras, optimizer) if world != "mpi" else optimizer)
    checkpoints = [deepfreeze.Checkpoint(f"{folder}/{name}", 2, **options) for name in "ab"]
    if case in ("rank-0", "rank-1"):
        callbacks = checkpoints[:1] if rank == int(case[-1]) else []
    elif case == "callbacks":
        callbacks = [deepfreeze.BroadcastState(timeout), checkpoints[0]][:: 1 - 2 * rank]
    elif case == "checkpoints":
        callbacks = checkpoints[:: 1 - 2 * rank]
    elif case == "metrics":
        callbacks = [deepfreeze.AverageMetrics(timeout=timeout)] if rank == 0 else []
    else:
        callbacks = checkpoints[:1]
    plan = rescue.plan

    def slowly(*args):
        time.sleep(3 * timeout)
        return plan(*args)

    if case == "at-work":
        rescue.plan = slowly  # rank 0 alone calls it
    print(f"rank {rank} fits", flush=True)
    try:
        if case == "exception" and rank == 1:
            print("rank 1 has an exception", flush=True)
            while True:  # a program that keeps its process: a notebook, a try around main()
                time.sleep(0.1)
        model.fit(models.batches(4, 0, rank), epochs=2, verbose=0, callbacks=callbacks)
        return None
    except deepfreeze.Error as error:
        print(f"rank {rank}: {type(error).__name__}: {error}", flush=True)
        if case in ("callbacks", "checkpoints"):
            return f"{type(error).__name__}: {error}"
        if world == "mpi":
            MPI.COMM_WORLD.Abort(1)  # as `python -m mpi4py` does: MPI_Finalize would wait for the other rank
        raise
    finally:
        rescue.plan = plan
