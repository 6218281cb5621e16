"""The workers of a job with parameter servers agree on the step boundary at which they stop, by an all-gather.

Unlike the all-gathers of `TrainerGroup`, this one does not exclude the worker from steps meanwhile: a worker that waits
at a boundary still takes part in the step in which the others wait for it.
"""

# SPDX-License-Identifier: Apache-2.0
import torch

from argosy.engine.collective.preemption import NEVER
from argosy.engine.ps.protocol import messages
from argosy.engine.ps.rpc.client import PendingReply
from argosy.engine.ps.trainer.connection import TrainerConnection


class ServerChannel:
    """The workers agree on a boundary through server 0; any server may have been signalled."""

    def __init__(self, connection: TrainerConnection) -> None:
        self._connection = connection
        self._gathered: PendingReply | None = None

    def is_requested(self) -> bool:
        """Whether a worker has published its boundary, or a server was signalled."""
        replies = self._connection.all(messages.PreemptionRequested(), messages.PREEMPTION)
        return any(reply["is_requested"] for reply in replies)

    def publish(self, boundary: int) -> None:
        """Publish the next boundary of this worker."""
        message = messages.AllGather(messages.PREEMPTION, 0)
        self._gathered = self._connection.start(0, message, [torch.tensor([boundary])])

    def decision(self) -> int | None:
        """The maximum over all workers; None until all have published, NEVER if one has left the job."""
        assert self._gathered is not None, "publish is called first"
        if not self._gathered.is_done():
            return None
        boundaries = self._gathered.wait(messages.PREEMPTION).tensors
        if len(boundaries) < self._connection.plan.trainers:
            return NEVER
        return max(int(boundary.item()) for boundary in boundaries)
