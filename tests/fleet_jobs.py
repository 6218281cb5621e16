"""fleet jobs with parameter servers for tests: scripts as users write them, in the fork server's processes.

The first ranks are workers, the rest servers; `take_role` gives each the variables that fleetrun would give it.
Settings of a job are a dict in the environment variable CASE.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.fleet.utils.ps_util import DistributedInfer
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ps.trainer.trainer import current
from argosy.engine.runtime.scope import global_scope
from tests.ranks import ForkServer

Arrays = dict[str, np.ndarray[Any, Any]]
BATCH, ROWS = 12, 30
SEED = 11

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: paddle.optimizer.SGD(0.1),
    "sgd_twice": lambda: paddle.optimizer.SGD(0.2),
    "momentum": lambda: paddle.optimizer.Momentum(0.05, 0.9),
    "adam": lambda: paddle.optimizer.Adam(0.02),
}


@dataclass
class Net:
    """A small model in the default programs."""

    inputs: list[Any]
    out: Any
    loss: Any


def take_role(workers: int) -> int:
    """Become a worker or a server, as the rank says; gives the number of the rank."""
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
    host, port = endpoints[rank].split(":")
    for name in ("PADDLE_CURRENT_ENDPOINT", "PADDLE_RANK_IN_NODE", "LOCAL_WORLD_SIZE"):
        del os.environ[name]
    os.environ |= {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(endpoints[workers:]),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints[:workers]),
        "PADDLE_TRAINERS_NUM": str(workers),
        "TRAINING_ROLE": "TRAINER" if rank < workers else "PSERVER",
    }
    if rank >= workers:
        del os.environ["PADDLE_TRAINER_ID"]
        os.environ |= {"POD_IP": host, "PADDLE_PORT": port}
    return rank


def case() -> dict[str, Any]:
    """The settings of this job."""
    return dict(json.loads(os.environ["CASE"]))


def build(table: bool, seed: int = SEED) -> Net:
    """Two numbers and, with a table, two ids give one number."""
    default_main_program().random_seed = default_startup_program().random_seed = seed
    x, y = paddle.static.data("x", [None, 4]), paddle.static.data("y", [None, 1])
    inputs, parts = [x], [x]
    if table:
        attr = paddle.ParamAttr(name="table", initializer=paddle.nn.initializer.Constant(0.3))
        for slot in ("a", "b"):
            ids = paddle.static.data(slot, [None, 1], "int64")
            rows = paddle.static.nn.sparse_embedding(ids, [ROWS, 3], padding_idx=0, param_attr=attr)
            inputs.append(ids)
            parts.append(paddle.reshape(rows, [-1, 3]))
    hidden = paddle.static.nn.fc(paddle.concat(parts, axis=1), 8, activation="tanh")
    out = paddle.static.nn.fc(hidden, 1)
    loss = paddle.mean(paddle.nn.functional.square_error_cost(out, y))
    return Net([*inputs, y], out, loss)


def batch(step: int, part: int = 0, parts: int = 1) -> Arrays:
    """A part of the batch of a step; each part has as many records."""
    rng = np.random.RandomState(step)
    x = rng.randn(BATCH, 4).astype("float32")
    ids = {slot: rng.randint(0, ROWS, (BATCH, 1)) for slot in ("a", "b")}
    y = (x[:, :1] - np.sin(x[:, 1:2]) + (ids["a"] % 2)).astype("float32")
    return {name: value[part::parts] for name, value in {"x": x, "y": y, **ids}.items()}


def fed(net: Net, arrays: Arrays) -> Arrays:
    """Those of the arrays that the model takes."""
    return {variable.name: arrays[variable.name] for variable in net.inputs}


def strategy_of(given: dict[str, Any]) -> fleet.DistributedStrategy:
    """The strategy of a case: a_sync (left alone if it is not there) and its settings."""
    strategy = fleet.DistributedStrategy()
    if "a_sync" in given:
        strategy.a_sync = given["a_sync"]
    if "configs" in given:
        strategy.a_sync_configs = given["configs"]
    return strategy


def alone(table: bool, optimizer: str, steps: int, joined: int = 1) -> Arrays:
    """What one process learns from the whole batches; of `joined` batches each step makes one."""
    net = build(table)
    OPTIMIZERS[optimizer]().minimize(net.loss)
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    for step in range(0, steps, joined):
        batches = [batch(s) for s in range(step, step + joined)]
        whole = {name: np.concatenate([one[name] for one in batches]) for name in batches[0]}
        exe.run(feed=fed(net, whole))
    return parameters(default_main_program())


def parameters(program: Program) -> Arrays:
    """The values of a program's parameters in this process."""
    scope = global_scope()
    return {p.name: scope.get(p.name).numpy().copy() for p in program.all_parameters()}


def loss_of(exe: Any, net: Net, batches: int) -> float:
    """The mean loss of the first batches, with rows from the servers; nothing is trained."""
    program = DistributedInfer(default_main_program()).get_dist_infer_program()
    losses = [
        exe.run(program, feed=fed(net, batch(number)), fetch_list=[net.loss.name])[0]
        for number in range(batches)
    ]
    return float(np.mean(losses))


def table_rows(count: int = ROWS) -> np.ndarray[Any, Any]:
    """All rows of the table, as the servers have them."""
    return current().rows.start_pull("table", torch.arange(count), create=False).wait().numpy().copy()


def run(
    ranks: ForkServer,
    function: Callable[[], None],
    folder: Path,
    given: dict[str, Any],
    workers: int,
    servers: int,
    **environ: str,
) -> tuple[list[Arrays], list[str]]:
    """Run a job; what each worker has written to folder/N.npz, and what every process has said."""
    text = json.dumps(given | {"folder": str(folder), "workers": workers})
    # A server ends two heartbeats after its last worker.
    said = ranks.check(workers + servers, function, CASE=text, ARGOSY_HEARTBEAT_S="0.2", **environ)
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(workers)], said
