"""What every engine of a cluster does: six operations, one file each under this folder."""

# SPDX-License-Identifier: Apache-2.0
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from argosy.engine.cluster.job import ClusterJob


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    code: int
    """The exit code of fleetrun: 0 only if all nodes succeeded."""
    reason: str
    """One line: the state that the engine reports, and the node that it names."""


class Engine(ABC):
    """Starts `job.node_command()` once per node, with the job's environment, and reports how that ended.

    Nodes, ranks and failures are explained by the launchers themselves, whose output is the log of the job. Every
    method raises ConfigError for what the user can correct: a missing program, an unknown job, an invalid option.
    """

    name: ClassVar[str]
    settings: ClassVar[tuple[str, ...]] = ()
    """The options of `cluster/cli.py` that this engine reads from `job.settings`; others are an error."""
    is_detached: bool = False
    """True if a submitted job lives on without fleetrun, so that `--attach JOBID` can follow it."""
    is_guarded: ClassVar[bool] = False
    """True if the job is a child of fleetrun: it is cancelled also when fleetrun is killed (see launch/guard.py)."""

    def only_plans(self, job: ClusterJob) -> bool:
        """True if the plan is all that this job asks for: the user submits it."""
        return False

    @abstractmethod
    def plan(self, job: ClusterJob) -> str:
        """What `submit` would submit, for --dry_run: the script, command or manifests. Starts nothing."""

    @abstractmethod
    def submit(self, job: ClusterJob) -> str:
        """Start the job; returns its id."""

    @abstractmethod
    def nodes(self, job_id: str) -> tuple[str, ...]:
        """The hosts of the job, in the order of the nodes; empty if the engine has not placed it yet."""

    @abstractmethod
    def logs(self, job_id: str) -> Iterator[str]:
        """The lines that the job prints, without line ends, until it has ended."""

    @abstractmethod
    def wait(self, job_id: str) -> Outcome:
        """Wait until the job has ended."""

    @abstractmethod
    def cancel(self, job_id: str) -> None:
        """End the job and everything that it has started; returns when that is done. Does nothing for an ended job."""
