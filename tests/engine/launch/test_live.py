"""What a user sees of real jobs: on a pseudo-terminal, and elsewhere."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.engine.launch.recording import RECORD
from tests.engine.launch.terminal import Terminal

if TYPE_CHECKING:  # a conftest is not there to be imported
    from tests.engine.launch.conftest import Fleetrun

COMMAND = [sys.executable, "-W", "error", "-m", "argosy.distributed.launch"]
TRAIN = (
    RECORD
    + """
record("start", rank=number, role="rank", size=2)
train(10, 60.0 + 30.0 * number)
record("values", step=10, values={"loss": 0.25 if number else 0.75}, reduce={})
if number == 0:
    record("progress", epoch=1, epochs=2, batch=10, batches=20)
    print("epoch 1\\n 50%|#####", end="", flush=True)
wait_for("go")
print("\\repoch 1 done\\nlast", flush=True)
"""
)
Open = Callable[..., Terminal]


@pytest.fixture
def terminal(fleetrun: Fleetrun) -> Iterator[Open]:
    opened = []

    def start(*words: str, columns: int = 90, rows: int = 40, **environ: str) -> Terminal:
        base = {k: v for k, v in fleetrun.environ.items() if k not in ("NO_COLOR", "TERM")}
        opened.append(Terminal([*COMMAND, *words], fleetrun.directory, base | environ, columns, rows))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def block(text: str) -> list[str]:
    """The lines from the rule on."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("── ")]
    return lines[starts[-1] :] if starts else []


def shows_values(text: str) -> bool:
    return any("loss 0.5" in line for line in block(text)) and "50%|#####" in text


def test_a_live_block_below_the_output_of_the_script(fleetrun: Fleetrun, terminal: Open) -> None:
    shown = terminal("--nproc_per_node=2", fleetrun.script(TRAIN))
    text = shown.wait_for(shows_values)
    rule, processes, progress, speed, values = block(text)
    assert "train.py" in rule
    assert processes.startswith("2 ranks up · ")
    assert progress.startswith("step 10 · epoch 1 of 2 · batch 10 of 20 · ━━━━━━──")
    assert progress.endswith(" left")
    assert speed == "320 examples/s · 100 ms/step · exposed 25% · slowest rank 1 (+50%)"
    assert values == "loss 0.5"
    assert text.splitlines()[-6:-4] == [" 50%|#####", rule]
    (fleetrun.directory / "go").touch()
    code, text = shown.end()
    assert code == 0
    assert not block(text)
    after = text[text.index("\nepoch 1\n") :].splitlines()
    assert after[1:4] == ["epoch 1", "epoch 1 done", "last"]
    assert "Local processes completed." in " ".join(after[4:])
    assert len([line for line in after if line.startswith("epoch 1")]) == 2


@pytest.mark.slow
def test_the_block_follows_the_size_of_the_terminal(fleetrun: Fleetrun, terminal: Open) -> None:
    shown = terminal("--nproc_per_node=2", fleetrun.script(TRAIN), rows=50)
    shown.wait_for(shows_values)
    shown.resize(30, 50)
    narrow = shown.wait_for(lambda text: any(line.endswith("…") for line in block(text)))
    assert max(map(len, block(narrow))) < 30
    shown.resize(30, 3)
    shown.wait_for(lambda text: "ranks up" not in text)
    (fleetrun.directory / "go").touch()
    assert shown.end()[0] == 0


def test_after_a_failure_the_block_is_gone_and_the_report_is_whole(
    fleetrun: Fleetrun, terminal: Open
) -> None:
    fail = TRAIN + "\nif number == 1: raise ValueError('planted')\ntime.sleep(60)"
    shown = terminal("--nproc_per_node=2", fleetrun.script(fail), columns=150, rows=60)
    shown.wait_for(shows_values)
    (fleetrun.directory / "go").touch()
    code, text = shown.end()
    assert code == 1
    assert not block(text)
    assert "ranks up" not in text
    lines = text.splitlines()
    report = next(i for i, line in enumerate(lines) if line.startswith("RankFailed: rank 1 of 2"))
    assert lines[report + 1] == "  raised: ValueError: planted"
    assert any("ABORT!!!" in line for line in lines[report:])


