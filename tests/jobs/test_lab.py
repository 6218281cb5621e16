"""The lab of benchmarks/lab: its links, the jobs in it, and its clean-up."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import harness
import pytest
import torch
from lab import Lab, inside, measure
from lab.namespaces import FOLDER, processes

from argosy.engine.errors import ConfigError
from tests.engine.launch.conftest import Fleetrun, fleetrun

__all__ = ["fleetrun"]
COMMAND = [sys.executable, "-W", "error", str(Path(__file__).parents[2] / "benchmarks" / "lab")]
CONNECTS = """import socket
endpoints = [e.split(':') for e in os.environ['PADDLE_TRAINER_ENDPOINTS'].split(',')]
address, port = endpoints[0][0], int(endpoints[0][1])
if rank == '0':
    server = socket.socket(fileno=int(os.environ['ARGOSY_STORE_FD']))
    assert server.getsockname() == (address, port)
    greetings = {server.accept()[0].makefile().readline().strip() for _ in endpoints[1:]}
    assert greetings == {'1', '2', '3'}, greetings
else:
    source, until = (endpoints[int(rank)][0], 0), time.monotonic() + 30
    while True:
        try:
            there = socket.create_connection((address, port), 30, source)
            break
        except ConnectionRefusedError:  # the launcher of host 0 does not listen yet
            assert time.monotonic() < until
            time.sleep(0.1)
    with there:
        there.sendall(rank.encode() + b'\\n')
