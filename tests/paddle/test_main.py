"""`python -m argosy.paddle`: a script runs as Python itself would run it, and finds Argosy as paddle."""

# SPDX-License-Identifier: Apache-2.0
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ranks import ForkServer

SCRIPTS = Path(__file__).parent / "scripts"
SHOW = """
import atexit, sys
import beside
print(sys.argv, sys.path[0], __name__, __file__, beside.found)
assert sys.modules["__main__"].__dict__ is globals()
class Mine: pass
assert Mine.__module__ == "__main__"
atexit.register(lambda: print("bye", Mine.__name__))
"""


def argosy_paddle(
    *words: str, cwd: Path, ranks: ForkServer | None = None
) -> "subprocess.CompletedProcess[str]":
    """With a fork server, in a process that has imported torch already."""
    if ranks is not None:
        return ranks.python("-m", "argosy.paddle", *words, cwd=cwd, timeout_s=240.0)
    return subprocess.run(
        [sys.executable, "-m", "argosy.paddle", *words],
        check=False,
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.slow
def test_a_script_sees_what_python_would_show_it(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "script.py").write_text(SHOW)
    (folder / "beside.py").write_text("import paddle\nfound = paddle.__name__\n")
    done = argosy_paddle("elsewhere/script.py", "-m", "--lr", "1", cwd=tmp_path)
    argv = ["elsewhere/script.py", "-m", "--lr", "1"]
    shown = f"{argv} {folder.resolve()} __main__ {folder / 'script.py'} argosy\nbye Mine\n"
    assert done.stdout == shown, done.stderr


def test_a_module_sees_what_python_would_show_it(ranks: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text(SHOW)
    (tmp_path / "beside.py").write_text("import paddle\nfound = paddle.__name__\n")
    done = argosy_paddle("-m", "package", "a", cwd=tmp_path, ranks=ranks)
    file = str(tmp_path / "package" / "__main__.py")
    assert done.stdout == f"{[file, 'a']} {tmp_path} __main__ {file} argosy\nbye Mine\n", done.stderr


def test_a_traceback_begins_in_the_script(ranks: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("import paddle\n\ndef f():\n    paddle.nn.Linea(1, 2)\n\nf()\n")
    done = argosy_paddle("fails.py", cwd=tmp_path, ranks=ranks)
    assert done.returncode == 1
    frames = re.findall(r'File "(.*?)", line (\d+), in (\S+)', done.stderr)
    path = str(tmp_path / "fails.py")
    assert frames[:2] == [(path, "6", "<module>"), (path, "4", "f")]
    assert "paddle.nn.Linea is not in Argosy (did you mean 'Linear'" in done.stderr


def test_a_syntax_error_shows_nothing_of_ours(ranks: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n")
    done = argosy_paddle("bad.py", cwd=tmp_path, ranks=ranks)
    assert (done.returncode, "argosy" in done.stderr) == (1, False), done.stderr
    assert "SyntaxError" in done.stderr


def test_the_exit_code_is_the_scripts(ranks: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(7)\n")
    assert argosy_paddle("leaves.py", cwd=tmp_path, ranks=ranks).returncode == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.py"], "error: no script 'absent.py' in"),
        (["--what"], "error: no option '--what'"),
        (["-m"], "error: -m without a module"),
        (["-m", "absent.module"], "error: no module 'absent.module'"),
        ([], "python -m argosy.paddle script.py arguments"),
    ],
)
def test_an_invalid_command_line_exits_with_2(
    words: list[str], message: str, ranks: ForkServer, tmp_path: Path
) -> None:
    done = argosy_paddle(*words, cwd=tmp_path, ranks=ranks)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_fleet_script_for_paddle_runs_unmodified(ranks: ForkServer, tmp_path: Path) -> None:
    words = (str(SCRIPTS / "train_fleet_static.py"), "18", "program.txt")
    done = argosy_paddle(*words, cwd=tmp_path, ranks=ranks)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "Start collective training example:",
        "Run on CUDAPlace(0).",
        "Execute startup program.",
    ]
    losses = [
        re.fullmatch(r"\[Epoch 0, batch (\d)\] loss: (\d\.\d{5}), acc1: \S+, acc5: \S+", line)
        for line in lines[3:]
    ]
    assert [match[1] for match in losses if match] == ["0", "1"]
    assert "fc_0.w_0" in (tmp_path / "program.txt").read_text()
