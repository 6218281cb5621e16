"""The role of a program in a job with parameter servers.

None          an ordinary program: the executor runs it
TrainerRole   the executor connects to the servers, and runs it
ServerRole    the executor serves it until all trainers have left
WorkerStartup the startup program of a worker: the executor runs it unless the worker is connected already
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor

from argosy.engine.ps.protocol.job_plan import JobPlan


@dataclass(frozen=True)
class FedLookup:
    """A lookup in a server's table whose ids are fed, so that its rows can be pulled one batch ahead."""

    table: str
    feeds: tuple[str, ...]
    """The feeds with the ids."""


@dataclass(frozen=True)
class TrainerRole:
    """The program sends its gradients to parameter servers, and pulls parameters from them."""

    plan: JobPlan
    number: int
    """The trainer's number, from 0."""
    fed_lookups: tuple[FedLookup, ...] = ()
    """The lookups to prefetch when the next feed is known; none in a program for testing."""


@dataclass(frozen=True)
class ShardOf:
    """The variable of the single-process program that a server's variable is a shard of."""

    name: str
    first: int | None
    """The first row of the shard; None: it is the whole variable, such as a step count."""


@dataclass(frozen=True)
class ServedBlock:
    """The variables of a server's program that update one block."""

    gradient: str
    rate: str | None = None
    """The learning rate; None under geo, where trainers send changes instead of gradients."""
    backup: str | None = None
    """The value that the trainer computed the gradient with, for DC-ASGD."""
    master: str | None = None
    """The float32 master copy, which is initialized from the block."""


@dataclass(frozen=True)
class SavedValues:
    """Initial values of a server from a save of any number of servers."""

    dense: Mapping[str, Tensor] | None
    """The single-process program's variables; None: only tables are loaded."""
    folder: Path
    """The directory with the rows of the tables."""
    files: Mapping[str, Any] | None
    """The manifest of the saved tables: number of servers, files with checksums; None: saved by Paddle."""
    tables: frozenset[str]
    """The tables to load."""


@dataclass(frozen=True)
class ServerRole:
    """The program updates the blocks of one parameter server."""

    plan: JobPlan
    number: int
    """The server's number, from 0."""
    blocks: Mapping[str, ServedBlock] = field(default_factory=dict)
    """By the name of the block."""
    shards: Mapping[str, ShardOf] = field(default_factory=dict)
    """By the name of the server's variable: blocks and optimizer state."""
    on_trainers: tuple[str, ...] = ()
    """Variables that are local to each trainer: statistics, parameters that are not trained."""
    saved: SavedValues | None = None
    """None: the startup program has computed the initial values."""


@dataclass(frozen=True)
class WorkerStartup:
    """The startup program of a worker that `fleet.init_worker` has connected.

    While it is connected, its variables have the values of the servers, and a run of this program changes nothing:
    scripts may run the startup program before `fleet.init_worker` (2.0) or after it (1.x).
    """


JobRole: TypeAlias = TrainerRole | ServerRole | WorkerStartup