@pytest.mark.slow
def test_a_killed_rank_and_ctrl_c(fleetrun: Fleetrun, terminal: Open) -> None:
    here = RECORD + "train(1)\nopen(f'here.{rank}', 'w').write(f'{os.getpid()}\\n')\ntime.sleep(60)"
    shown = terminal("--nproc_per_node=2", fleetrun.script(here), columns=150)
    pid = int(fleetrun.wait_for("here.1"))
    shown.wait_for(block)
    os.kill(pid, signal.SIGKILL)
    code, text = shown.end()
    assert (code, block(text)) == (1, [])
    assert "rank 1 of 2" in text
    assert "SIGKILL" in text
    shown = terminal("--nproc_per_node=2", fleetrun.script(here), columns=150)
    shown.wait_for(block)
    shown.type("\x03")
    code, text = shown.end()
    assert (code, block(text)) == (130, [])
    assert "SIGINT: all ranks were terminated" in text


@pytest.mark.slow
def test_no_block_on_a_dumb_terminal_and_with_quiet(fleetrun: Fleetrun, terminal: Open) -> None:
    (fleetrun.directory / "go").touch()
    script = fleetrun.script(TRAIN + "time.sleep(2.5)")
    shown = terminal("--nproc_per_node=2", script, TERM="dumb")
    assert shown.end()[0] == 0
    assert b"\x1b" not in shown.raw
    shown = terminal("--nproc_per_node=2", "--quiet", script)
    assert shown.end() == (0, "epoch 1\nepoch 1 done\nlast")


@pytest.mark.slow
def test_no_colour(fleetrun: Fleetrun, terminal: Open) -> None:
    shown = terminal("--nproc_per_node=2", fleetrun.script(TRAIN), NO_COLOR="1")
    shown.wait_for(shows_values)
    (fleetrun.directory / "go").touch()
    assert shown.end()[0] == 0
    assert b"\x1b[3" not in shown.raw


@pytest.mark.slow
def test_in_the_background_of_the_terminal_there_is_no_block(fleetrun: Fleetrun, terminal: Open) -> None:
    shown = terminal("--nproc_per_node=2", fleetrun.script(TRAIN))
    shown.wait_for(shows_values)
    os.kill(shown.process.pid, signal.SIGSTOP)  # as Ctrl-Z does in a shell
    (fleetrun.directory / "go").touch()
    text = shown.wait_for(lambda text: "\nlast" in text)
    assert "\nloss 0.5\nepoch 1 done\nlast" in text  # the block is not erased: it may be anywhere now
    os.kill(shown.process.pid, signal.SIGCONT)
    assert shown.end()[0] == 0


PS = (
    RECORD
    + """
if is_server:
    serve()
    time.sleep(60)
train(10)
wait_for("go")
"""
)


def test_a_job_with_parameter_servers(fleetrun: Fleetrun, terminal: Open) -> None:
    shown = terminal("--server_num=1", "--worker_num=2", fleetrun.script(PS), columns=120)
    text = shown.wait_for(lambda text: any(line.startswith("server 0") for line in block(text)))
    assert block(text)[1].startswith("2 workers up · 1 server up · ")
    server = next(line for line in block(text) if line.startswith("server 0"))
    assert server == "server 0 · 1,234 rows · 5 MB · Pull 50/s (p99 1.5 ms) · queue 3 · staleness 1.5"
    top = terminal("top", columns=120)
    text = top.wait_for(lambda text: "q: quit" in text and "server 0 · " in text)
    (fleetrun.directory / "go").touch()
    assert shown.end()[0] == 0
    code, text = top.end()
    assert code == 0
    assert "completed · exit code 0" in text
    assert "q: quit" not in text


