"""The limit of open files (`ulimit -n`): a process that many others connect to raises its soft limit."""

# SPDX-License-Identifier: Apache-2.0
import resource

from argosy.engine import process_effects
from argosy.engine.errors import ConfigError

OTHER_FILES = 256
"""Besides connections: libraries, logs, data files."""


def allow(connections: int, what: str) -> None:
    """Raise the soft limit if this many connections need it; ConfigError if the hard limit is too low.

    `what` begins the error: which process needs them, for what. Child processes inherit the limit.
    """
    needed = connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"{what} need {needed} open files there, and the limit is {hard}; "
            "raise it on that host (ulimit -Hn, or LimitNOFILE of the service that starts the job)"
        )

    def apply() -> process_effects.Undo:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    process_effects.install("open-files", apply)
