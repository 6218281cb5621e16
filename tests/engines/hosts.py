"""Two hosts on this machine: network namespaces of the lab, each with a host name and one hosts file.

with two_hosts(folder) as hosts:
    hosts.enter(0)              a command prefix that runs a command on host 0
    hosts.agent                 `agent HOST COMMAND …`: what mpirun uses in place of ssh
    hosts.kill(1)               kill all processes on host 1, as if it had lost its power
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from lab.namespaces import FOLDER, processes

from tests.jobs.test_lab import a_lab

_ENTER = """#!/bin/sh
# enter NUMBER COMMAND …: run a command on a host, with its name and the hosts file of the job
number=$1; shift
case $number in
{cases}
*) echo "enter: there is no host $number" >&2; exit 255 ;;
esac
exec nsenter --net=$network unshare --uts --mount /bin/sh -c '
hostname "$1" && mount --bind {hosts} /etc/hosts && shift && exec "$@"' sh "$name" "$@"
"""
_AGENT = """#!/bin/sh
# agent [-x …] HOST COMMAND …: as ssh, without a network; the environment is not passed
while :; do case $1 in -*) shift ;; *) break ;; esac; done
host=$1; shift
exec env -i PATH="$PATH" HOME="$HOME" TMPDIR="$TMPDIR" {enter} "${{host#host}}" /bin/sh -c "$*"
"""


class Hosts:
    """The hosts `host0` and `host1`; commands on them share this machine's files and processes."""

    def __init__(self, folder: Path, networks: list[str], addresses: list[str]) -> None:
        self.names = [f"host{i}" for i in range(len(networks))]
        self.addresses, self.networks = addresses, networks
        table = folder / "hosts"
        lines = [f"{address} {name}" for address, name in zip(addresses, self.names, strict=True)]
        table.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        cases = "\n".join(
            f"{i}) network={FOLDER / network} name={self.names[i]} ;;" for i, network in enumerate(networks)
        )
        self._enter = _script(folder / "enter", _ENTER.format(cases=cases, hosts=shlex.quote(str(table))))
        self.agent = _script(folder / "agent", _AGENT.format(enter=shlex.quote(self._enter)))

    def enter(self, host: int) -> list[str]:
        """The prefix of a command that runs on this host."""
        return [self._enter, str(host)]

    def kill(self, host: int, at_once: bool = False) -> None:
        """Kill all processes on a host. `at_once`: none of them sees that another one was killed before."""
        if at_once:
            self._signal(host, signal.SIGSTOP)
        while processes([self.networks[host]]):
            self._signal(host, signal.SIGKILL)

    def _signal(self, host: int, number: signal.Signals) -> None:
        for pid in processes([self.networks[host]]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@contextlib.contextmanager
def two_hosts(folder: Path) -> Iterator[Hosts]:
    """Two connected hosts; skips the test where there can be none."""
    with a_lab(None) as lab:
        yield Hosts(folder, lab.names, lab.addresses)