def status(fleetrun: Fleetrun, *words: str) -> subprocess.CompletedProcess[str]:
    return fleetrun.run("status", *words)


def test_status_of_a_running_and_an_ended_job(fleetrun: Fleetrun, terminal: Open) -> None:
    job = fleetrun.start("--nproc_per_node=2", fleetrun.script(TRAIN + "if number: sys.exit(3)"))
    while "loss 0.5" not in (shown := status(fleetrun).stdout):
        assert job.poll() is None, job.communicate()
    lines = shown.splitlines()
    assert lines[:2] == ["directory: log", "running; fleetrun --nproc_per_node=2 train.py"]
    assert lines[2].startswith("2 ranks up; ")
    table = [line.split() for line in lines[lines.index("") + 1 :]]
    assert table[1][:3] == ["rank", "0", "running"]
    assert table[1][-1] == "workerlog.0"
    top = terminal("top", "log")
    top.wait_for(lambda text: "q: quit" in text)
    top.type("q")
    assert top.end()[0] == 0
    (fleetrun.directory / "go").touch()
    job.communicate(timeout=60)
    after = json.loads(status(fleetrun, "log", "--json").stdout)
    assert (after["state"], after["step"], after["values"]) == ("failed", 10, {"loss": 0.5})
    assert [process["state"] for process in after["job"]["processes"]] in (
        ["done", "failed"],
        ["terminated", "failed"],
    )
    assert "RankFailed: rank 1 of 2" in status(fleetrun).stdout


def test_status_of_a_job_whose_launcher_was_killed(fleetrun: Fleetrun) -> None:
    script = fleetrun.script("open('here', 'w').write('x\\n')\ntime.sleep(60)")
    job = fleetrun.start(script)
    fleetrun.wait_for("here")
    content = json.loads((fleetrun.directory / "log/job.json").read_text())
    os.kill(content["launcher_pid"], signal.SIGKILL)
    job.communicate(timeout=60)
    assert status(fleetrun).stdout.splitlines()[1].startswith("killed; ")


@pytest.mark.slow
def test_subcommands_say_what_is_wrong(fleetrun: Fleetrun) -> None:
    none = status(fleetrun, "nowhere")
    assert (none.returncode, none.stderr.split(";")[0]) == (2, "error: nowhere does not exist")
    assert "unrecognized arguments: --jsn" in status(fleetrun, "--jsn").stderr
    (fleetrun.directory / "log").mkdir()
    (fleetrun.directory / "log/job.json").write_text("{}")
    assert "needs a terminal; use fleetrun status" in fleetrun.run("top").stderr
    fleetrun.script("print('my own')", "status")
    both = status(fleetrun)
    assert both.returncode == 2
    assert "write ./status to run it" in both.stderr
    assert fleetrun.run("--quiet", "./status").stdout == "my own\n"


@pytest.mark.slow
def test_elsewhere_a_line_is_logged_from_time_to_time(fleetrun: Fleetrun) -> None:
    code = (
        "import sys\nfrom argosy.engine.launch import live\nlive.PLAIN_S = 0.2\n"
        "from argosy.engine.cluster.cli import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    (fleetrun.directory / "go").touch()
    script = fleetrun.script(TRAIN + "time.sleep(2.5)")
    done = subprocess.run(
        [sys.executable, "-c", code, "--nproc_per_node=2", script],
        cwd=fleetrun.directory,
        env=fleetrun.environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    line = next(line for line in done.stderr.splitlines() if "examples/s" in line)
    assert line.startswith("INFO ")
    assert "] 2 ranks up; step 10; epoch 1 of 2; batch 10 of 20; 25%; " in line
    assert line.endswith("; 320 examples/s; 100 ms/step; exposed 25%; slowest rank 1 (+50%); loss 0.5")
    assert "\x1b" not in done.stdout + done.stderr
