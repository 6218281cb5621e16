"""Jobs of real processes: exits, messages, and that no process is left."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]  # it has no annotations
import pytest

import argosy

if TYPE_CHECKING:  # a conftest is not there to be imported
    from tests.engine.launch.conftest import Fleetrun

WAIT = "time.sleep(60)\n"
SAY_HERE = "open(f'here.{rank}', 'w').write(f'{os.getpid()}\\n')\n"
# A rank that has a child which ignores SIGTERM and lives in the rank's group.
WITH_CHILD = (
    "c = subprocess.Popen([sys.executable, '-c', 'import signal, time;"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)'], stdout=subprocess.PIPE)\n"
    "c.stdout.readline()\n"
)


def test_all_ranks_get_their_variables(fleetrun: Fleetrun) -> None:
    script = fleetrun.script("import json; print(json.dumps(dict(os.environ) | {'argv': sys.argv[1:]}))")
    done = fleetrun.run(
        "--nproc-per-node=2", script, "--gpus=3", "-m", "--", http_proxy="p", FLAGS_selected_gpus="1"
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(fleetrun.log(i)) for i in range(2)]
    assert [s["PADDLE_TRAINER_ID"] for s in said] == ["0", "1"]
    assert said[1]["argv"] == ["--gpus=3", "-m", "--"]
    assert said[0]["PADDLE_TRAINER_ENDPOINTS"] == said[1]["PADDLE_TRAINER_ENDPOINTS"]
    assert "http_proxy" not in said[0]
    assert said[0]["FLAGS_selected_gpus"] == "1"
    assert (fleetrun.directory / "log/endpoints.log").read_text().splitlines()[1:] == said[0][
        "PADDLE_TRAINER_ENDPOINTS"
    ].split(",")


def test_rank_0_inherits_a_socket_that_listens_at_its_endpoint(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(
        "import socket\n"
        "host, port = os.environ['PADDLE_TRAINER_ENDPOINTS'].split(',')[0].split(':')\n"
        "if rank == '0':\n"
        "    s = socket.socket(fileno=int(os.environ['ARGOSY_STORE_FD']))\n"
        "    assert s.getsockname() == (host, int(port)), s\n"
        "    s.accept()[0].sendall(b'hello')\n"
        "else:\n"
        "    assert 'ARGOSY_STORE_FD' not in os.environ\n"
        "    print(socket.create_connection((host, int(port))).recv(5))\n"
    )
    done = fleetrun.run("--nproc_per_node=2", script)
    assert done.returncode == 0, done.stderr
    assert fleetrun.log(1) == "b'hello'\n"


def test_the_console_shows_what_the_seed_shows(fleetrun: Fleetrun) -> None:
    done = fleetrun.run("--gpus=0,1", fleetrun.script("print('step of', rank)"), CUDA_VISIBLE_DEVICES="")
    assert done.stdout.startswith("-----------  Configuration Arguments -----------\ngpus: 0,1\n")
    assert done.stdout.endswith("----\nlaunch train in CPU mode\nstep of 0\n")
    assert done.stderr.count("WARNING") == 2
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} supervise.py:\d+\] "
    assert re.search(
        rf"WARNING {stamp}Not found distinct arguments. Default use collective mode\n", done.stderr
    )
    assert re.search(rf"WARNING {stamp}--gpus=0,1: .*; 2 ranks on the CPU instead\n", done.stderr)
    assert re.search(
        rf"INFO {stamp}Local start 2 processes. First process distributed environment info \(Only For Debug\): \n"
        r"    \+={87}\+\n    \| {24}Distributed Envs {22}Value {20}\|\n    \+-{87}\+\n",
        done.stderr,
    )
    assert (
        "details about PADDLE_TRAINER_ENDPOINTS are in log/endpoints.log, and the log of the first rank is in "
        "log/workerlog.0\n"
    ) in done.stderr
    assert re.search(rf"INFO {stamp}Local processes completed.\n$", done.stderr)
    assert "Local processes completed." in (fleetrun.directory / "log/fleetrun.log").read_text()


def test_quiet_leaves_only_what_the_script_prints(fleetrun: Fleetrun) -> None:
    done = fleetrun.run("--nproc_per_node=2", "--quiet", fleetrun.script("print('hello from', rank)"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello from 0\n", "")
    assert "Local processes completed." in (fleetrun.directory / "log/fleetrun.log").read_text()


def test_quiet_still_reports_failures(fleetrun: Fleetrun) -> None:
    done = fleetrun.run("--nproc_per_node=2", "--quiet", fleetrun.script("sys.exit(3 * int(rank))"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert "RankFailed: rank 1 of 2" in done.stderr


def test_the_version_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "argosy.distributed.launch", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"fleetrun {argosy.__version__}\n"


def test_info_lines_show_whatever_the_log_level_is(fleetrun: Fleetrun) -> None:
    done = fleetrun.run(
        "--log-level=debug", fleetrun.script("print(os.environ['ARGOSY_LOG'])"), ARGOSY_LOG="error"
    )
    assert "Local processes completed." in done.stderr
    assert fleetrun.log(0) == "debug\n"


def test_tee_shows_whole_lines_of_all_ranks(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(
        "for i in range(200): print('a' * 50, end=' '); print(i)\nsys.stdout.write('end')"
    )
    done = fleetrun.run("--tee", "--nproc_per_node=3", script)
    lines = done.stdout.partition("CPU mode\n")[2].splitlines()
    wanted = [f"{'a' * 50} {i}" for i in range(200)] + ["end"]
    for prefix in ("", "[rank 1] ", "[rank 2] "):
        assert [line for line in lines if line in {prefix + w for w in wanted}] == [
            prefix + w for w in wanted
        ]
    assert len(lines) == 3 * 201


def test_more_ranks_than_cores_are_warned_about(fleetrun: Fleetrun) -> None:
    ranks = len(os.sched_getaffinity(0)) + 1
    done = fleetrun.run(f"--nproc_per_node={ranks}", fleetrun.script("print(os.environ['OMP_NUM_THREADS'])"))
    assert f"{ranks} ranks share {ranks - 1} cores" in done.stderr
    assert fleetrun.log(0) == "1\n"


def test_a_module_runs_with_its_arguments(fleetrun: Fleetrun) -> None:
    (fleetrun.directory / "mine").mkdir()
    fleetrun.script("print(__name__, sys.argv[1:])", "mine/loop.py")
    done = fleetrun.run("--nproc_per_node=2", "-m", "mine.loop", "-m", "x")
    assert done.returncode == 0, done.stderr
    assert fleetrun.log(1) == "__main__ ['-m', 'x']\n"


@pytest.mark.parametrize(
    ("rank", "how", "ended"),
    [
        (0, "raise ValueError('bad batch')", "exit code 1"),
        (0, "print('enough'); sys.exit(3)", "exit code 3"),
        (1, "os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        pytest.param(1, "raise ValueError('bad batch')", "exit code 1", marks=pytest.mark.slow),
        pytest.param(1, "print('enough'); sys.exit(3)", "exit code 3", marks=pytest.mark.slow),
        pytest.param(0, "os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL", marks=pytest.mark.slow),
    ],
)
def test_a_failed_rank_is_reported_and_the_others_are_terminated(
    fleetrun: Fleetrun, rank: int, how: str, ended: str
) -> None:
    script = fleetrun.script(f"def step():\n    {how}\nif rank == '{rank}':\n    step()\n{WITH_CHILD}{WAIT}")
    began = time.monotonic()
    done = fleetrun.run("--nproc_per_node=2", script)
    assert time.monotonic() - began < 8  # 5 s, and the start of two interpreters on a busy machine
    assert done.returncode == 1
    report = done.stderr[done.stderr.index("RankFailed") :]
    assert re.match(
        rf"RankFailed: rank {rank} of 2 on {re.escape(socket.gethostname())} ended with {ended} "
        rf"\(pid \d+\); log: log/workerlog.{rank}\n",
        report,
    )
    assert f"terminated by fleetrun for that reason: rank {1 - rank}\n" in report
    assert report in (fleetrun.directory / "log/fleetrun.log").read_text()
    abort = f"the trainer process with rank=[{rank}] was aborted. Please check its log.\n"
    assert report.endswith(f"ABORT!!! Out of all 2 trainers, {abort}")
    if "raise" in how:
        assert "  raised: ValueError: bad batch\n" in report
        assert re.search(r"  at:     \S*train.py:4, in step\n", report)
        assert "    | ValueError: bad batch\n" in report
    if "SIGKILL" in how:
        assert "  killed from outside, often the kernel for lack of memory; see dmesg\n" in report
    if "enough" in how:
        assert "the end of its log:\n    | enough\n" in report
    assert fleetrun.all_gone(within_s=1)


def test_a_rank_that_lost_its_peer_is_not_the_cause_even_if_it_dies_first(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(
        "class PeerLostError(Exception): ranks = (1,)\n"
        "if rank == '0': raise PeerLostError('rank 1 is gone')\n"
        "time.sleep(0.8); raise ValueError('the cause')"
    )
    done = fleetrun.run("--nproc_per_node=2", script)
    assert "RankFailed: rank 1 of 2" in done.stderr
    assert "  raised: ValueError: the cause\n" in done.stderr
    assert re.search(r"  also: rank 0 ended with exit code 1 .*PeerLostError: rank 1 is gone", done.stderr)
    assert "with rank=[0, 1] was aborted" in done.stderr


def test_a_rank_that_ignores_sigterm_is_killed(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(
        "if rank == '0':\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"    {SAY_HERE}    time.sleep(60)\n"
        "while not os.path.exists('here.0'): time.sleep(0.01)\nsys.exit(1)"
    )
    began = time.monotonic()
    assert fleetrun.run("--nproc_per_node=2", script).returncode == 1
    assert time.monotonic() - began < 8
    assert fleetrun.all_gone(within_s=1)


def test_a_stopped_rank_is_reported_and_the_job_can_still_be_terminated(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(f"{SAY_HERE}{WAIT}")
    job = fleetrun.start("--nproc_per_node=2", script)
    pid = int(fleetrun.wait_for("here.1"))
    fleetrun.wait_for("here.0")
    os.kill(pid, signal.SIGSTOP)
    warning = f"rank 1 (pid {pid}) is stopped, the others wait for it; resume it with: kill -CONT {pid}\n"
    until = time.monotonic() + 20
    while warning not in (fleetrun.directory / "log/fleetrun.log").read_text() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(1.2)  # two more looks, which must not say it again
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=20)
    assert err.count(warning) == 1
    assert job.returncode == 143
    assert fleetrun.all_gone(within_s=1)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_to_the_launcher_terminates_all_ranks(
    fleetrun: Fleetrun, number: signal.Signals, code: int
) -> None:
    job = fleetrun.start(
        "--nproc_per_node=2", "--max_restarts=3", fleetrun.script(f"{WITH_CHILD}{SAY_HERE}{WAIT}")
    )
    fleetrun.wait_for("here.0")
    fleetrun.wait_for("here.1")
    job.send_signal(number)
    _, err = job.communicate(timeout=20)
    assert job.returncode == code
    assert f"{number.name}: all ranks were terminated\n" in err
    assert "RankFailed" not in err
    assert fleetrun.all_gone(within_s=1)


def seconds_after_two_ctrl_c(fleetrun: Fleetrun) -> float:
    """How long a job lives whose rank ignores SIGTERM."""
    job = fleetrun.start(fleetrun.script(f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SAY_HERE}{WAIT}"))
    fleetrun.wait_for("here.0")
    (fleetrun.directory / "here.0").unlink()
    began = time.monotonic()
    job.send_signal(signal.SIGINT)
    time.sleep(0.2)
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=20)
    assert job.returncode == 130
    return time.monotonic() - began


def test_a_second_ctrl_c_kills_at_once(fleetrun: Fleetrun) -> None:
    """Within less than the grace period of 2 s; on a busy machine, in one of three attempts."""
    assert any(seconds_after_two_ctrl_c(fleetrun) < 1.8 for _ in range(3))


def test_killing_the_launcher_leaves_no_child_and_no_grandchild(fleetrun: Fleetrun) -> None:
    job = fleetrun.start("--nproc_per_node=2", fleetrun.script(f"{WITH_CHILD}{SAY_HERE}{WAIT}"))
    fleetrun.wait_for("here.0")
    fleetrun.wait_for("here.1")
    assert len(fleetrun.alive()) == 6  # launcher, guard, two ranks with a child each
    job.kill()
    job.communicate(timeout=20)
    assert fleetrun.all_gone(within_s=5)


def test_the_log_is_complete_after_the_launcher_was_killed(fleetrun: Fleetrun) -> None:
    job = fleetrun.start(fleetrun.script(f"print('written', flush=True)\n{SAY_HERE}{WAIT}"))
    fleetrun.wait_for("here.0")
    job.kill()
    job.communicate(timeout=20)
    assert fleetrun.all_gone(within_s=5)
    assert fleetrun.log(0) == "written\n"


def test_children_of_a_rank_that_succeeded_are_killed(fleetrun: Fleetrun) -> None:
    assert fleetrun.run("--nproc_per_node=2", fleetrun.script(WITH_CHILD)).returncode == 0
    assert fleetrun.all_gone(within_s=1)


def test_a_new_run_does_not_append_to_an_old_log(fleetrun: Fleetrun) -> None:
    script = fleetrun.script("print(sys.argv[1])")
    for word in ("first", "second"):
        assert fleetrun.run(script, word).returncode == 0
    assert (fleetrun.log(0), fleetrun.log(0, old=".1")) == ("second\n", "first\n")


def test_a_failed_job_is_restarted(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(
        "count = os.environ['TORCHELASTIC_RESTART_COUNT']; print('run', count, os.environ['PADDLE_CURRENT_ENDPOINT'])\n"
        "sys.exit(rank == '1' and count != '2')"
    )
    done = fleetrun.run("--nproc_per_node=2", "--max_restarts=3", script)
    assert done.returncode == 0, done.stderr
    failed = r"RankFailed: rank 1 of 2 on \S+ ended with exit code 1 \(pid \d+\); log: log/workerlog.1.1\n"
    assert len(re.findall(failed, done.stderr)) == 2
    line = "rank 1 failed; its log is now log/workerlog.1.1; the script resumes from its newest checkpoint"
    assert f"restart 1 of 3: {line}" in done.stderr
    assert (
        "restart 2 of 3: rank 1 failed; it has failed within 3 s of its start 2 times in a row" in done.stderr
    )
    runs = [fleetrun.log(1, old) for old in (".2", ".1", "")]
    assert [r.split()[1] for r in runs] == ["0", "1", "2"]
    assert "ABORT" not in done.stderr
    assert "restart 2 of 3" in (fleetrun.directory / "log/fleetrun.log").read_text()


def test_restarts_are_limited_and_keep_a_fixed_port(fleetrun: Fleetrun) -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    done = fleetrun.run(f"--start_port={port}", "--max_restarts=1", fleetrun.script("sys.exit(1)"))
    assert done.returncode == 1
    assert done.stderr.count("RankFailed") == 2
    assert done.stderr.count("ABORT!!!") == 1


def test_ranks_that_exited_long_before_the_others_are_reported_once(fleetrun: Fleetrun) -> None:
    code = (
        "import sys; from argosy.engine.launch import attempt, cli; attempt.EARLY_EXIT_S = 0.5;"
        "sys.exit(cli.main(['--nproc_per_node=2', 'train.py']))"
    )
    fleetrun.script("time.sleep(1.5 * int(rank))")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=fleetrun.directory,
        env=fleetrun.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.count("ranks [0] exited with code 0 more than 0.5 s ago; ranks [1] still run\n") == 1
    assert done.returncode == 0


def test_a_closed_console_does_not_end_the_job(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(f"{SAY_HERE}\nfor i in range(100): print(i, flush=True); time.sleep(0.02)")
    job = fleetrun.start(script)
    fleetrun.wait_for("here.0")
    assert job.stdout is not None
    assert job.stderr is not None
    job.stdout.close()
    said = job.stderr.read()
    job.stderr.close()
    assert job.wait(timeout=20) == 0
    assert "stdout is closed (Broken pipe); the job continues" in said
    assert len(fleetrun.log(0).splitlines()) == 100


def test_a_console_that_is_not_read_can_be_interrupted(fleetrun: Fleetrun) -> None:
    job = fleetrun.start(fleetrun.script(f"print('x' * 1_000_000)\n{SAY_HERE}"))
    fleetrun.wait_for("here.0")
    time.sleep(0.5)
    assert job.poll() is None  # the rank has exited, its lines are not read yet
    job.send_signal(signal.SIGINT)
    job.wait(timeout=10)
    job.communicate()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tran.py"], "error: no script 'tran.py'"),
        (["-m", "nothing_here"], "error: no module 'nothing_here'"),
        (["--nproc_per_node=0", "train.py"], "error: --nproc_per_node=0"),
        (["--ips=203.0.113.7", "train.py"], "error: --ips=203.0.113.7: this host is not among them"),
        (["--worker_num=1", "train.py"], "no servers are given; add --server_num=N or --servers=host:port"),
        (
            ["--ips=127.0.0.2", "--server_num=1", "train.py"],
            "selects a collective job, --server_num=1 selects",
        ),
        (["--log_dir=train.py", "train.py"], "error: --log_dir=train.py: cannot write there"),
        (
            ["--nproc_pre_node=2", "train.py"],
            "error: unknown option --nproc_pre_node (did you mean '--nproc_per_node'",
        ),
    ],
)
def test_invalid_arguments_start_nothing(fleetrun: Fleetrun, words: list[str], message: str) -> None:
    fleetrun.script("open('started', 'w')")
    done = fleetrun.run(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert [p.name for p in fleetrun.directory.iterdir()] == ["train.py"]


def test_a_port_in_use_starts_nothing_and_keeps_the_logs(fleetrun: Fleetrun) -> None:
    script = fleetrun.script("print('first')")
    assert fleetrun.run(script).returncode == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = fleetrun.run(f"--start_port={taken.getsockname()[1]}", script)
    assert done.returncode == 2
    assert re.search(r"error: port \d+ of 127.0.0.1 is in use by process \d+ ", done.stderr)
    assert fleetrun.log(0) == "first\n"


def test_a_bad_log_level_of_the_environment_is_an_error_not_a_traceback(fleetrun: Fleetrun) -> None:
    done = fleetrun.run(fleetrun.script(""), ARGOSY_LOG="loud")
    assert done.returncode == 2
    assert (
        done.stderr == "error: ARGOSY_LOG='loud' is not a level; use debug, info, notice, warning or error\n"
    )


def test_help_prints_examples(fleetrun: Fleetrun) -> None:
    done = fleetrun.run("--help")
    assert done.returncode == 0
    assert "fleetrun --gpus=0,1 train.py" in done.stdout


@pytest.mark.parametrize(
    "closed", ["<&- >&- 2>&-", *(pytest.param(c, marks=pytest.mark.slow) for c in ("<&-", ">&-"))]
)
def test_closed_standard_streams_do_not_end_the_job(fleetrun: Fleetrun, closed: str) -> None:
    script = fleetrun.script("print('trained')")
    command = f"{sys.executable} -m argosy.distributed.launch --nproc_per_node=2 {script} {closed}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=fleetrun.directory,
        env=fleetrun.environ,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert "trained" in fleetrun.log(1)


def test_a_console_that_is_closed_at_once_does_not_stop_the_start(fleetrun: Fleetrun) -> None:
    script = fleetrun.script("print('trained')")
    command = f"{sys.executable} -m argosy.distributed.launch {script} | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=fleetrun.directory,
        env=fleetrun.environ,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "trained" in fleetrun.log(0)


# A rank with a child in a separate session, whose parent has exited: only its ancestry identifies it.
WITH_DAEMON = (
    "subprocess.run([sys.executable, '-c', 'import subprocess, sys; subprocess.Popen([sys.executable, \"-c\", "
    '"import time; time.sleep(60)"], start_new_session=True)\'], check=True)\n'
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
)


@pytest.mark.parametrize("code", [0, 1])
def test_children_in_separate_sessions_are_killed_with_the_job(fleetrun: Fleetrun, code: int) -> None:
    script = fleetrun.script(f"{WITH_DAEMON}sys.exit({code})")
    assert fleetrun.run("--nproc_per_node=2", script).returncode == code
    assert fleetrun.all_gone(within_s=1)


def test_children_in_separate_sessions_are_killed_before_a_restart(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "    open('child', 'w').write(str(child.pid)); sys.exit(1)\n"
        "print(os.path.exists('/proc/' + open('child').read()))"
    )
    assert fleetrun.run("--max_restarts=1", script).returncode == 0
    assert fleetrun.log(0) == "False\n"


@pytest.mark.parametrize("killed", ["guard", "launcher"])
def test_killing_either_process_of_the_launcher_leaves_nothing(fleetrun: Fleetrun, killed: str) -> None:
    job = fleetrun.start("--nproc_per_node=2", fleetrun.script(f"{WITH_CHILD}{WITH_DAEMON}{SAY_HERE}{WAIT}"))
    fleetrun.wait_for("here.0")
    fleetrun.wait_for("here.1")
    (launcher,) = [p for p in fleetrun.alive() if p.ppid() == job.pid]
    os.kill(job.pid if killed == "guard" else launcher.pid, signal.SIGKILL)
    _, err = job.communicate(timeout=20)
    assert fleetrun.all_gone(within_s=5)
    if killed == "guard":
        log = (fleetrun.directory / "log/fleetrun.log").read_text()
        assert "fleetrun was killed: all ranks were terminated\n" in log
    if killed == "launcher":
        assert job.returncode == 128 + signal.SIGKILL
        assert f"the launcher (pid {launcher.pid}) was killed by SIGKILL; killed all its processes\n" in err


def test_killing_the_process_group_of_the_command_leaves_nothing(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(f"{WITH_DAEMON}{SAY_HERE}{WAIT}")
    command = [sys.executable, "-m", "argosy.distributed.launch", script]
    job = subprocess.Popen(command, cwd=fleetrun.directory, env=fleetrun.environ, start_new_session=True)
    fleetrun.wait_for("here.0")
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    assert fleetrun.all_gone(within_s=5)


def test_the_pid_of_an_exited_rank_is_not_reused_until_the_job_ends(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(f"{SAY_HERE}if rank == '1': sys.exit(0)\n{WAIT}")
    job = fleetrun.start("--nproc_per_node=2", script)
    pid = int(fleetrun.wait_for("here.1"))
    fleetrun.wait_for("here.0")
    until = time.monotonic() + 20
    while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.5)  # it is not reaped meanwhile, so that the kernel does not reuse its pid
    assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=20)
    assert not psutil.pid_exists(pid)


def test_processes_that_ranks_leave_behind_are_reaped_while_the_job_runs(fleetrun: Fleetrun) -> None:
    orphan = "import os, time; os.fork() or time.sleep(0.2)"  # its child ends after it
    script = fleetrun.script(
        f"for _ in range(3): subprocess.run([sys.executable, '-c', {orphan!r}])\n"
        'orphan = \'import subprocess, sys; print(subprocess.Popen([sys.executable, "-c", ""]).pid)\'\n'
        "pid = subprocess.check_output([sys.executable, '-c', orphan], text=True).strip()\n"
        "until = time.monotonic() + 30\n"
        "while os.path.exists(f'/proc/{pid}') and time.monotonic() < until: time.sleep(0.1)\n"
        "print(os.path.exists(f'/proc/{pid}'))"
    )
    assert fleetrun.run(script).returncode == 0
    assert fleetrun.log(0) == "False\n"


def test_a_process_that_raised_and_does_not_exit_is_reported(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(
        "import threading\nthreading.Thread(target=time.sleep, args=(60,)).start()\nraise ValueError('bad batch')"
    )
    began = time.monotonic()
    done = fleetrun.run(script)
    assert time.monotonic() - began < 30
    assert done.returncode == 1
    assert re.search(r"RankFailed: rank 0 of 1 on \S+ ended with exit code 1 ", done.stderr)
    assert "  raised: ValueError: bad batch\n" in done.stderr


def test_the_report_does_not_wait_for_ranks_that_ignore_sigterm(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(
        f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SAY_HERE}"
        "while not (os.path.exists('here.0') and os.path.exists('here.1')): time.sleep(0.01)\n"
        "if rank == '1': raise ValueError('bad batch')\n"
        "while True:\n"
        "    if 'RankFailed' in open('log/fleetrun.log').read(): print('reported', flush=True); break\n"
        "    time.sleep(0.01)\n"
        f"{WAIT}"
    )
    assert fleetrun.run("--nproc_per_node=2", script).returncode == 1
    assert fleetrun.log(0) == "reported\n"


def on_a_small_disk(fleetrun: Fleetrun, words: str, before: str = "true") -> subprocess.CompletedProcess[str]:
    """Run fleetrun with log/ on a disk of 256 KiB; `before`: a shell command that prepares it."""
    launch = f"{sys.executable} -W error -m argosy.distributed.launch {words}"
    mount = "mkdir -p log && mount -t tmpfs -o size=256k tmpfs log"
    command = f"{mount} && {before} && {launch}; code=$?; ls log > listed; exit $code"
    # The mount is seen by this process and its children alone, and is gone with them.
    return subprocess.run(
        ["unshare", "--mount", "bash", "-c", command],
        cwd=fleetrun.directory,
        env=fleetrun.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


needs_mounts = pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0,
    reason="may not mount a small disk",
)


@needs_mounts
def test_a_full_log_disk_starts_nothing(fleetrun: Fleetrun) -> None:
    fill = "{ dd if=/dev/zero of=log/mine bs=1k count=256 2>/dev/null; }"
    done = on_a_small_disk(fleetrun, fleetrun.script("print('started')"), fill)
    assert done.returncode == 2
    problem = "cannot write there (No space left on device); choose another directory"
    assert done.stderr == f"error: --log_dir=log: {problem}\n"
    assert (fleetrun.directory / "listed").read_text() == "mine\n"


@needs_mounts
def test_a_log_disk_that_becomes_full_is_in_the_report(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(
        "import os, time\n"
        "for _ in range(20): print('x' * 2000, flush=True)\n"  # more than fleetrun.log has room for
        "open(f'ready.{rank}', 'w').close()\n"  # else the disk may be full before the other rank has printed
        "while not (os.path.exists('ready.0') and os.path.exists('ready.1')): time.sleep(0.01)\n"
        "f = open(f'log/mine.{rank}', 'wb', buffering=0)\n"
        "try:\n    while True: f.write(bytes(1024))\n"
        "except OSError: raise ValueError('bad batch')\n"
    )
    done = on_a_small_disk(fleetrun, f"--nproc_per_node=2 {script}")
    assert done.returncode == 1
    assert re.search(r"RankFailed: rank \d of 2 on \S+ ended with exit code 1 ", done.stderr), done.stderr
    assert "  the disk of the logs is full, they are incomplete; free some space" in done.stderr
    assert "cannot write to log/fleetrun.log (No space left on device); the job continues" in done.stderr
    assert "Traceback" not in done.stderr.replace("| Traceback", "")
    assert ".tmp" not in (fleetrun.directory / "listed").read_text()


def test_output_that_cannot_be_written_does_not_end_the_job(fleetrun: Fleetrun) -> None:
    command = f"{sys.executable} -m argosy.distributed.launch {fleetrun.script('print(1)')} > /dev/full"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=fleetrun.directory,
        env=fleetrun.environ,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "cannot write to stdout (No space left on device); the job continues without it\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert fleetrun.log(0) == "1\n"


def test_too_few_files_for_so_many_ranks_is_an_error_and_leaves_nothing(fleetrun: Fleetrun) -> None:
    words = f"--nproc_per_node=100 {fleetrun.script(WAIT)}"
    done = subprocess.run(
        ["bash", "-c", f"ulimit -n 40; {sys.executable} -m argosy.distributed.launch {words}"],
        cwd=fleetrun.directory,
        env=fleetrun.environ,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 2
    assert (
        "error: cannot find 100 free ports at 127.0.0.1 (Too many open files); use fewer processes"
        in done.stderr
    )
    assert "Traceback" not in done.stderr
