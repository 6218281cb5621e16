"""A connection: shells in place of ssh print what ssh prints."""

# SPDX-License-Identifier: Apache-2.0
import queue

import pytest

from argosy.engine.cluster.ssh_connection import STARTED, Event, SshConnection


def connection(script: str) -> tuple[SshConnection, "queue.SimpleQueue[Event]"]:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    return SshConnection(1, "b", ["sh", "-c", script], {"A": "1", "B": "2"}, events), events


def lines(events: "queue.SimpleQueue[Event]") -> list[str]:
    texts = []
    while (event := events.get(timeout=30.0))[1] is not None:
        assert event[0] == 1
        texts.append(event[1])
    return texts


def test_variables_are_sent_and_standard_input_stays_open_until_it_is_closed() -> None:
    ssh, events = connection(f"read a; read b; read c; echo $a $b $c. >&2; echo {STARTED}; cat; exit 7")
    assert events.get(timeout=30.0) == (1, "A=1 B=2 .")
    assert events.get(timeout=30.0) == (1, STARTED)
    assert not ssh.records(STARTED)
    assert ssh.has_started
    ssh.close()
    assert lines(events) == []
    assert ssh.finish() == 7
    assert ssh.reason() == "host b: exit code 7"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Host key verification failed.", "connect once by hand: ssh b"),
        ("me@b: Permission denied (publickey).", "install one (ssh-copy-id b)"),
        ("ssh: Could not resolve hostname b: Name or service not known", "add it to ~/.ssh/config"),
        ("ssh: connect to host b port 22: Connection refused", "no sshd listens there"),
        ("ssh: connect to host b port 22: No route to host", "the host is down or not reachable"),
        ("kex_exchange_identification: something", "try by hand: ssh -o BatchMode=yes b true"),
    ],
)
def test_messages_of_ssh_are_explained(text: str, reason: str) -> None:
    ssh, events = connection(f"echo '{text}' >&2; exit 255")
    assert all(ssh.records(line) for line in lines(events))
    assert ssh.reason().startswith(f"host b: ssh failed: {text.rstrip('.')}; ")
    assert reason in ssh.reason()


def test_a_lost_connection_and_a_missing_program_are_told_apart() -> None:
    ssh, events = connection(f"echo {STARTED}; echo 'Connection to b closed by remote host.'; exit 255")
    for line in lines(events):
        ssh.records(line)
    assert ssh.reason() == "host b: the connection was lost (Connection to b closed by remote host)"
    ssh, events = connection("echo 'sh: python: not found'; exit 127")
    for line in lines(events):
        ssh.records(line)
    assert ssh.reason() == "host b: exit code 127 (sh: python: not found)"


def test_a_killed_connection_has_the_code_of_the_signal() -> None:
    ssh, events = connection("exec sleep 100")
    ssh.wait(0.0)
    ssh.kill()
    assert lines(events) == []
    assert ssh.finish() == 128 + 9
