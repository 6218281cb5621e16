"""sshd on each host of hosts.py: unpacked from its Debian package, not installed; keys and configuration of its own."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from lab import inside

from tests.engines.hosts import Hosts
from tests.engines.proof import wait_until

PORT = 2222
_CONFIG = """Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
LogLevel ERROR
"""
_CLIENT = """Host *
  IdentityFile {folder}/{key}
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/{known_hosts}
  GlobalKnownHostsFile /dev/null
  User root
Host node*
  Port {port}
Host node0
  HostName host0
Host node1
  HostName host1
"""
# A user `sshd` and a directory that only this process sees: nothing of the system is changed.
_START = """
mount --bind {folder}/passwd /etc/passwd && mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd &&
exec {program} -D -e -f {folder}/sshd_config
"""


class Sshd:
    """The programs and keys of sshd, and the configurations of clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._program, self._libraries = _unpack(folder)
        for name in ("host_key", "user_key", "other_key"):
            _call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
        public = (folder / "host_key.pub").read_text()
        names = (f"[{host}]:{PORT} {public}" for host in ("host0", "host1"))
        (folder / "known_hosts").write_text("".join(names))
        (folder / "no_hosts").touch()
        (folder / "passwd").write_text(
            Path("/etc/passwd").read_text() + "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"
        )
        (folder / "sshd_config").write_text(_CONFIG.format(port=PORT, folder=folder))
        self.client = self.client_config("config", "user_key", "known_hosts")

    def client_config(self, name: str, key: str, known_hosts: str) -> str:
        """A configuration of ssh with this key and these known hosts; its path."""
        path = self.folder / name
        path.write_text(_CLIENT.format(folder=self.folder, key=key, known_hosts=known_hosts, port=PORT))
        return str(path)

    @contextlib.contextmanager
    def running(self, hosts: Hosts) -> Iterator[None]:
        """An sshd on each host."""
        start = _START.format(folder=self.folder, program=self._program)
        environ = os.environ | {"LD_LIBRARY_PATH": self._libraries}
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context((self.folder / "errors").open("w"))
            for host in range(len(hosts.names)):
                command = [*hosts.enter(host), "/bin/sh", "-c", start]
                server = stack.enter_context(subprocess.Popen(command, env=environ, stderr=errors))
                stack.callback(server.terminate)
                wait_until(partial(_listens_or_has_ended, hosts, host, server))
                assert server.poll() is None, (self.folder / "errors").read_text()
            yield


def _listens_or_has_ended(hosts: Hosts, host: int, server: "subprocess.Popen[bytes]") -> bool:
    return server.poll() is not None or _listens(hosts, host)


def _listens(hosts: Hosts, host: int) -> bool:
    with inside(hosts.networks[host]), contextlib.suppress(OSError):
        socket.create_connection((hosts.addresses[host], PORT)).close()
        return True
    return False


def _unpack(folder: Path) -> tuple[Path, str]:
    """The program, and the directory of its libraries; skips the test if the package cannot be downloaded."""
    for program in ("ssh", "ssh-keygen", "dpkg", "apt-get"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} here; run tests/engines/install.py as root")
    packages = folder / "packages"
    packages.mkdir()
    done = subprocess.run(
        ["apt-get", "download", "openssh-server", "libwrap0"],
        cwd=packages,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"apt-get cannot download openssh-server: {done.stderr.strip()}")
    for package in packages.glob("*.deb"):
        _call("dpkg", "-x", str(package), str(folder / "root"))
    library = next((folder / "root").rglob("libwrap.so.0"))
    return folder / "root/usr/sbin/sshd", str(library.parent)


def _call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
