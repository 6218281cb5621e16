"""Jobs of real servers and workers: restarts, termination, messages, and that no process is left."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # a conftest is not there to be imported
    from tests.engine.launch.conftest import Fleetrun

WHO = """
import socket
env = os.environ
is_server = env['TRAINING_ROLE'] == 'PSERVER'
endpoint = (env['POD_IP'], int(env['PADDLE_PORT']))
servers = [(e.split(':')[0], int(e.split(':')[1])) for e in env['PADDLE_PSERVERS_IP_PORT_LIST'].split(',')]
index = servers.index(endpoint) if is_server else int(env['PADDLE_TRAINER_ID'])
who = f"{'server' if is_server else 'worker'}{index}"
restart = int(env['ARGOSY_RESTART'])
def here():
    open(f'here.{who}.{restart}', 'w').write(f'{os.getpid()}\\n')
def wait_for(name):
    while not os.path.exists(name): time.sleep(0.01)
def child():
    ignore = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)'
    c = subprocess.Popen([sys.executable, '-c', ignore], stdout=subprocess.PIPE)
    c.stdout.readline()
def until_terminated():
    def terminate(number, frame):
        print('terminated', flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, terminate)
    here()
    time.sleep(60)
"""
SERVE = "if is_server: until_terminated()\n"
COUNTS = ("--server_num=2", "--worker_num=2")


def script(fleetrun: Fleetrun, text: str) -> str:
    return fleetrun.script(WHO + text)


def test_servers_are_terminated_when_all_workers_have_exited(fleetrun: Fleetrun) -> None:
    text = (
        "if is_server: until_terminated()\nwait_for('here.server0.0'); wait_for('here.server1.0'); print(who)"
    )
    done = fleetrun.run(*COUNTS, script(fleetrun, text))
    assert done.returncode == 0, done.stderr
    assert [fleetrun.log(i, kind="server") for i in range(2)] == ["terminated\n"] * 2
    assert [fleetrun.log(i) for i in range(2)] == ["worker0\n", "worker1\n"]
    assert done.stdout.endswith("----\nworker0\n")
    said = [line.partition("] ")[2] for line in done.stderr.splitlines() if line.startswith("INFO")]
    assert [line.partition("info (")[0] for line in said] == [
        "Local server start 2 processes. First process distributed environment ",
        "Local worker start 2 processes. First process distributed environment ",
        "Please check servers and workers logs in log/workerlog.* and log/serverlog.*, endpoints in log/endpoints.log",
        "all workers exit, going to finish parameter server.",
        "all parameter server are killed",
        "Local processes completed.",
    ]
    assert "WARNING" not in done.stderr
    assert re.search(r"\| +TRAINING_ROLE +PSERVER +\|", done.stderr)
    endpoints = (fleetrun.directory / "log/endpoints.log").read_text().splitlines()
    assert endpoints[0] == "PADDLE_PSERVERS_IP_PORT_LIST: "
    assert endpoints[3] == "PADDLE_TRAINER_ENDPOINTS: "
    assert len(set(endpoints)) == 6


def test_a_server_without_a_handler_or_with_an_exit_code_is_no_failure(fleetrun: Fleetrun) -> None:
    text = (
        "if who == 'server1': signal.signal(signal.SIGTERM, lambda n, f: sys.exit(3))\n"
        "if is_server: here(); time.sleep(60)\n"
        "wait_for('here.server0.0'); wait_for('here.server1.0')"
    )
    done = fleetrun.run(*COUNTS, script(fleetrun, text))
    assert done.returncode == 0, done.stderr
    assert "server 0 exited" not in done.stderr
    assert "server 1 exited with code 3 after SIGTERM; log: log/serverlog.1\n" in done.stderr


def test_a_server_that_does_not_exit_is_killed(fleetrun: Fleetrun) -> None:
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    script(fleetrun, f"{ignore}\nif is_server: here(); time.sleep(60)\nwait_for('here.server0.0')")
    code = (
        "import sys; from argosy.engine.launch import cli, ps_job; ps_job.SERVER_GRACE_S = 0.5;"
        "sys.exit(cli.main(['--server_num=1', '--worker_num=1', 'train.py']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=fleetrun.directory,
        env=fleetrun.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "server 0 did not exit within 0.5 s after SIGTERM; killing it" in done.stderr


@pytest.mark.parametrize(
    ("failing", "how", "ended"),
    [
        ("worker 1", "raise ValueError('bad batch')", "exit code 1"),
        ("server 0", "os.kill(os.getpid(), 9)", "SIGKILL"),
        pytest.param("worker 1", "os.kill(os.getpid(), 9)", "SIGKILL", marks=pytest.mark.slow),
        pytest.param("server 0", "raise ValueError('bad batch')", "exit code 1", marks=pytest.mark.slow),
    ],
)
def test_a_failed_process_is_reported_and_all_are_terminated(
    fleetrun: Fleetrun, failing: str, how: str, ended: str
) -> None:
    text = f"if who == '{failing.replace(' ', '')}': {how}\nchild(); here(); time.sleep(60)"
    began = time.monotonic()
    done = fleetrun.run(*COUNTS, script(fleetrun, text))
    assert time.monotonic() - began < 8  # 5 s, and the start of four interpreters on a busy machine
    assert done.returncode == 1
    role, index = failing.split()
    report = done.stderr[done.stderr.index(f"{role.capitalize()}Failed") :]
    assert re.match(
        rf"\w+: {failing} of 2 on {re.escape(socket.gethostname())} ended with {ended} "
        rf"\(pid \d+\); log: log/{role}log.{index}\n",
        report,
    )
    if "raise" in how:
        assert "  raised: ValueError: bad batch\n" in report
    others = "servers 0, 1, worker 0" if role == "worker" else "server 1, workers 0, 1"
    assert f"  terminated by fleetrun for that reason: {others}\n" in report
    assert report.endswith(f"ABORT!!! {failing} failed. Please check the log.\n")
    assert fleetrun.all_gone(within_s=1)


def test_a_server_that_exits_before_the_workers_has_failed(fleetrun: Fleetrun) -> None:
    done = fleetrun.run(*COUNTS, script(fleetrun, "if who == 'server1': sys.exit(0)\ntime.sleep(60)"))
    assert done.returncode == 1
    assert re.search(r"ServerFailed: server 1 of 2 on \S+ ended with exit code 0 ", done.stderr)
    assert "  it exited while workers still ran; a server must stay in fleet.run_server()" in done.stderr


def test_servers_may_exit_shortly_before_the_workers(fleetrun: Fleetrun) -> None:
    text = "here()\nif is_server: sys.exit(0)\nwait_for('here.server0.0'); wait_for('here.server1.0'); time.sleep(1)"
    done = fleetrun.run(*COUNTS, script(fleetrun, text))
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def test_a_killed_server_is_restarted_at_its_endpoint_and_no_other_process_is(
    fleetrun: Fleetrun,
) -> None:
    text = (
        "if is_server:\n"
        "    s = socket.create_server(endpoint); here()\n"
        "    print(endpoint, sorted(os.listdir('/proc/self/fd')), flush=True)\n"
        "    while True:\n"
        "        c, _ = s.accept()\n"
        "        if c.recv(4) == b'die!': os.kill(os.getpid(), 9)\n"
        "        c.sendall(b'%d' % restart)\n"
        "wait_for('here.server0.0'); wait_for('here.server1.0')\n"
        "if who == 'worker0': socket.create_connection(servers[1]).sendall(b'die!')\n"
        "wait_for('here.server1.1')\n"
        "for s in servers:\n"
        "    c = socket.create_connection(s); c.sendall(b'who?'); print(c.recv(1), flush=True)\n"
        "print('incarnation', restart)"
    )
    done = fleetrun.run(*COUNTS, "--max_restarts=1", script(fleetrun, text))
    assert done.returncode == 0, done.stderr
    assert [fleetrun.log(i) for i in range(2)] == ["b'0'\nb'1'\nincarnation 0\n"] * 2
    # The same endpoint, and no open file that the first start had not.
    assert fleetrun.log(1, kind="server") == fleetrun.log(1, ".1", kind="server")
    endpoint = (fleetrun.directory / "log/endpoints.log").read_text().splitlines()[2]
    line = f"restart 1 of 1: server 1 ended with SIGKILL and is restarted at {endpoint}; its log is now "
    assert done.stderr.count("restart 1 of 1") == done.stderr.count("is restarted") == 1
    assert f"{line}log/serverlog.1.1\n" in done.stderr
    failed = r"ServerFailed: server 1 of 2 on \S+ ended with SIGKILL \(pid \d+\); log: log/serverlog.1.1\n"
    assert len(re.findall(failed, done.stderr)) == done.stderr.count("ServerFailed") == 1
    assert not (fleetrun.directory / "log/serverlog.0.1").exists()


def test_restarts_are_counted_over_all_processes_and_limited(fleetrun: Fleetrun) -> None:
    text = (
        f"{SERVE}print('incarnation', restart, flush=True)\nwait_for('here.server0.0')\n"
        "if index == 1: wait_for('here.worker0.1'); sys.exit(1)\n"
        "here(); sys.exit(restart == 0)"
    )
    done = fleetrun.run("--server_num=1", "--worker_num=2", "--max_restarts=3", script(fleetrun, text))
    assert done.returncode == 1
    assert re.findall(r"restart (\d of \d): worker \d", done.stderr) == ["1 of 3", "2 of 3", "3 of 3"]
    assert done.stderr.count("WorkerFailed") == 4
    # The console continues with the second incarnation of worker 0.
    assert done.stdout.endswith("----\nincarnation 0\nincarnation 1\n")
    assert fleetrun.log(1) == "incarnation 2\n"


def test_a_worker_that_raised_and_does_not_exit_is_restarted(fleetrun: Fleetrun) -> None:
    text = (
        f"{SERVE}import threading\nwait_for('here.server0.0')\n"
        "if not restart: threading.Thread(target=time.sleep, args=(60,)).start(); raise ValueError('bad batch')\n"
        "print('incarnation', restart)"
    )
    done = fleetrun.run("--server_num=1", "--worker_num=1", "--max_restarts=1", script(fleetrun, text))
    assert done.returncode == 0, done.stderr
    assert "restart 1 of 1: worker 0 ended with exit code 1 and is restarted" in done.stderr
    assert "  raised: ValueError: bad batch\n" in done.stderr
    assert fleetrun.log(0) == "incarnation 1\n"
    assert "bad batch" in (fleetrun.directory / "log/workererror.0.1").read_text()


def test_a_dropped_worker_does_not_end_the_others_but_the_exit_code_is_1(fleetrun: Fleetrun) -> None:
    text = (
        f"{SERVE}if who == 'worker1': here(); raise ValueError('bad batch')\n"
        "wait_for('here.worker1.0'); wait_for('here.server0.0'); wait_for('here.server1.0')\n"
        "time.sleep(1.5); print('trained')"
    )
    done = fleetrun.run(*COUNTS, "--dead_worker=drop", script(fleetrun, text))
    assert done.returncode == 1
    assert fleetrun.log(0) == "trained\n"
    assert fleetrun.log(0, kind="server") == "terminated\n"
    assert (fleetrun.directory / "log" / "dead_workers").read_text() == "1\n"
    dropped = "worker 1 ended with exit code 1 (log: log/workerlog.1) and is dropped; the others continue"
    assert done.stderr.index(dropped) < done.stderr.index("all workers exit")
    report = done.stderr[done.stderr.index("WorkerFailed: worker 1 of 2") :]
    assert "raised: ValueError: bad batch" in report
    assert "terminated by fleetrun" not in report
    assert report.endswith(
        "worker 1 failed, so the exit code is 1; the others continued (--dead_worker=drop)\n"
    )
    assert "ABORT" not in done.stderr


def test_when_all_workers_are_dropped_the_job_ends(fleetrun: Fleetrun) -> None:
    text = f"{SERVE}wait_for('here.server0.0'); wait_for('here.server1.0'); sys.exit(2)"
    done = fleetrun.run(*COUNTS, "--dead_worker=drop", script(fleetrun, text))
    assert done.returncode == 1
    assert "ABORT!!! workers " in done.stderr
    assert fleetrun.log(1, kind="server") == "terminated\n"


def test_a_server_is_never_dropped(fleetrun: Fleetrun) -> None:
    text = "if who == 'server1': sys.exit(2)\ntime.sleep(60)"
    done = fleetrun.run(*COUNTS, "--dead_worker=drop", script(fleetrun, text))
    assert done.returncode == 1
    assert "ServerFailed: server 1 of 2" in done.stderr


def test_tee_shows_all_with_their_names(fleetrun: Fleetrun) -> None:
    text = (
        "print('incarnation', restart, flush=True)\nif is_server: here(); time.sleep(60)\n"
        "wait_for('here.server0.0')\nsys.exit(restart == 0)"
    )
    done = fleetrun.run(
        "--tee", "--server_num=1", "--worker_num=1", "--max_restarts=1", script(fleetrun, text)
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.rpartition("----\n")[2].splitlines()
    assert sorted(lines) == [
        "[server 0] incarnation 0",
        "[worker 0] incarnation 0",
        "[worker 0] incarnation 1",
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_launcher_terminates_all_processes(
    fleetrun: Fleetrun, number: signal.Signals, code: int
) -> None:
    job = fleetrun.start(*COUNTS, "--max_restarts=3", script(fleetrun, "child(); here(); time.sleep(60)"))
    for who in ("server0", "server1", "worker0", "worker1"):
        fleetrun.wait_for(f"here.{who}.0")
    job.send_signal(number)
    _, err = job.communicate(timeout=20)
    assert job.returncode == code
    assert f"{number.name}: all servers and workers were terminated\n" in err
    assert "Failed" not in err
    assert fleetrun.all_gone(within_s=1)


def test_killing_the_launcher_leaves_no_process_not_even_restarted_ones(fleetrun: Fleetrun) -> None:
    text = "if not restart:\n    if who == 'worker1': child(); sys.exit(1)\nchild(); here(); time.sleep(60)"
    job = fleetrun.start(*COUNTS, "--max_restarts=1", script(fleetrun, text))
    for name in ("server0.0", "server1.0", "worker0.0", "worker1.1"):
        fleetrun.wait_for(f"here.{name}")
    assert (
        len(fleetrun.alive()) == 10
    )  # launcher, guard, four processes with a child each; none of an earlier incarnation
    job.kill()
    job.communicate(timeout=20)
    assert fleetrun.all_gone(within_s=5)


def test_the_state_of_servers_is_deleted_unless_the_user_resumes_from_it(fleetrun: Fleetrun) -> None:
    text = (
        "if is_server:\n"
        "    print(os.listdir(env['ARGOSY_SERVER_STATE']), flush=True)\n"
        "    open(env['ARGOSY_SERVER_STATE'] + '/table', 'w').close(); until_terminated()\n"
        "wait_for('here.server0.0'); os.unlink('here.server0.0')"
    )
    name = script(fleetrun, text)
    for words, wanted in (
        (["--max_restarts=1"], "[]\n"),
        (["--max_restarts=1"], "[]\n"),
        (["--server_state=log/server_state"], "['table']\n"),
    ):
        assert fleetrun.run("--server_num=1", "--worker_num=1", *words, name).returncode == 0
        assert fleetrun.log(0, kind="server") == f"{wanted}terminated\n"


def two_hosts() -> list[str]:
    """Servers on 127.0.0.1, workers on it and on 127.0.0.2: two hosts for a launcher."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        server = f"127.0.0.1:{s.getsockname()[1]}"
    return [f"--servers={server}", "--workers=127.0.0.1,127.0.0.2", "--dead_worker=drop"]


