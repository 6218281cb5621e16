"""The entry point of every process of a job: scripts run as under Python, and their failures become error files."""

# SPDX-License-Identifier: Apache-2.0
import os
import py_compile
import signal
import subprocess
import zipfile
from pathlib import Path

import pytest

from argosy.engine.launch.entrypoint import bootstrap_command
from argosy.engine.launch.failure_report import ErrorRecord, read_error


def run(
    directory: Path, script: str, *words: str, module: bool = False
) -> tuple[int, ErrorRecord | None, str]:
    """Exit code, error record and output of a script."""
    (directory / "train.py").write_text(script)
    target = ["-m", "train"] if module else ["train.py"]
    command = bootstrap_command([*target, *words], str(directory / "error"))
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return done.returncode, read_error(str(directory / "error")), done.stdout + done.stderr


@pytest.mark.parametrize("module", [False, True])
def test_an_exception_is_written_with_its_source_line(tmp_path: Path, module: bool) -> None:
    code, error, said = run(tmp_path, "def f():\n    raise ValueError('a\\nb')\nf()\n", module=module)
    assert (code, error is not None) == (1, True)
    assert error is not None
    assert (error.what, error.exit_code, error.step) == ("ValueError: a", 1, None)
    assert error.where == f"{tmp_path / 'train.py'}:2, in f"
    assert error.traceback == said
    assert "bootstrap" not in said
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["error", "train.py"]


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit('no data')", 1),
        ("raise SystemExit(-1)", 255),
        ("raise KeyboardInterrupt", -signal.SIGINT),
    ],
)
def test_an_exit_code_is_written(tmp_path: Path, how: str, code: int) -> None:
    ended, error, _ = run(tmp_path, how)
    assert error is not None
    assert (ended, error.exit_code) == (code, code)
    assert error.where.endswith("train.py:1, in <module>")


@pytest.mark.parametrize("how", ["", "raise SystemExit", "raise SystemExit(0)", "raise SystemExit(256)"])
def test_success_writes_nothing(tmp_path: Path, how: str) -> None:
    assert run(tmp_path, how)[:2] == (0, None)


def test_a_syntax_error_has_a_source_line(tmp_path: Path) -> None:
    code, error, said = run(tmp_path, "x = = 1\n")
    assert code == 1
    assert error is not None
    assert error.what.startswith("SyntaxError: invalid syntax")
    assert error.where == f"{tmp_path / 'train.py'}:1"
    assert "Traceback" not in said


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    script = "import os\nif os.fork() == 0: raise ValueError('of the child')\nos.wait()\n"
    code, error, said = run(tmp_path, script)
    assert (code, error) == (0, None)
    assert "ValueError: of the child" in said


def test_blamed_ranks_are_written_also_if_the_script_raises_another_exception(tmp_path: Path) -> None:
    script = (
        "class Lost(Exception):\n    ranks, state = (1, 2), 'lost'\n"
        "try:\n    raise Lost\nexcept Lost as e:\n    raise RuntimeError('no training') from e\n"
    )
    error = run(tmp_path, script)[1]
    assert error is not None
    assert (error.type, error.ranks, error.state) == ("RuntimeError", (1, 2), "lost")


def test_exit_functions_and_pickles_find_the_script_in_main(tmp_path: Path) -> None:
    script = (
        "import atexit, pickle, sys, multiprocessing\n"
        "class Mine: pass\n"
        "def double(x): return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    assert sys.modules['__main__'].__dict__ is globals()\n"
        "    assert isinstance(pickle.loads(pickle.dumps(Mine())), Mine)\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(double, [1, 2]))\n"
        "    print(sys.argv)\n"
        "    atexit.register(lambda: print(Mine.__name__))\n"
    )
    for module, first in ((False, "train.py"), (True, str(tmp_path / "train.py"))):
        code, _, said = run(tmp_path, script, "--lr", "1", module=module)
        assert (code, said) == (0, f"[2, 4]\n{[first, '--lr', '1']}\nMine\n")


def test_compiled_scripts_and_zip_files_run_too(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text("import sys\nprint(__name__, sys.argv[1:])\nsys.exit(3)\n")
    with zipfile.ZipFile(tmp_path / "train.pyz", "w") as archive:
        archive.write(tmp_path / "__main__.py", "__main__.py")
    py_compile.compile(str(tmp_path / "__main__.py"), str(tmp_path / "train.pyc"))
    for name in ("train.pyz", "train.pyc"):
        command = bootstrap_command([name, "a"], str(tmp_path / "error"))
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (3, "__main__ ['a']\n"), done.stderr


def test_the_error_file_is_there_before_exit_functions_run(tmp_path: Path) -> None:
    script = "import atexit, os\natexit.register(lambda: print(os.path.exists('error')))\nraise ValueError\n"
    assert "True\n" in run(tmp_path, script)[2]


def test_an_error_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "error.tmp").mkdir()
    code, error, said = run(tmp_path, "raise ValueError('x')")
    assert (code, error) == (1, None)
    assert f"cannot write the error file {tmp_path / 'error'}: Is a directory\n" in said
    assert "ValueError: x\n" in said


def test_it_does_not_run_without_its_launcher(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran')")
    command = bootstrap_command(["train.py"], str(tmp_path / "error"))
    command[4] = str(os.getppid())
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_malformed_error_file_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_error(str(tmp_path / "missing")) is None
    assert not caplog.records
    (tmp_path / "error").write_text("{")
    assert read_error(str(tmp_path / "error")) is None
    assert "cannot read the error file" in caplog.text
