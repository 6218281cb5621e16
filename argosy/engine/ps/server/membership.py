"""The membership of a job on one server: live, left, excluded and unresponsive trainers; and the step to start from.

Servers of a new job that start from the state of an earlier one agree on the last step that all of them have done. A
kill of the whole job may leave one server a step ahead of another, and no trainer is left to send the missing step
again. So each server asks the others for their last step, and rolls back to the smallest.
"""

# SPDX-License-Identifier: Apache-2.0
import time
from collections.abc import Callable

from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.log import NOTICE, logger
from argosy.engine.ps.protocol import messages
from argosy.engine.ps.protocol.job_plan import JobPlan
from argosy.engine.ps.protocol.messages import Restored, read
from argosy.engine.ps.rpc.client import Client
from argosy.engine.ps.rpc.server import Request
from argosy.engine.ps.rpc.sockets import RpcSettings

_POLL_S = 0.05


class Membership:
    """The state of each trainer; the service's lock guards changes."""

    def __init__(self, trainers: int) -> None:
        self.live = set(range(trainers))
        self.left: set[int] = set()
        self.excluded: dict[int, Request] = {}
        """Trainers in a collective: steps do not wait for them. The reply to the request is sent when they are back."""
        self.unresponsive: dict[int, float] = {}
        """Trainers that a launcher may restart, and since when they are unresponsive."""
        self._incarnations: dict[int, str] = {}
        self._hello_ids: dict[int, int] = {}
        """The sequence number of each trainer's last hello, in this incarnation: a fence for earlier requests."""

    def active(self) -> set[int]:
        """The trainers whose gradients a step needs."""
        return self.live - self.excluded.keys()

    def register(self, request: Request) -> bool:
        """A trainer starts, restarts a step, or is back from a collective; True if it had left."""
        trainer, incarnation = request.trainer, request.client
        self.unresponsive.pop(trainer, None)
        if (paused := self.excluded.pop(trainer, None)) is not None and not paused.is_replied:
            paused.reply()
        had_left = trainer in self.left
        if trainer not in self.live:
            logger.warning("trainer %d has rejoined", trainer)
            self.live.add(trainer)
            self.left.discard(trainer)
        if self._incarnations.get(trainer, incarnation) != incarnation:
            logger.log(NOTICE, "trainer %d has restarted (or two processes have this number)", trainer)
        self._incarnations[trainer], self._hello_ids[trainer] = incarnation, request.id
        return had_left

    def is_registered(self, request: Request) -> bool:
        """True if this incarnation has sent a hello before."""
        return self._incarnations.get(request.trainer) == request.client

    def is_current_incarnation(self, request: Request) -> bool:
        return self._incarnations.get(request.trainer, request.client) == request.client

    def is_outdated(self, request: Request) -> bool:
        """True if it was sent before the last hello: handlers run concurrently, so it may be late."""
        return request.id < self._hello_ids.get(request.trainer, 0)

    def pause(self, request: Request) -> None:
        """Exclude a trainer from steps until its next hello, unless that has arrived already."""
        self.check(request)
        if self.is_outdated(request):
            request.reply()
        else:
            self.excluded[request.trainer] = request

    def check(self, request: Request) -> None:
        """Raise if a request is of a previous incarnation of its trainer, or of a trainer that was dropped."""
        trainer = request.trainer
        if not self.is_current_incarnation(request):
            raise ConfigError(
                f"trainer {trainer} has restarted; this is a request of its previous incarnation, end that process"
            )
        if trainer not in self.live:
            raise ConfigError(
                f"trainer {trainer} was unresponsive and was dropped; restart it to rejoin the job"
            )


def named(numbers: list[int], group: str = "trainers") -> str:
    """trainers 1, 3"""
    return f"{group if len(numbers) != 1 else group[:-1]} {', '.join(map(str, numbers))}"


def common_step(
    plan: JobPlan, number: int, mine: Restored, settings: RpcSettings, is_stopped: Callable[[], bool]
) -> int | None:
    """The last step that all servers have done; None if they have no state. ConfigError if they disagree."""
    restored = {number: mine, **_others(plan, number, settings, is_stopped)}
    steps = {server: state.step for server, state in sorted(restored.items())}
    if any(step is None for step in steps.values()):
        if not all(state.is_untouched for state in restored.values()):
            raise ConfigError(
                f"some servers have no state and others have done steps: {_listed(steps)}; restore the missing "
                "state directory, or start all servers from a saved model, in another directory"
            )
        return None
    known = [step for step in steps.values() if step is not None]
    if max(known) - min(known) > 1 and plan.mode == "sync":
        raise ConfigError(
            f"the servers' states are of different jobs: {_listed(steps)}; restore the state directories of one "
            "job, or start all servers from a saved model, in another directory"
        )
    return min(known)


def _others(
    plan: JobPlan, number: int, settings: RpcSettings, is_stopped: Callable[[], bool]
) -> dict[int, Restored]:
    others = [server for server in range(len(plan.endpoints)) if server != number]
    if not others:
        return {}
    with Client([plan.endpoints[server] for server in others], f"server {number}", -1, settings) as client:
        kind, meta = messages.kind(messages.LastStep), messages.meta(messages.LastStep())
        pending = [client.start(place, kind, meta) for place in range(len(others))]
        while not all(reply.is_done() for reply in pending):
            if is_stopped():
                raise ProgramError("the server was stopped while it waited for the others")
            time.sleep(_POLL_S)
        replies = [reply.wait("its last step") for reply in pending]
    return {server: read(Restored, reply.meta) for server, reply in zip(others, replies, strict=True)}


def _listed(steps: dict[int, int | None]) -> str:
    return ", ".join(
        f"server {server} {'no state' if step is None else f'step {step}'}" for server, step in steps.items()
    )
