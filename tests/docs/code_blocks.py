"""Runs the code blocks of a page and compares what they print with what the page shows.

    ```python title="train.py"           a file, written to a folder
    ```python                            a snippet; the snippets of a section (##) run in order, in one session
    ```python title="fragment: why"      part of a script: it is compiled, and its names of Argosy must exist
    ```sh                                commands for that folder, one per line; they run
    ```sh title="needs two hosts"        commands that are not run: their programs, files and options must exist
    ```text                              what the snippet or the commands before it print
    ```                                  an illustration

A snippet above the first section runs at the start of every session. A snippet that raises prints the last line of the
traceback, and the session continues. In a text block `…` matches any text, a line break is a space, fractions may
differ by TOLERANCE, and line numbers (`train.py:9`) are not compared.

`python file.py` runs in this process, with its own programs, names and scope, because importing torch takes seconds.
`python -m` and `fleetrun` run in processes that are forked from the fork server.
"""

# SPDX-License-Identifier: Apache-2.0
import ast
import contextlib
import importlib
import importlib.util
import io
import logging
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from argosy.engine import collective
from argosy.engine.cluster import cli
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.log import logger
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import ForkServer, clean_environ
from tests.warm_fleetrun import WarmFleetrun

ROOT = Path(__file__).parents[2]
TOLERANCE = 2e-3
_FRACTION = r"-?\d+\.\d*(?:e[+-]?\d+)?"
_TOKEN = re.compile(rf"(?P<any>…)|(?P<line>\.py:\d+)|(?P<fraction>{_FRACTION})")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    """The title of the fence: the name of a file, or why the block does not run; "" if it runs."""
    code: str
    line: int
    """The line of the page at which the code starts."""

    @property
    def is_file(self) -> bool:
        """A block that is written to a file."""
        return bool(self.title) and " " not in self.title

    @property
    def is_checked_only(self) -> bool:
        """A block that does not run."""
        return bool(self.title) and not self.is_file


@dataclass(frozen=True)
class Section:
    """A heading of the second level and the blocks below it; the title is "" above the first heading."""

    title: str
    blocks: tuple[Block, ...]


@cache
def sections(page: str) -> tuple[Section, ...]:
    """The sections of a page that have blocks."""
    lines = (ROOT / page).read_text().splitlines()
    heads = [number for number, line in enumerate(lines) if re.match("## |```", line)]
    actual: list[tuple[str, list[Block]]] = [("", [])]
    is_open = False
    for start, end in pairwise([*heads, len(lines)]):
        if lines[start].startswith("## "):
            actual.append((lines[start].removeprefix("## "), []))
            continue
        is_open = not is_open
        fence = re.fullmatch(r'```(\w*)(?: title="(.+)")?', lines[start])
        if is_open and fence is not None:
            code = "\n".join(lines[start + 1 : end]) + "\n"
            actual[-1][1].append(Block(fence[1], fence[2] or "", code, start + 2))
    return tuple(Section(title, tuple(blocks)) for title, blocks in actual if blocks)


def run(
    page: str, chosen: Sequence[Section], folder: Path, ranks: ForkServer | None = None
) -> dict[str, str]:
    """Run the blocks of sections of a page; the commands and what each of them printed.

    Without `ranks`, fleetrun is started as a user starts it. AssertionError if a text block shows something else than
    what was printed, or if something was printed that the page does not show.
    """
    setup = [block for section in sections(page) if not section.title for block in section.blocks]
    setup = [block for block in setup if block.language == "python" and not block.title]
    commands: dict[str, str] = {}
    for section in chosen:
        with _session(folder) as namespace:
            line = 0
            for block in setup if section.title else ():
                _run_snippet(block, namespace, line)
                line += block.code.count("\n")
            printed = ""
            for block in section.blocks:
                where = f"{page}:{block.line}"
                if not block.language:
                    continue
                if block.language == "text":
                    compare(printed, block.code, where)
                    printed = ""
                    continue
                assert not printed, f"{where}: the page does not show what is printed above it:\n{printed}"
                if block.is_checked_only:
                    check(block, where)
                elif block.is_file:
                    (folder / block.title).write_text(block.code)
                elif block.language == "python":
                    printed = _run_snippet(block, namespace, line)
                    line += block.code.count("\n")
                else:
                    assert block.language == "sh", f"{where}: no way to run {block.language!r}"
                    actual = run_commands(block.code, folder, ranks)
                    commands |= actual
                    printed = "".join(actual.values())
            assert not printed, f"{page}, end of {section.title!r}: the page does not show\n{printed}"
    return commands