def test_servers_outlive_the_workers_of_their_host_for_those_of_others(fleetrun: Fleetrun) -> None:
    text = (
        "if is_server:\n    here(); wait_for('bye.1'); time.sleep(0.5); sys.exit(0)\n"
        "if index == 1: wait_for('go')\n"
        "wait_for('here.server0.0'); open(f'bye.{index}', 'w').write('1\\n')"
    )
    words = [*two_hosts(), script(fleetrun, text)]
    first = fleetrun.start("--host=127.0.0.1", "--log_dir=a", *words, ARGOSY_JOB_TOKEN="s")
    second = fleetrun.start("--host=127.0.0.2", "--log_dir=b", *words, ARGOSY_JOB_TOKEN="s")
    fleetrun.wait_for("bye.0")
    time.sleep(1)
    assert first.poll() is None  # its worker has ended, the other host's has not
    (fleetrun.directory / "go").touch()
    for job in (first, second):
        _, err = job.communicate(timeout=20)
        assert job.returncode == 0, err
    files = ["endpoints.log", "fleetrun.log", "job.json", "metrics", "workerlog.0"]
    assert sorted(os.listdir(fleetrun.directory / "b")) == files


def test_a_host_with_only_servers_waits_for_sigterm(fleetrun: Fleetrun) -> None:
    servers = two_hosts()[0]
    job = fleetrun.start(
        "--host=127.0.0.1", servers, "--workers=127.0.0.2", script(fleetrun, SERVE), ARGOSY_JOB_TOKEN="s"
    )
    fleetrun.wait_for("here.server0.0")
    time.sleep(1)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=20)
    assert job.returncode == 143
    assert fleetrun.log(0, kind="server") == "terminated\n"


def test_invalid_arguments_start_nothing(fleetrun: Fleetrun) -> None:
    fleetrun.script("open('started', 'w')")
    done = fleetrun.run("--server_num=2", "--servers=127.0.0.1:6174", "--worker_num=1", "train.py")
    assert done.returncode == 2
    assert done.stderr == (
        "error: --server_num=2, but --servers lists 1; make them agree, or give one only\n"
    )
    assert [p.name for p in fleetrun.directory.iterdir()] == ["train.py"]
