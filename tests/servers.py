"""Jobs with parameter servers for tests: processes of the fork server, first trainers, then servers.

A case is a dict: which model, optimizer and mode. The environment variable CASES has several, which a job does one
after the other. `part()` builds each, transpiles it, and is what its process is: a server until all trainers have left,
or a trainer that trains, and writes what it has learnt. `alone()` trains the same in one process with the whole batch.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import argosy as paddle
from argosy import fluid
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.fleet_jobs import Arrays, parameters, table_rows
from tests.ranks import ForkServer

BATCH = 24
"""Divisible by 1 to 4 trainers."""

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: paddle.optimizer.SGD(0.1),
    "sgd_decayed": lambda: paddle.optimizer.SGD(0.1, weight_decay=0.01),
    "momentum": lambda: paddle.optimizer.Momentum(0.05, 0.9, use_nesterov=True),
    "momentum_l1": lambda: paddle.optimizer.Momentum(0.05, weight_decay=paddle.regularizer.L1Decay(0.003)),
    "adam": lambda: paddle.optimizer.Adam(0.01),
    "adamw": lambda: paddle.optimizer.AdamW(
        0.01, weight_decay=0.1, apply_decay_param_fun=lambda name: name.endswith("w_0")
    ),
    "adamax": lambda: paddle.optimizer.Adamax(0.01),
    "adagrad": lambda: paddle.optimizer.Adagrad(0.05, epsilon=0.01),
    "adadelta": lambda: paddle.optimizer.Adadelta(0.5),
    "rmsprop": lambda: paddle.optimizer.RMSProp(0.005, momentum=0.5, centered=True),
    "ftrl": lambda: fluid.optimizer.Ftrl(0.05, l1=0.001, l2=0.1),
    "lars": lambda: fluid.optimizer.LarsMomentum(0.5, 0.9),
    "lamb": lambda: paddle.optimizer.Lamb(0.01),
    "clip_value": lambda: paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByValue(0.01)),
    "clip_norm": lambda: paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByNorm(0.05)),
    "clip_global": lambda: paddle.optimizer.Momentum(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.1)),
    "schedule": lambda: paddle.optimizer.SGD(paddle.optimizer.lr.PiecewiseDecay([2, 4], [0.1, 0.03, 0.01])),
    "fluid_decay": lambda: fluid.optimizer.SGD(fluid.layers.exponential_decay(0.1, 2, 0.5, staircase=True)),
}


def dtype_of(case: dict[str, Any]) -> str:
    """Optimizers such as Adam make much of the rounding of small gradients; tables are float32."""
    return "float32" if case.get("table") else "float64"


def build(case: dict[str, Any]) -> tuple[Program, Program, Any, Any]:
    """main, startup, loss and the optimizer's schedule, if it has one that the user steps."""
    main, startup = Program("main"), Program("startup")
    main.random_seed = startup.random_seed = 11
    nn = paddle.static.nn
    with program_guard(main, startup), names.guard():
        x = paddle.static.data("x", [None, 20], dtype_of(case))
        y = paddle.static.data("y", [None, 1], dtype_of(case))
        inputs = [x]
        if case.get("table"):
            attr = paddle.ParamAttr(name="table", initializer=paddle.nn.initializer.Constant(0.3))
            for slot in ("a", "b"):
                ids = paddle.static.data(slot, [None, 1], "int64")
                rows = nn.sparse_embedding(ids, [50, 4], param_attr=attr)
                inputs.append(paddle.reshape(rows, [-1, 4]))
        attr = paddle.ParamAttr(learning_rate=0.5)
        h = nn.fc(paddle.concat(inputs, axis=1), 1700, weight_attr=attr, activation="tanh")
        out = nn.fc(h, 1)
        loss = paddle.mean(paddle.nn.functional.square_error_cost(out, y))
        optimizer = OPTIMIZERS[case["optimizer"]]()
        optimizer.minimize(loss)
    rate = getattr(optimizer, "learning_rate", None)
    is_stepped = hasattr(rate, "step") and not getattr(rate, "steps_by_itself", False)
    return main, startup, loss, rate if is_stepped else None


