"""The supervising actor without Ray: output, exit codes, acknowledged items, what happens if it is killed."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it has no annotations

from argosy.engine.cluster.ray_node import _EXEC, Item, NodeSupervisor


def run(supervisor: NodeSupervisor, source: str) -> threading.Thread:
    arguments = [sys.executable, "-I", "-S", "-c", _EXEC, str(os.getpid()), sys.executable, "-c", source]
    started = threading.Event()
    thread = threading.Thread(target=supervisor._run, args=(arguments, dict(os.environ), "/", started))
    thread.start()
    assert started.wait(60)
    return thread


def test_items_are_kept_until_they_are_acknowledged_and_the_exit_code_comes_last() -> None:
    supervisor = NodeSupervisor("token")
    run(supervisor, "print('one'); print('two'); raise SystemExit(3)").join()
    lines = [Item("line", "one"), Item("line", "two")]
    assert supervisor.poll(0, 60) == (lines, 3)
    assert supervisor.poll(0, 60) == (lines, 3), "the first reply may have been lost"
    assert supervisor.poll(1, 60) == (lines[1:], 3)
    assert supervisor.poll(2, 60) == ([], 3)


def test_a_signal_ends_the_launcher_and_gives_its_exit_code() -> None:
    supervisor = NodeSupervisor("token")
    thread = run(supervisor, "print('ready', flush=True); import time; time.sleep(600)")
    assert supervisor.poll(0, 60) == ([Item("line", "ready")], None)
    supervisor.signal(signal.SIGTERM)
    thread.join()
    assert supervisor.poll(1, 60) == ([], 128 + signal.SIGTERM)
    supervisor.signal(signal.SIGTERM)  # it has ended: no effect


def test_messages_of_ranks_become_items() -> None:
    supervisor = NodeSupervisor("token", b"pickled")
    assert supervisor._receive({"kind": "function", "rank": 0}, b"") == b"pickled"
    assert b"site-packages" in supervisor._receive({"kind": "path", "rank": 0}, b"")
    supervisor._receive({"kind": "metrics", "rank": 2}, b'{"loss": 0.5}')
    supervisor._receive({"kind": "result", "rank": 0}, b"\x80")
    assert supervisor.poll(0, 60)[0] == [Item("metrics", {"loss": 0.5}, 2), Item("result", b"\x80", 0)]


def test_the_launcher_is_terminated_if_the_actor_is_killed(tmp_path: Path) -> None:
    source = "import os, pathlib, time; pathlib.Path('pid').write_text(f'{os.getpid()}\\n'); time.sleep(600)"
    actor = f"""
import subprocess, sys, os
from argosy.engine.cluster.ray_node import _EXEC
words = [sys.executable, "-I", "-S", "-c", _EXEC, str(os.getpid()), sys.executable, "-c", {source!r}]
subprocess.run(words)
"""
    process = subprocess.Popen([sys.executable, "-c", actor], cwd=tmp_path)
    pid = tmp_path / "pid"
    while not (pid.exists() and pid.read_text().endswith("\n")):
        assert process.poll() is None
        time.sleep(0.01)
    launcher = psutil.Process(int(pid.read_text()))
    process.kill()
    process.wait()
    launcher.wait(60)
