"""A piece of work that took time, and the one that it followed: a step of the critical path."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any

from argosy.engine.planner.costs import Cost


@dataclass(frozen=True, eq=False)
class WorkRecord:
    """Computation, a collective, a flow, a request in a server's thread, or its wait in the queue."""

    kind: str
    """compute, network, memory, flow, service, queue, update."""
    actor: int
    about: Any
    """compute: the Op; a collective: what was started; a request: the ServerRequest."""
    began: float
    ended: float
    previous: "WorkRecord | None"
    """What had to end before this could begin, last of all."""
    cost: Cost | None = None
    """Of a collective: the parts of its duration."""
