"""The files of a run: workerlog.N, serverlog.N, endpoints.log, fleetrun.log. Old ones are kept aside."""

# SPDX-License-Identifier: Apache-2.0
import os
import re
from collections.abc import Mapping, Sequence

from argosy.engine.errors import ConfigError

KEPT = 5
OWN_LOG = "fleetrun.log"
_CURRENT = re.compile(r"(?:worker|server)log\.\d+|endpoints\.log|fleetrun\.log")


def prepare(log_dir: str) -> None:
    """Make the directory; raise if nothing can be written there."""
    try:
        os.makedirs(log_dir, exist_ok=True)
        probe = os.path.join(log_dir, f".fleetrun-{os.getpid()}")
        os.close(os.open(probe, os.O_CREAT | os.O_WRONLY, 0o644))
        os.unlink(probe)
    except OSError as e:
        raise ConfigError(
            f"--log_dir={log_dir}: cannot write there ({e.strerror}); choose another directory"
        ) from e


def rotate(log_dir: str, keep: str = "") -> None:
    """Set the files of the last run aside, except `keep`: x -> x.1 -> x.2 …; the oldest of five is dropped.

    All of them, also those of ranks that the next run does not have: what lies there belongs together.
    """
    for name in sorted(filter(_CURRENT.fullmatch, os.listdir(log_dir))):
        if name != keep:
            set_aside(os.path.join(log_dir, name))


def set_aside(path: str) -> str:
    """Give a file the number 1, and those before it the next number; gives its new name."""
    for number in range(KEPT - 1, 0, -1):
        if os.path.exists(f"{path}.{number}"):
            os.replace(f"{path}.{number}", f"{path}.{number + 1}")
    os.replace(path, f"{path}.1")
    return f"{path}.1"


def process_log(log_dir: str, role: str, local_rank: int) -> str:
    """Where the stdout and stderr of a process of this host go."""
    return os.path.join(log_dir, f"{'serverlog' if role == 'server' else 'workerlog'}.{local_rank}")


def own_log(log_dir: str) -> str:
    """Where the launcher's own lines and its reports go."""
    return os.path.join(log_dir, OWN_LOG)


def write_endpoints(log_dir: str, lists: Mapping[str, Sequence[str]]) -> str:
    """Paddle's endpoints.log: the variable's name, then one endpoint per line; gives its path."""
    path = os.path.join(log_dir, "endpoints.log")
    with open(path, "w") as f:
        f.write("\n".join(f"{name}: \n" + "\n".join(endpoints) for name, endpoints in lists.items()))
    return path


def last_lines(path: str, count: int, max_bytes: int = 256 * 1024) -> list[str]:
    """The end of a log, however long the log is."""
    try:
        with open(path, "rb") as f:
            f.seek(0, os.SEEK_END)
            f.seek(max(0, f.tell() - max_bytes))
            return f.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
