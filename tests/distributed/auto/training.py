"""A small program that the tests of strategy.auto measure and plan."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from typing import Any

import numpy as np

import argosy as paddle
from argosy.distributed.auto.node_times import NodeTimes, measure
from argosy.distributed.auto.step_traces import update_bytes
from argosy.distributed.auto.template import Template
from argosy.distributed.fleet import DistributedStrategy
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.planner.topology import HostKind, Link, SharedMemory, Topology

BATCH = 16


def template(layers: int = 3, width: int = 32, **switches: Any) -> tuple[Template, Any]:
    """The template of an MLP in the default program, and its loss."""
    x = paddle.static.data("x", [None, width], "float32")
    for _ in range(layers):
        x = paddle.static.nn.fc(x, width, activation="tanh")
    loss = paddle.static.nn.fc(x, 1).mean()
    _, params_grads = paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    strategy = DistributedStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    return Template.of(default_main_program(), strategy, params_grads), loss


def feed(width: int = 32, batch: int = BATCH) -> dict[str, Any]:
    return {"x": np.linspace(-1, 1, batch * width, dtype="float32").reshape(batch, width)}


def node_times(loss: Any, fed: dict[str, Any] | None = None) -> NodeTimes:
    """Measured in a few steps of the default program."""
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    fed = fed or feed()
    times, compiled = measure(
        lambda: exe.run(default_main_program(), fed, [loss]), 0.0, examples=len(fed["x"])
    )
    return replace(times, update_bytes=update_bytes(compiled))


def cluster(hosts: int = 2, ranks: int = 2, gbit_per_s: float = 1.0) -> Topology:
    kind = HostKind("ethernet", hosts, cores=ranks, ranks=ranks)
    link = Link(gbit_per_s, latency_us=50, message_us=10, cpu_s_per_gb=0.2)
    return Topology((kind,), {"ethernet": link}, shared_memory=SharedMemory())