open(f'connected.{rank}', 'w')
"""
"""Each other rank connects to rank 0 from the address of its host."""
WAITS = "open(f'here.{rank}', 'w').write('.\\n')\ntime.sleep(100)"


@contextlib.contextmanager
def a_lab(rate: str | None, hosts: int = 2) -> Iterator[Lab]:
    """A lab, or a skip where there can be none."""
    with contextlib.ExitStack() as stack:
        try:
            lab = stack.enter_context(Lab(hosts, rate))
        except OSError as e:
            pytest.skip(f"network namespaces are not permitted here: {e}")
        yield lab


def left_of(pid: int) -> list[str]:
    """The namespaces that this process has made."""
    return [p.name for p in FOLDER.iterdir() if p.name.startswith(f"argosy-{pid}-")]


def start(fleetrun: Fleetrun, *words: str) -> subprocess.Popen[str]:
    """`python benchmarks/lab` in the directory of the test."""
    with a_lab(None):
        pass  # can there be one?
    return subprocess.Popen(
        [*COMMAND, *words],
        cwd=fleetrun.directory,
        env=fleetrun.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def sums() -> harness.Step:
    """A contender of the harness: the ranks all-reduce over gloo, each on the host of its variables."""
    rank = int(os.environ["RANK"])
    address = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[rank].partition(":")[0]
    socket.create_server((address, 0)).close()
    torch.distributed.init_process_group("gloo")

    def step() -> None:
        total = torch.tensor([1.0])
        torch.distributed.all_reduce(total)
        assert total.item() == float(os.environ["WORLD_SIZE"])

    return step


def test_a_link_has_its_rate_in_both_directions() -> None:
    with a_lab("100mbit") as lab:
        for sender, receiver in ((0, 1), (1, 0)):
            rates = [measure.throughput(lab, sender, receiver, seconds=0.3)]
            while rates[-1] < 80e6 and len(rates) < 10:  # other tests may have had the cores
                rates.append(measure.throughput(lab, sender, receiver, seconds=0.3))
            assert rates[-1] > 80e6
            assert max(rates) < 105e6
        assert measure.round_trip(lab) < 0.005


def test_two_labs_coexist_and_reach_only_their_hosts() -> None:
    with a_lab("100mbit") as one, a_lab(None, hosts=3) as other:
        assert len({*one.names, *other.names}) == 5
        assert len({*one.addresses, *other.addresses}) == 5
        with inside(other.names[2]), pytest.raises(OSError):
            socket.create_connection((one.addresses[0], 1), timeout=0.2)
        one.tear_down()
        assert measure.throughput(other, 0, 2, seconds=0.2) > 100e6
    assert left_of(os.getpid()) == []


def test_an_exception_tears_down_and_ends_what_runs() -> None:
    with contextlib.suppress(ZeroDivisionError), a_lab(None) as lab:
        process = lab.start(1, ["sleep", "100"])
        while not processes(lab.names):
            time.sleep(0.01)
        raise ZeroDivisionError
    assert process.returncode == -signal.SIGTERM
    assert left_of(os.getpid()) == []


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Lab(1), "a lab of 1 hosts; use 2 to 250"),
        (lambda: Lab(2, "fast"), "rate 'fast'; use 1mbit to 100gbit"),
    ],
)
def test_invalid_arguments_are_rejected(make: Callable[[], Lab], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()


def test_without_iproute2_the_package_is_named(fleetrun: Fleetrun) -> None:
    fleetrun.environ["PATH"] = "/nowhere"
    said = start(fleetrun, "--measure").communicate(timeout=30)[0]
    assert said == "error: there is no command 'ip' here; apt-get install iproute2\n"


@pytest.mark.slow
def test_the_harness_spreads_the_ranks_over_the_hosts() -> None:
    with a_lab("1gbit") as lab:
        measured = harness.measure({"sums": sums}, rounds=2, ranks=2, hosts=lab)
        assert len(measured["sums"].seconds) == 2
        with pytest.raises(ConfigError, match="3 ranks do not divide over 2 hosts"):
            harness.measure({"sums": sums}, rounds=1, ranks=3, hosts=lab)


def test_a_job_on_two_hosts_of_two_ranks_succeeds_and_leaves_nothing(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(CONNECTS)
    command = start(fleetrun, "--hosts", "2", "--ranks", "2", "--", script)
    said = command.communicate(timeout=120)[0]
    assert command.returncode == 0, said
    assert "PADDLE_TRAINERS_NUM                        4" in said
    assert sorted(fleetrun.directory.glob("connected.*")) == [
        fleetrun.directory / f"connected.{i}" for i in range(4)
    ]
    logs = [f"log/host{host}/workerlog.{rank}" for host in (0, 1) for rank in (0, 1)]
    assert all((fleetrun.directory / log).exists() for log in logs)
    assert left_of(command.pid) == []
    assert fleetrun.all_gone(within_s=1)


@pytest.mark.parametrize(
    "ignored", ["", pytest.param("signal.signal(15, signal.SIG_IGN)", marks=pytest.mark.slow)]
)
def test_a_job_that_fails_on_one_host_ends_on_all_and_the_cause_is_shown(
    fleetrun: Fleetrun, ignored: str
) -> None:
    script = fleetrun.script(f"if rank == '1': sys.exit(3)\n{ignored}\ntime.sleep(100)")
    command = start(fleetrun, "--", script)
    said = command.communicate(timeout=60)[0]
    assert command.returncode == 1, said
    assert "host 1 failed first; the end of log/host1/console.txt:" in said
    assert "rank 1 of 2" in said
    assert left_of(command.pid) == []
    assert fleetrun.all_gone(within_s=1)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_in_the_middle_leaves_nothing(fleetrun: Fleetrun, number: signal.Signals) -> None:
    command = start(fleetrun, "--ranks", "2", "--", fleetrun.script(WAITS))
    for rank in range(4):
        fleetrun.wait_for(f"here.{rank}")
    command.send_signal(number)
    said = command.communicate(timeout=30)[0]
    assert command.returncode == 128 + number, said
    assert left_of(command.pid) == []
    assert fleetrun.all_gone(within_s=1)


def test_sweep_removes_what_a_killed_lab_has_left(fleetrun: Fleetrun) -> None:
    command = start(fleetrun, "--", fleetrun.script(WAITS))
    for rank in range(2):
        fleetrun.wait_for(f"here.{rank}")
    assert not set(left_of(command.pid)) & set(Lab.leftovers())
    command.kill()
    command.wait()
    left = left_of(command.pid)
    assert len(left) == 3
    assert set(left) <= set(Lab.leftovers())
    subprocess.run([*COMMAND, "sweep"], env=fleetrun.environ, check=True)
    assert left_of(command.pid) == []
    assert fleetrun.all_gone(within_s=1)
    command.communicate()
