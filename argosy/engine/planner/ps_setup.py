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


@dataclass(frozen=True)
class PsSetup:
    """The servers of a job; its ranks are the workers. Each server has an equal part of all variables and rows."""

    mode: Literal["sync", "half_async", "async", "geo"]
    servers: int = 1
    servers_per_host: int = 1
    """Servers on hosts of their own."""
    link: str = ""
    """The link of these hosts; "": that of the first hosts."""
    threads: int = 4
    """Threads of a server that run requests: a thread pool with a queue."""
    request_us: float = 100.0
    """A request in its thread: decode, dispatch, reply."""
    push_s_per_gb: float = 0.3
    """Pushed bytes: to sum them up, or in async mode to update with them."""
    pull_s_per_gb: float = 0.2
    """Pulled bytes, and rows that are looked up."""
    update_s_per_gb: float = 0.6
    """sync, half_async: mean, optimizer and log, once per step, per GB of gradients of one worker on one server."""
    k_steps: int = 1
    """geo: workers synchronize every k steps."""
    merged_steps: int = 1
    """async: gradients of so many steps are sent together."""
    pull_every: int = 1
    """async: parameters are pulled in every n-th step."""

    def __post_init__(self) -> None:
        for key in ("servers", "servers_per_host", "threads", "k_steps", "merged_steps", "pull_every"):
            check(getattr(self, key) >= 1, f"parameter servers: {key} is {getattr(self, key)}; use 1 or more")
        for key in ("request_us", "push_s_per_gb", "pull_s_per_gb", "update_s_per_gb"):
            check(
                is_time(getattr(self, key)),
                f"parameter servers: {key} is {getattr(self, key)}; use 0 or more",
            )

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
