"""The script or module of a rank: located and checked without importing it."""

# SPDX-License-Identifier: Apache-2.0
import os
import sys
from pathlib import Path

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.entrypoint import bootstrap_command, command


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "loop.py").touch()
    return tmp_path


def test_a_script_is_run_unbuffered() -> None:
    args = command(Configuration("train.py", ("--lr", "1")))
    assert args == ["train.py", "--lr", "1"]
    assert bootstrap_command(args, "log/error")[:2] == [sys.executable, "-u"]
    assert bootstrap_command(args, "log/error")[3:] == [
        os.path.abspath("log/error"),
        str(os.getpid()),
        *args,
    ]


def test_a_module_is_run_with_m_and_not_imported_before() -> None:
    assert command(Configuration("mine.loop", module=True)) == ["-m", "mine.loop"]


def test_a_script_for_paddle_runs_under_the_import_hook() -> None:
    args = command(Configuration("train.py", paddle=True))
    assert args == ["--install", "argosy.paddle.hook", "train.py"]


def test_a_missing_script_suggests_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="no script 'tran.py' .*did you mean 'train.py'"):
        command(Configuration("tran.py"))
    with pytest.raises(ConfigError, match="Python files there: train.py"):
        command(Configuration("zzz"))
    with pytest.raises(ConfigError, match="no directory 'nowhere' either"):
        command(Configuration("nowhere/train.py"))


def test_a_script_that_is_no_file_is_rejected(here: Path) -> None:
    with pytest.raises(ConfigError, match="'mine' is a directory"):
        command(Configuration("mine"))
    os.mkfifo(here / "pipe")
    with pytest.raises(ConfigError, match="is not a file"):
        command(Configuration("pipe"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing_here", "no module 'nothing_here'"),
        ("mine.nothing", "no module 'mine.nothing'"),
        ("json.tool.x", "no module 'json.tool.x'"),
        ("train.py", "no module 'train.py'"),
        ("a/b", "'a/b' is not a module name"),
        ("mine", "the package 'mine' has no __main__.py"),
    ],
)
def test_a_module_that_cannot_be_run_is_rejected(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        command(Configuration(name, module=True))
