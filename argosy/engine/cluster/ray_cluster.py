"""The Ray cluster of a job: an existing one, or a local one that is started and stopped."""

# SPDX-License-Identifier: Apache-2.0
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from argosy.engine import env, process_effects
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.ray_request import request
from argosy.engine.errors import ConfigError

_OBJECT_STORE = 100 << 20
"""Bytes of a local cluster's object store: only output, metrics and results pass through it."""
_MAX_FOLDER = 40
"""Length of the path of Ray's folder, whose Unix sockets may have 107 characters."""
_token = secrets.token_hex(32)
"""Of local clusters: one per process, because Ray reads it once."""


def load_ray() -> Any:
    """The package ray; ConfigError if it is not installed."""
    try:
        return import_module("ray")
    except ImportError as e:
        raise ConfigError(
            f"Ray is not installed in {sys.prefix} ({e}); install torch first, then: pip install 'argosy[ray]'"
        ) from e


@dataclass(frozen=True)
class RayConnection:
    """A connection of this process to a Ray cluster."""

    is_local: bool
    close: Callable[[], None]


def connect(job: ClusterJob) -> RayConnection:
    """Connect to --address, RAY_ADDRESS or a running cluster of this host; else start a local one.

    A process that is connected to a cluster already uses that one.
    """
    address = job.settings.get("address") or env.text("RAY_ADDRESS", "") or "auto"
    if address.startswith("ray://"):
        raise ConfigError(
            f"--address={address}: Ray's client protocol is not supported; give HOST:PORT of the head node (port 6379 "
            "by default) on a host of the cluster, or use ray job submit"
        )
    if address == "local":
        return _start_local(job)
    ray = load_ray()
    if ray.is_initialized():
        return RayConnection(is_local=False, close=lambda: None)
    try:
        _init(ray, address=address)
    except (ConnectionError, ValueError, RuntimeError) as e:
        if address != "auto":
            reason = str(e).strip().splitlines()[0]
            raise ConfigError(
                f"cannot connect to the Ray cluster at {address} ({reason}); check --address and RAY_ADDRESS"
            ) from e
        return _start_local(job)
    return RayConnection(is_local=False, close=ray.shutdown)


def _init(ray: Any, **options: Any) -> None:
    ray.init(log_to_driver=False, logging_level="warning", **options)


def _start_local(job: ClusterJob) -> RayConnection:
    """Start a Ray cluster of one node that listens on the loopback interface only, and writes below one folder."""
    asked = request(job, is_local=True)
    folder = _folder()
    effects = process_effects.during("ray-environment")
    effects.__enter__()
    variables = {
        "RAY_AUTH_MODE": "token",  # other users of this host reach the loopback interface, too
        "RAY_AUTH_TOKEN": _token,  # in the environment: Ray writes no file into the home directory
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's switch for the loopback address
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # Ray's default is 15, and the ranks would inherit it
    }
    restore = env.set_variables(variables)

    def close() -> None:
        load_ray().shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        restore()
        effects.__exit__(None, None, None)

    try:
        ray = load_ray()
        # A process that imported Ray before has read the variable already.
        vars(import_module("ray._private.ray_constants"))["ENABLE_RAY_CLUSTER"] = False
        import_module("ray._raylet").Config.initialize("")
        _init(
            ray,
            address="local",
            num_cpus=max(1, int(asked.nodes * asked.cpus)),
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
    except BaseException:
        close()
        raise
    return RayConnection(is_local=True, close=close)


def _folder() -> str:
    """A new folder for Ray's session, with a short path."""
    base = None if len(tempfile.gettempdir()) <= _MAX_FOLDER else "/tmp"
    return tempfile.mkdtemp(prefix="argosy-ray-", dir=base)


def draining_nodes() -> set[str]:
    """Ray's ids of the nodes that are about to be removed: by an autoscaler, a preemption, `ray drain-node`."""
    return set(import_module("ray._private.state").state.get_draining_nodes())


def resources(ray: Any) -> str:
    """The alive nodes with their CPUs, for messages."""
    alive = [
        f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}) with CPU {node['Resources'].get('CPU', 0):g}"
        for node in ray.nodes()
        if node["Alive"]
    ]
    return "; ".join(alive) or "no live node"


def reason_of(error: Exception) -> str:
    """The line of a Ray error that says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "because" in line or "Error: " in line]
    return (telling or lines or [type(error).__name__])[-1]
