"""The error file of a failed process, written by bootstrap.py: one JSON object."""

# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import dataclass

from argosy.engine.launch.console import logger


@dataclass(frozen=True)
class ErrorRecord:
    """The exception that ended a process."""

    type: str
    """With its module, unless that is builtins or the script."""
    message: str
    where: str
    """The innermost line of the user's code."""
    traceback: str
    exit_code: int
    """Negative: the number of a signal."""
    pid: int
    time: float
    """By time.time()."""
    step: int | None
    """Steps that the rank had finished; None if unknown."""
    ranks: tuple[int, ...] = ()
    """The ranks that it blames: they were lost, or did not join."""
    state: str = ""
    """The state of those ranks, as far as it is known: left, failed, lost, unresponsive or late."""

    @property
    def what(self) -> str:
        """Type and first line of the message."""
        first = self.message.partition("\n")[0]
        return f"{self.type}: {first}" if first else self.type


def read(path: str) -> ErrorRecord | None:
    """Read the record of a process; None if there is no readable file."""
    try:
        with open(path) as file:
            fields = json.load(file)
        return ErrorRecord(**fields | {"ranks": tuple(fields["ranks"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as e:
        logger.warning("cannot read the error file %s (%s); see the log of that process", path, e)
        return None