# --- running ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _session(folder: Path) -> Iterator[dict[str, Any]]:
    """A namespace, and programs, names and a scope as a new process has them."""
    programs = Program("main_program"), Program("startup_program")
    with program_guard(*programs), names.guard(), scope_guard(Scope()), contextlib.chdir(folder):
        yield {"__name__": "__main__"}
    collective.disconnect()


def _run_snippet(block: Block, namespace: dict[str, Any], line: int) -> str:
    """What a snippet prints, logs and raises; `line`: how many lines of the session are above it."""
    code = compile("\n" * line + block.code, "train.py", "exec")
    with _printed() as out:
        try:
            exec(code, namespace)
        except Exception as e:
            print(f"{type(e).__name__}: {e}")
    return out.getvalue()


def run_commands(code: str, folder: Path, ranks: ForkServer | None) -> dict[str, str]:
    """What each command of a shell block prints; `export` sets a variable of those below it."""
    environ: dict[str, str] = {}
    printed: dict[str, str] = {}
    for command in filter(None, code.splitlines()):
        words = shlex.split(command, comments=True)
        if words[:1] == ["export"]:
            environ |= dict([words[1].split("=", 1)])
        elif words:
            printed[command] = _run_command(words, folder, environ, ranks)
    return printed


def _run_command(words: list[str], folder: Path, environ: dict[str, str], ranks: ForkServer | None) -> str:
    """What a command prints."""
    while "=" in words[0]:  # a variable of this command
        environ = environ | dict([words.pop(0).split("=", 1)])
    program, *arguments = words
    if program == "fleetrun":
        return _run_fleetrun(arguments, folder, environ, ranks)
    assert program == "python", f"{words}: only python and fleetrun are run"
    if arguments[0] == "-m" or environ:
        assert ranks is not None, words
        done = ranks.python(*arguments, cwd=folder, **environ)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout
    try:
        with (
            _session(folder),
            _printed() as out,
            mock.patch.object(sys, "argv", arguments),
            mock.patch.object(sys, "path", [str(folder), *sys.path]),
        ):
            runpy.run_path(arguments[0], run_name="__main__")
    finally:
        for name in [path.stem for path in folder.glob("*.py")]:
            sys.modules.pop(name, None)
    return out.getvalue()


