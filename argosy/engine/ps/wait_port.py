"""Wait until servers serve."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from argosy.engine.ps.rpc.client import Client
from argosy.engine.ps.rpc.settings import Settings


def wait_for_servers(endpoints: Sequence[str]) -> None:
    """Return when all of them answer; an error, which names the first that does not, after the RPC deadline."""
    with Client(endpoints, "a trainer that waits", -1, Settings.from_env()) as client:
        asked = [client.start(server, "ping") for server in range(len(endpoints))]
        for reply in asked:
            reply.wait("the first word")
