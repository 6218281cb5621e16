"""Jobs of real processes: how they end, what is said, and that nothing is left."""

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

import pytest

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


def test_all_ranks_run_with_their_place_in_the_job(fleetrun: Fleetrun) -> None:
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
    assert "FLAGS_selected_gpus" not in said[0]
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
        "details about PADDLE_TRAINER_ENDPOINTS can be found in log/endpoints.log, and detail running logs "
        "maybe found in log/workerlog.0\n"
    ) in done.stderr
    assert re.search(rf"INFO {stamp}Local processes completed.\n$", done.stderr)
    assert "Local processes completed." in (fleetrun.directory / "log/fleetrun.log").read_text()


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


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("how", "ended"),
    [
        ("raise ValueError('bad batch')", "exit code 1"),
        ("print('enough'); sys.exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    ],
)
def test_a_failed_rank_is_named_and_the_others_end(
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
    assert f"ended by fleetrun for that reason: rank {1 - rank}\n" in report
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
        "class PeerLostError(Exception): pass\n"
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


def test_a_stopped_rank_is_named_and_the_job_can_still_be_ended(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(f"{SAY_HERE}{WAIT}")
    job = fleetrun.start("--nproc_per_node=2", script)
    pid = int(fleetrun.wait_for("here.1"))
    fleetrun.wait_for("here.0")
    os.kill(pid, signal.SIGSTOP)
    time.sleep(5)
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=20)
    warning = f"rank 1 (pid {pid}) is stopped, the others wait for it; let it go on with: kill -CONT {pid}\n"
    assert err.count(warning) == 1
    assert job.returncode == 143
    assert fleetrun.all_gone(within_s=1)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_to_the_launcher_ends_everything(
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
    assert f"{number.name}: all ranks have been ended\n" in err
    assert "RankFailed" not in err
    assert fleetrun.all_gone(within_s=1)


def test_a_second_ctrl_c_kills_at_once(fleetrun: Fleetrun) -> None:
    job = fleetrun.start(fleetrun.script(f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SAY_HERE}{WAIT}"))
    fleetrun.wait_for("here.0")
    began = time.monotonic()
    job.send_signal(signal.SIGINT)
    time.sleep(0.2)
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=20)
    assert time.monotonic() - began < 1.8
    assert job.returncode == 130


def test_killing_the_launcher_leaves_no_child_and_no_grandchild(fleetrun: Fleetrun) -> None:
    job = fleetrun.start("--nproc_per_node=2", fleetrun.script(f"{WITH_CHILD}{SAY_HERE}{WAIT}"))
    fleetrun.wait_for("here.0")
    fleetrun.wait_for("here.1")
    assert len(fleetrun.alive()) == 6  # launcher, guard, two ranks with a child each
    job.kill()
    job.communicate(timeout=20)
    assert fleetrun.all_gone(within_s=5)


def test_the_log_is_whole_after_the_launcher_was_killed(fleetrun: Fleetrun) -> None:
    job = fleetrun.start(fleetrun.script(f"print('written', flush=True)\n{SAY_HERE}{WAIT}"))
    fleetrun.wait_for("here.0")
    job.kill()
    job.communicate(timeout=20)
    assert fleetrun.all_gone(within_s=5)
    assert fleetrun.log(0) == "written\n"


def test_children_of_a_rank_that_ended_well_are_ended_too(fleetrun: Fleetrun) -> None:
    assert fleetrun.run("--nproc_per_node=2", fleetrun.script(WITH_CHILD)).returncode == 0
    assert fleetrun.all_gone(within_s=1)


def test_a_new_run_does_not_append_to_an_old_log(fleetrun: Fleetrun) -> None:
    script = fleetrun.script("print(sys.argv[1])")
    for word in ("first", "second"):
        assert fleetrun.run(script, word).returncode == 0
    assert (fleetrun.log(0), fleetrun.log(0, old=".1")) == ("second\n", "first\n")


def test_a_failed_job_is_started_anew(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(
        "count = os.environ['TORCHELASTIC_RESTART_COUNT']; print('run', count, os.environ['PADDLE_CURRENT_ENDPOINT'])\n"
        "sys.exit(rank == '1' and count != '2')"
    )
    done = fleetrun.run("--nproc_per_node=2", "--max_restarts=3", script)
    assert done.returncode == 0, done.stderr
    failed = r"RankFailed: rank 1 of 2 on \S+ ended with exit code 1 \(pid \d+\); log: log/workerlog.1.1\n"
    assert len(re.findall(failed, done.stderr)) == 2
    line = "rank 1 failed; its log is now log/workerlog.1.1; the script goes on from its newest checkpoint"
    assert f"restart 1 of 3: {line}" in done.stderr
    assert (
        "restart 2 of 3: rank 1 failed; it has failed within 3 s of its start 2 times in a row" in done.stderr
    )
    runs = [fleetrun.log(1, old) for old in (".2", ".1", "")]
    assert [r.split()[1] for r in runs] == ["0", "1", "2"]
    assert "ABORT" not in done.stderr
    assert "restart 2 of 3" in (fleetrun.directory / "log/fleetrun.log").read_text()


def test_restarts_come_to_an_end_and_keep_a_fixed_port(fleetrun: Fleetrun) -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    done = fleetrun.run(f"--start_port={port}", "--max_restarts=1", fleetrun.script("sys.exit(1)"))
    assert done.returncode == 1
    assert done.stderr.count("RankFailed") == 2
    assert done.stderr.count("ABORT!!!") == 1


def test_ranks_that_ended_long_before_the_others_are_told_once(fleetrun: Fleetrun) -> None:
    code = (
        "import sys; from argosy.engine.launch import attempt, cli; attempt.EARLY_END_S = 0.5;"
        "sys.exit(cli.main(['--nproc_per_node=2', 'train.py']))"
    )
    fleetrun.script("time.sleep(3 * int(rank))")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=fleetrun.directory,
        env=fleetrun.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.count("ranks [0] ended with 0 some time ago; ranks [1] still run\n") == 1
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
    assert "stdout is gone (Broken pipe); the job goes on" in said
    assert len(fleetrun.log(0).splitlines()) == 100


def test_a_console_that_nobody_reads_can_be_interrupted(fleetrun: Fleetrun) -> None:
    job = fleetrun.start(fleetrun.script(f"print('x' * 1_000_000)\n{SAY_HERE}"))
    fleetrun.wait_for("here.0")
    time.sleep(0.5)
    assert job.poll() is None  # the rank has ended, its lines are not read yet
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
        (["--ips=127.0.0.2", "--server_num=1", "train.py"], "asks for a collective job, --server_num=1 for"),
        (["--log_dir=train.py", "train.py"], "error: --log_dir=train.py: cannot write there"),
        (
            ["--nproc_pre_node=2", "train.py"],
            "error: unknown option --nproc_pre_node (did you mean --nproc_per_node?)",
        ),
    ],
)
def test_what_makes_no_sense_starts_nothing(fleetrun: Fleetrun, words: list[str], message: str) -> None:
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
    assert done.stderr == "error: ARGOSY_LOG='loud' is no level; use debug, info, notice, warning or error\n"


def test_help_answers_with_examples(fleetrun: Fleetrun) -> None:
    done = fleetrun.run("--help")
    assert done.returncode == 0
    assert "fleetrun --gpus=0,1 train.py" in done.stdout


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
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


def test_a_job_without_its_guard_is_started_anew_all_the_same(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(
        f"if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n    {SAY_HERE.strip()}\n    time.sleep(1); sys.exit(1)\n"
        "print('second life')"
    )
    job = fleetrun.start("--max_restarts=1", script)
    fleetrun.wait_for("here.0")
    (guard,) = [p for p in fleetrun.alive() if p.ppid() == job.pid and "RANK" not in p.environ()]
    guard.kill()
    job.communicate(timeout=30)
    assert job.returncode == 0
    assert "second life" in fleetrun.log(0)
