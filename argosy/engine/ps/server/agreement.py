"""Servers of a new job that start from the state of an earlier one agree on the last step that all of them have done.

A kill of the whole job may leave one server a step ahead of another, and no trainer is left to send the missing step
again. So each server asks the others for their last step, and rolls back to the smallest.
"""

# SPDX-License-Identifier: Apache-2.0
import time
from collections.abc import Callable

from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ps import messages
from argosy.engine.ps.job_plan import JobPlan
from argosy.engine.ps.messages import Restored, read
from argosy.engine.ps.rpc.client import Client
from argosy.engine.ps.rpc.settings import RpcSettings

_POLL_S = 0.05


def common_step(
    plan: JobPlan, number: int, mine: Restored, settings: RpcSettings, is_stopped: Callable[[], bool]
) -> int | None:
    """The last step that all servers have done; None if they have no state. ConfigError if they disagree."""
    restored = {number: mine, **_others(plan, number, settings, is_stopped)}
    steps = {server: one.step for server, one in sorted(restored.items())}
    if any(step is None for step in steps.values()):
        if not all(one.is_untouched for one in restored.values()):
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
        replies = [reply.wait("the last step that it has done") for reply in pending]
    return {server: read(Restored, reply.meta) for server, reply in zip(others, replies, strict=True)}


def _listed(steps: dict[int, int | None]) -> str:
    return ", ".join(
        f"server {server} {'no state' if step is None else f'step {step}'}" for server, step in steps.items()
    )