def batch(step: int, case: dict[str, Any], part: int = 0, parts: int = 1) -> Arrays:
    """A part of the batch of a step: each of the parts has as many rows."""
    rng = np.random.RandomState(100 + step)
    x = rng.randn(BATCH, 20).astype(dtype_of(case))
    feed: Arrays = {"x": x, "y": x[:, :1] * 2 + np.sin(x[:, 1:2])}
    if case.get("table"):
        feed |= {slot: rng.randint(0, 50, (BATCH, 1)) for slot in ("a", "b")}
    return {name: value[part::parts] for name, value in feed.items()}


def config_of(case: dict[str, Any]) -> fluid.DistributeTranspilerConfig:
    config = fluid.DistributeTranspilerConfig()
    for name, value in case.get("config", {}).items():
        setattr(config, name, value)
    return config


def alone(case: dict[str, Any]) -> Arrays:
    """What one process learns from the whole batches."""
    with scope_guard(Scope()):
        main, startup, loss, schedule = build(case)
        exe = paddle.static.Executor()
        exe.run(startup)
        for step in range(case["steps"]):
            exe.run(main, feed=batch(step, case), fetch_list=[loss])
            if schedule is not None:
                schedule.step()
        return parameters(main)


def part() -> None:
    """One process of a job: its rank says which."""
    torch.set_num_threads(1)
    for number, case in enumerate(json.loads(os.environ["CASES"])):
        with scope_guard(Scope()):
            _be_part(case, f"{os.environ['FOLDER']}/{number}")


def _be_part(case: dict[str, Any], path: str) -> None:
    rank, trainers = int(os.environ["PADDLE_TRAINER_ID"]), case["trainers"]
    endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[trainers:]
    main, startup, loss, schedule = build(case)
    t = fluid.DistributeTranspiler(config_of(case))
    sync = case.get("sync", True)
    t.transpile(rank % trainers, main, ",".join(endpoints), trainers, sync, startup)
    exe = paddle.static.Executor()
    if rank >= trainers:
        server, first = t.get_pserver_programs(endpoints[rank - trainers])
        exe.run(first)
        if "load" in case:
            fluid.io.load_persistables(exe, case["load"], server)
        exe.run(server)
        while not all(Path(f"{path}.{trainer}.gone").exists() for trainer in range(trainers)):
            time.sleep(0.05)
        return
    main = t.get_trainer_program()
    exe.run(startup)
    if "load" in case:
        fluid.io.load_persistables(exe, case["load"], main)
    for step in range(case.get("first", 0), case["steps"]):
        exe.run(main, feed=batch(step, case, rank, trainers), fetch_list=[loss])
        if schedule is not None:
            schedule.step()
    if "save" in case and rank == 0:
        fluid.io.save_persistables(exe, case["save"], main)
    values = parameters(main)
    if case.get("table"):
        values["table"] = table_rows(50)
    exe.close()
    np.savez(f"{path}.{rank}.npz", **values)  # type: ignore[arg-type]
    while any(_listens(endpoint) for endpoint in endpoints):  # the next case has servers of its own there
        time.sleep(0.05)
    Path(f"{path}.{rank}.gone").touch()


def _listens(endpoint: str) -> bool:
    host, _, port = endpoint.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def learnt(
    ranks: ForkServer, cases: list[dict[str, Any]], servers: int, **environ: str
) -> list[list[Arrays]]:
    """Run a job; of each case what each trainer has at the end. All cases have as many trainers."""
    trainers = cases[0]["trainers"]
    environ = {"ARGOSY_HEARTBEAT_S": "0.1"} | environ  # how soon a server is sure that all have left
    with tempfile.TemporaryDirectory() as folder:
        given = {"CASES": json.dumps(cases), "FOLDER": folder} | environ
        ranks.check(trainers + servers, part, timeout_s=200.0, **given)
        return [
            [dict(np.load(f"{folder}/{number}.{rank}.npz")) for rank in range(trainers)]
            for number in range(len(cases))
        ]
