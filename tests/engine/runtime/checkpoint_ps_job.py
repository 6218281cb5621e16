"""A training script for tests of preemption: checkpointed, with parameter servers, signalled if asked to."""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
from pathlib import Path

import numpy as np

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine.ir.program import default_main_program, default_startup_program
from tests import fleet_jobs as jobs
from tests.engine.runtime.sigterm import await_request, terminate

STEPS = 12


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--term-step", type=int, default=-1, help="send SIGTERM in this step")
    p.add_argument("--term-worker", type=int, default=0, help="by this worker")
    p.add_argument("--term-launcher", action="store_true", help="to the launcher, instead of to itself")
    p.add_argument(
        "--term-elsewhere", action="store_true", help="not sent: the test sends it to another process"
    )
    options = p.parse_args()
    fleet.init()
    net = jobs.build(True)
    strategy = jobs.strategy_of({"a_sync": False})
    fleet.distributed_optimizer(jobs.OPTIMIZERS["adam"](), strategy).minimize(net.loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    fleet.init_worker()
    worker = fleet.worker_index()
    checkpoint = fleet.Checkpoint("checkpoints", every=1000)
    for _, step, _ in checkpoint.batches(range(STEPS), 1, exe):
        if (step, worker) == (options.term_step, options.term_worker):
            if options.term_elsewhere:
                Path("ready").touch()
                await_request()
            else:
                terminate(os.getppid() if options.term_launcher else os.getpid())
        feed = jobs.batch(step, worker, fleet.worker_num())
        exe.run(feed=jobs.fed(net, feed), fetch_list=[net.loss])
    fleet.barrier_worker()
    values = jobs.parameters(default_main_program())
    np.savez(f"result-{worker}.npz", table=jobs.table_rows(), **values)  # type: ignore[arg-type]
    fleet.stop_worker()


if __name__ == "__main__":
    main()