def _run_fleetrun(
    arguments: list[str], folder: Path, environ: dict[str, str], ranks: ForkServer | None
) -> str:
    if ranks is not None:
        job = WarmFleetrun(ranks, *arguments, cwd=folder, environ=environ)
        out, errors = job.communicate(timeout=120)
        assert job.wait() == 0, f"fleetrun {arguments}\n{out}{errors}"
        return out
    fleetrun = Path(sys.executable).with_name("fleetrun")
    done = subprocess.run(
        [fleetrun, *arguments],
        cwd=folder,
        env=clean_environ() | environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"fleetrun {arguments}\n{done.stdout}{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def _printed() -> Iterator[io.StringIO]:
    """What is written to stdout or logged inside."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logger.handlers[0].formatter)
    logger.addHandler(handler)
    try:
        with contextlib.redirect_stdout(out):
            yield out
    finally:
        logger.removeHandler(handler)


# --- checking without running -------------------------------------------------------------------------

MODULES = {
    "paddle": "argosy",
    "argosy": "argosy",
    "static": "argosy.static",
    "fleet": "argosy.distributed.fleet",
    "fluid": "argosy.fluid",
    "torch": "torch",
}
"""What the pages call the modules of which fragments use names."""


def check(block: Block, where: str) -> None:
    """AssertionError unless a block that does not run could: it compiles, and what it names exists."""
    if block.language == "python":
        assert block.title.startswith("fragment: "), (
            f"{where}: a title is a file, or begins with `fragment: `"
        )
        for node in ast.walk(ast.parse(block.code)):
            if isinstance(node, ast.Attribute):
                _check_name(ast.unparse(node), where)
        return
    for command in filter(None, block.code.splitlines()):
        if words := shlex.split(command, comments=True):
            check_command(words, where)


def _check_name(dotted: str, where: str) -> None:
    first, *rest = dotted.split(".")
    if first not in MODULES or not all(part.isidentifier() for part in rest):
        return
    value: Any = importlib.import_module(MODULES[first])
    for part in rest:
        assert hasattr(value, part), f"{where}: {dotted} does not exist"
        value = getattr(value, part)


def check_command(words: list[str], where: str) -> None:
    """AssertionError unless the program, its files and its options exist; nothing runs."""
    while words and "=" in words[0]:
        words = words[1:]
    program, *arguments = words
    command = f"{where}: {' '.join(words)}"
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
        assert {word for word in arguments if "=" not in word} <= {*targets}, command
    elif program == "fleetrun":
        config = cli.parse(arguments)
        _check_script([config.script, *config.script_args], command)
    elif program == "python":
        if arguments[0] == "-m":
            assert importlib.util.find_spec(arguments[1]) is not None, command
            arguments = arguments[2:]
        _check_script(arguments, command)
    elif program == "ray" and "--" in arguments:  # ray job submit -- fleetrun …
        check_command(arguments[arguments.index("--") + 1 :], where)
    else:
        known = ("export", "torchrun", "mpirun", "srun", "git", "cd", "pip", "torchx", "kubectl")
        assert program in known, f"{command}: unknown program"


def _check_script(words: list[str], command: str) -> None:
    """The script exists and knows its options, if it is one of this repository and not of the reader."""
    folders = ("examples/", "benchmarks/", "tests/", "docs/")
    if not words or not words[0].startswith(folders):
        return
    script = ROOT / words[0]
    assert script.exists(), command
    given = {word.split("=")[0] for word in words[1:] if word.startswith("--") and word != "--"}
    assert given <= _options(script), f"{command}: unknown {given - _options(script)}"


@cache
def _options(script: Path) -> set[str]:
    """The options in the sources beside a script: `--name` in quotes."""
    folder = script if script.is_dir() else script.parent
    shared = [
        ROOT / "examples" / "resnet" / "common.py",
        ROOT / "examples" / "resnet" / "train_fleet_static.py",
    ]
    sources = "".join(path.read_text() for path in [*folder.glob("*.py"), *shared])
    return {*re.findall(r"""["'](--[\w-]+)["']""", sources)}


# --- comparing ----------------------------------------------------------------------------------------


def compare(printed: str, shown: str, where: str) -> None:
    """AssertionError unless a page shows what was printed."""
    pattern, wanted = _pattern(" ".join(shown.split()))
    match = re.fullmatch(pattern, " ".join(printed.split()))
    is_same = match is not None and [float(text) for text in match.groups()] == pytest.approx(
        wanted, rel=TOLERANCE, abs=TOLERANCE
    )
    assert is_same, f"{where} shows\n\n{shown}\nand this is printed:\n\n{printed}"


def _pattern(shown: str) -> tuple[str, list[float]]:
    """A regular expression with a group for each fraction, and the fractions."""
    parts, fractions, end = [], [], 0
    for token in _TOKEN.finditer(shown):
        parts.append(re.escape(shown[end : token.start()]))
        end = token.end()
        if token["fraction"]:
            fractions.append(float(token["fraction"]))
            parts.append(f"({_FRACTION})")
        else:
            parts.append(".*?" if token["any"] else r"\.py:\d+")
    return "".join(parts) + re.escape(shown[end:]), fractions
