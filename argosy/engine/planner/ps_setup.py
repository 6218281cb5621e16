"""Parameter servers: how many, where, and how long a request takes. Part of a prediction, beside the topology."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from argosy.engine.planner.data_files import (
    check,
    from_data,
    is_time,
    read_toml,
    to_data,
    toml_text,
    write_text,
)

VERSION = 1
_TIMES = (
    "request_us",
    "push_s_per_gb",
    "pull_s_per_gb",
    "update_s_per_gb",
    "update_us",
    "mean_s_per_gb",
    "wake_us",
    "worker_message_us",
    "worker_s_per_gb",
    "server_message_us",
    "server_s_per_gb",
)


@dataclass(frozen=True)
class PsSetup:
    """The servers of a job; its ranks are the workers. Each server has an equal part of all variables and rows."""

    mode: Literal["sync", "half_async", "async", "geo"]
    servers: int = 1
    servers_per_host: int = 1
    """Servers on hosts of their own."""
    link: str = ""
    """The link of these hosts; "": that of the first hosts."""
    cores: int = 0
    """Of a host of servers, shared by the threads of its servers; 0: a core for each of them."""
    threads: int = 4
    """Threads of a pool of a server; pushes, pulls and lookups have a pool with a queue each."""
    wake_us: float = 0.0
    """From the arrival of a message to the thread that handles it, beyond core time."""
    worker_message_us: float = 0.0
    """Core time of a worker's transport thread for a message to or from a server."""
    worker_s_per_gb: float = 0.0
    server_message_us: float = 0.0
    """Core time of a server's transport and dispatch threads for a message."""
    server_s_per_gb: float = 0.0
    request_us: float = 100.0
    """A request in its thread: decode, dispatch, reply."""
    push_s_per_gb: float = 0.3
    """Pushed bytes: to sum them up, or in async mode to update with them."""
    pull_s_per_gb: float = 0.2
    """Pulled bytes, and rows that are looked up."""
    update_s_per_gb: float = 0.6
    """sync, half_async: mean, optimizer and log, once per step, per GB of gradients of one worker on one server."""
    update_us: float = 0.0
    """The same, whatever the bytes are."""
    mean_s_per_gb: float = 0.0
    """sync: the mean and the replies, per GB of gradients of each worker but the first."""
    k_steps: int = 1
    """geo: workers synchronize every k steps."""
    merged_steps: int = 1
    """async: gradients of so many steps are sent together."""
    pull_every: int = 1
    """async: parameters are pulled in every n-th step."""

    def __post_init__(self) -> None:
        for key in ("servers", "servers_per_host", "threads", "k_steps", "merged_steps", "pull_every"):
            check(getattr(self, key) >= 1, f"parameter servers: {key} is {getattr(self, key)}; use 1 or more")
        check(self.cores >= 0, f"parameter servers: cores is {self.cores}; use 0 or more")
        for key in _TIMES:
            check(
                is_time(getattr(self, key)),
                f"parameter servers: {key} is {getattr(self, key)}; use 0 or more",
            )

    @property
    def takes_cores(self) -> bool:
        """The threads of servers, or those of the workers' transport, compete for cores."""
        transport = self.worker_message_us + self.worker_s_per_gb
        return bool(self.cores or transport)

    @property
    def is_synchronous(self) -> bool:
        """Workers do their steps together."""
        return self.mode in ("sync", "half_async")

    def to_toml(self) -> str:
        """The content of a file."""
        return toml_text(to_data(self, VERSION))

    def write(self, path: Path) -> None:
        """Write the file atomically."""
        write_text(path, self.to_toml())


def ps_setup_from(content: dict[str, Any], where: str) -> PsSetup:
    """The setup of a file's content."""
    return from_data(PsSetup, content, where, VERSION)


def read_ps_setup(path: Path) -> PsSetup:
    """Read a TOML file that describes the servers."""
    return ps_setup_from(read_toml(path, "description of parameter servers"), str(path))
