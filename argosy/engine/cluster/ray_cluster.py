"""The Ray cluster of a job: an existing one, or a local one that is started and stopped; the resources of its nodes."""

# SPDX-License-Identifier: Apache-2.0
import re
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
from argosy.engine.errors import ConfigError

PLACEMENTS = ("STRICT_SPREAD", "PACK")
WAIT_S = 60.0
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_OBJECT_STORE = 100 << 20
"""Bytes of a local cluster's object store: only output, metrics and results pass through it."""
_MAX_FOLDER = 40
"""Length of the path of Ray's folder, whose Unix sockets may have 107 characters."""
_token = secrets.token_hex(32)
"""Of local clusters: one per process, because Ray reads it once."""


@dataclass(frozen=True)
class Request:
    """What a job asks of the cluster."""

    nodes: int
    cpus: float
    memory: int | None
    gpus: int
    placement: str
    wait_s: float
    """How long to wait for the resources, at the start and after the loss of a node."""

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of each node, in Ray's names."""
        resources: dict[str, float] = {"CPU": self.cpus}
        if self.memory is not None:
            resources["memory"] = self.memory
        if self.gpus:
            resources["GPU"] = self.gpus
        return resources


def request(job: ClusterJob, is_local: bool) -> Request:
    """The settings of a job, checked. A local cluster has one Ray node, which all nodes of the job share."""
    settings, several = job.settings, job.nodes > 1
    placement = settings.get("placement", "PACK" if is_local or not several else "STRICT_SPREAD")
    if placement not in PLACEMENTS:
        raise ConfigError(f"--placement={placement}; use one of {', '.join(PLACEMENTS)}")
    if is_local and several and placement == "STRICT_SPREAD":
        raise ConfigError(
            f"--placement=STRICT_SPREAD needs {job.nodes} Ray nodes, but a local cluster has one; use PACK, or "
            "--address of a cluster"
        )
    cpus = float(number(settings.get("cpus", str(_processes(job))), "--cpus"))
    wait_s = number(settings.get("wait", f"{WAIT_S:g}"), "--wait")
    gpus = len(job.config.gpus or ())
    return Request(job.nodes, cpus, memory_bytes(settings.get("memory")), gpus, placement, wait_s)


def _processes(job: ClusterJob) -> int:
    """The processes of the node that has most of them."""
    config = job.config
    if config.worker_num is not None or config.server_num is not None:
        return -(-(config.worker_num or 0) // job.nodes) + -(-(config.server_num or 0) // job.nodes)
    return config.nproc_per_node or len(config.gpus or ()) or 1


def number(text: str, name: str) -> float:
    """A number greater than 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"{name}={text}: use a number greater than 0")
    return value


def memory_bytes(text: str | None) -> int | None:
    """16G, 500M: bytes, in powers of 1024."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None or not float(match[1]):
        raise ConfigError(f"--memory={text} is no size; write for example 16G or 500M")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def load_ray() -> Any:
    """The package ray; ConfigError if it is not installed."""
    try:
        return import_module("ray")
    except ImportError as e:
        raise ConfigError(
            f"Ray is not installed in {sys.prefix} ({e}); install torch first, then: pip install 'argosy[ray]'"
        ) from e


@dataclass(frozen=True)
class Connection:
    """A connection of this process to a Ray cluster."""

    is_local: bool
    close: Callable[[], None]


def connect(job: ClusterJob) -> Connection:
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
        return Connection(is_local=False, close=lambda: None)
    try:
        _init(ray, address=address)
    except (ConnectionError, ValueError, RuntimeError) as e:
        if address != "auto":
            reason = str(e).strip().splitlines()[0]
            raise ConfigError(
                f"cannot connect to the Ray cluster at {address} ({reason}); check --address and RAY_ADDRESS"
            ) from e
        return _start_local(job)
    return Connection(is_local=False, close=ray.shutdown)


def _init(ray: Any, **options: Any) -> None:
    ray.init(log_to_driver=False, logging_level="warning", **options)


def _start_local(job: ClusterJob) -> Connection:
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
        import_module("ray._private.ray_constants").ENABLE_RAY_CLUSTER = False
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
    return Connection(is_local=True, close=close)


def _folder() -> str:
    """A new folder for Ray's session, with a short path."""
    base = None if len(tempfile.gettempdir()) <= _MAX_FOLDER else "/tmp"
    return tempfile.mkdtemp(prefix="argosy-ray-", dir=base)
