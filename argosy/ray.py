"""Jobs on Ray from Python: run a script or a function on the nodes of a cluster; metrics come back to the driver.

    import argosy.ray

    result = argosy.ray.run(train, [0.1], nodes=2, nproc_per_node=2, on_report=print)     # what rank 0 returned
    outcome = argosy.ray.run("train.py", ["--lr=0.1"], nodes=2, nproc_per_node=2)         # outcome.code, outcome.reason

    def train(rate):                       # runs on every rank, as a script of fleetrun does
        ...
        argosy.ray.report(loss=loss)       # on_report(rank, {"loss": …}) on the driver

Needs the package ray: `pip install 'argosy[ray]'`. The command line has the same: `fleetrun --on ray`.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any

from argosy.engine import log
from argosy.engine.cluster import ray_channel, ray_cluster, ray_rank
from argosy.engine.cluster.engine import Outcome
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.ray import RayJob, Report
from argosy.engine.cluster.ray_request import WAIT_S
from argosy.engine.errors import ConfigError, JobFailedError, nearest
from argosy.engine.launch.configuration import Configuration

__all__ = ["JobFailedError", "Outcome", "report", "run"]
_NOT_OPTIONS = ("script", "script_args", "nodes", "node_rank", "master")


def run(
    target: str | os.PathLike[str] | Callable[..., Any],
    args: Sequence[Any] = (),
    *,
    nodes: int = 1,
    address: str | None = None,
    placement: str | None = None,
    cpus: float | None = None,
    memory: str | None = None,
    wait_s: float = WAIT_S,
    environment: Mapping[str, str] | None = None,
    on_report: Report | None = None,
    on_line: Callable[[str], None] = print,
    **options: Any,
) -> Any:
    """Run a script or a function on all ranks of a job on Ray, and wait for its end.

    `args` are the words of the script's command line, or the arguments of the function. `address`, `placement`, `cpus`,
    `memory` and `wait_s` are the options of `fleetrun --on ray`; `options` are those of fleetrun for one host, such as
    `nproc_per_node`, `server_num`, `worker_num` or `max_restarts`. `environment` is set on every rank. Metrics
    that a rank reports are passed to `on_report(rank, metrics)`, lines of output to `on_line`.

    Returns the Outcome of a script; or what the function returned on rank 0 (with parameter servers: on worker 0),
    and raises JobFailedError if the job failed. Function, arguments and result are serialized with Ray's cloudpickle.
    """
    is_function = callable(target)
    job = ClusterJob(
        config=_configuration(target, args, nodes, options),
        name=getattr(target, "__name__", None) or str(target),
        settings=_settings(address=address, placement=placement, cpus=cpus, memory=memory, wait=wait_s),
        environ={"ARGOSY_JOB_TOKEN": secrets.token_hex(16), **(environment or {})},
    )
    ray_cluster.load_ray()
    function = import_module("ray.cloudpickle").dumps((target, tuple(args))) if is_function else None
    running = RayJob(job, ray_cluster.connect(job), function, on_report)
    running.start()
    try:
        for line in running.lines():
            on_line(line)
    except BaseException:
        running.cancel()
        raise
    outcome = running.wait()
    if not is_function:
        return outcome
    if outcome.code != 0 or running.result is None:
        raise JobFailedError(f"{job.name} on Ray ended with exit code {outcome.code}: {outcome.reason}")
    return import_module("ray.cloudpickle").loads(running.result)


def report(**metrics: Any) -> None:
    """Send metrics of this rank to the driver: values that JSON has, NumPy scalars and arrays.

    In a job that does not run on Ray, they are written to the log (ARGOSY_LOG=info).
    """
    text = json.dumps(metrics, default=_plain)
    if ray_channel.is_open():
        ray_channel.send("metrics", text.encode())
    else:
        log.logger.info("metrics: %s", text)


def _plain(value: Any) -> Any:
    """An array or a scalar of NumPy or torch, as JSON has it."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ConfigError(
        f"a metric is a {type(value).__name__}; report numbers, strings, arrays, lists or dictionaries of them"
    )


def _configuration(target: Any, args: Sequence[Any], nodes: int, options: dict[str, Any]) -> Configuration:
    known = [option.name for option in fields(Configuration) if option.name not in _NOT_OPTIONS]
    for name in options:
        if name not in known:
            raise ConfigError(f"argosy.ray.run has no option {name}{nearest(name, known)}")
    if callable(target):
        return Configuration(script=ray_rank.MODULE, nodes=nodes, **{**options, "module": True})
    words = tuple(map(str, args))
    return Configuration(script=os.fspath(target), script_args=words, nodes=nodes, **options)


def _settings(**given: Any) -> dict[str, str]:
    return {name: f"{value}" for name, value in given.items() if value is not None}
