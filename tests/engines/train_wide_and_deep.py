"""Wide and deep on parameter servers, sync, on generated clicks: 10 steps, then worker 0 writes the weights."""

# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path
from typing import Any

import numpy as np

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.fleet.utils.ps_util import DistributedInfer

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.engines import script_options

BATCH, NUMBERS, CATEGORIES, ROWS, WIDTH = 16, 13, 8, 960, 8


def batches(worker: int, steps: int) -> list[script_options.Batch]:
    """The clicks of a worker: the same in every run."""
    generator = np.random.default_rng([5, worker])
    return [
        {
            "numbers": generator.random((BATCH, NUMBERS), dtype="float32"),
            "categories": generator.integers(0, ROWS, (BATCH, CATEGORIES)),
            "label": generator.integers(0, 2, (BATCH, 1)),
        }
        for _ in range(steps)
    ]


def wide_and_deep() -> tuple[Any, Any]:
    """(rows of the categories, loss)."""
    numbers = paddle.static.data("numbers", [None, NUMBERS], "float32")
    categories = paddle.static.data("categories", [None, CATEGORIES], "int64")
    label = paddle.static.data("label", [None, 1], "int64")
    attr = paddle.ParamAttr(name="table", initializer=paddle.nn.initializer.Uniform(-0.1, 0.1))
    rows = paddle.static.nn.sparse_embedding(categories, size=[ROWS, WIDTH], param_attr=attr)
    deep = paddle.concat([paddle.reshape(rows, [-1, CATEGORIES * WIDTH]), numbers], axis=1)
    for size in (32, 32):
        deep = paddle.static.nn.fc(deep, size, activation="relu")
    logit = paddle.add(paddle.static.nn.fc(numbers, 1), paddle.static.nn.fc(deep, 1))
    losses = paddle.nn.functional.log_loss(paddle.nn.functional.sigmoid(logit), paddle.cast(label, "float32"))
    return rows, paddle.mean(losses)


def table(exe: Any, program: Any, rows: Any) -> script_options.Batch:
    """All rows of the table, looked up on the servers."""
    ids = np.arange(ROWS).reshape(-1, CATEGORIES)
    zeros = np.zeros((len(ids), NUMBERS), "float32")
    feed = {"categories": ids, "numbers": zeros, "label": np.zeros((len(ids), 1), "int64")}
    (looked_up,) = exe.run(program, feed=feed, fetch_list=[rows.name])
    return {"table": looked_up.reshape(ROWS, WIDTH)}


def main() -> None:
    args = script_options.parser(__doc__).parse_args()
    paddle.enable_static()
    paddle.seed(11)
    fleet.init()
    rows, loss = wide_and_deep()
    test_program = paddle.static.default_main_program().clone(for_test=True)
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = False
    fleet.distributed_optimizer(paddle.optimizer.Adam(0.01), strategy).minimize(loss)
    if fleet.is_server():
        script_options.write_pid(args)
        fleet.init_server()
        fleet.run_server()
        return
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    for batch in script_options.steps(args, batches(fleet.worker_index(), args.steps), exe):
        (value,) = exe.run(feed=batch, fetch_list=[loss])
        print(f"loss: {value.item():.6f}", flush=True)
    if fleet.is_first_worker():
        infer_program = DistributedInfer(test_program).get_dist_infer_program()
        script_options.save(args.weights, script_options.parameters() | table(exe, infer_program, rows))
    fleet.stop_worker()


main()
