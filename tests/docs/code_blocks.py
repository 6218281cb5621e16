"""Runs the code blocks of a page in docs/ and compares what they print with what the page shows.

    ```python title="train.py"    a file, written to a folder
    ```python                     a snippet; the snippets of a section (##) run in order, in one session
    ```sh                         commands for that folder, one per line: `python …` or `fleetrun …`
    ```text                       what the snippet or the commands before it print

A snippet above the first section runs at the start of every session. A snippet that raises prints the last line of the
traceback, and the session continues. In a text block `…` matches any text, a line break is a space, fractions may
differ by TOLERANCE, and line numbers (`train.py:9`) are not compared.

`python` runs in this process, with its own programs, names and scope, because importing torch takes seconds.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
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

from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.log import logger
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import clean_environ

DOCS = Path(__file__).parents[2] / "docs"
TOLERANCE = 2e-3
_FRACTION = r"-?\d+\.\d*(?:e[+-]?\d+)?"
_TOKEN = re.compile(rf"(?P<any>…)|(?P<line>\.py:\d+)|(?P<fraction>{_FRACTION})")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    """The name of the file; "" if the block is not a file."""
    code: str
    line: int
    """The line of the page at which the code starts."""


@dataclass(frozen=True)
class Section:
    """A heading of the second level and the blocks below it; the title is "" above the first heading."""

    title: str
    blocks: tuple[Block, ...]


@cache
def sections(page: str) -> tuple[Section, ...]:
    """The sections of a page that have blocks."""
    lines = (DOCS / page).read_text().splitlines()
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


def run(page: str, chosen: Sequence[Section], folder: Path) -> dict[str, str]:
    """Run the blocks of sections of a page; the commands and what each of them printed.

    AssertionError if a text block shows something else than what was printed, or if something was printed that the page
    does not show.
    """
    setup = [block for section in sections(page) if not section.title for block in section.blocks]
    commands: dict[str, str] = {}
    for section in chosen:
        with _session() as namespace:
            line = 0
            for block in setup:
                _run_snippet(block, namespace, line)
                line += block.code.count("\n")
            printed = ""
            for block in section.blocks:
                where = f"docs/{page}:{block.line}"
                if block.language == "text":
                    compare(printed, block.code, where)
                    printed = ""
                    continue
                assert not printed, f"{where}: the page does not show what is printed above it:\n{printed}"
                if block.title:
                    (folder / block.title).write_text(block.code)
                elif block.language == "python":
                    printed = _run_snippet(block, namespace, line)
                    line += block.code.count("\n")
                elif block.language == "sh":
                    actual = {command: _run_command(command, folder) for command in block.code.splitlines()}
                    commands |= actual
                    printed = "".join(actual.values())
            assert not printed, f"docs/{page}, end of {section.title!r}: the page does not show\n{printed}"
    return commands


# --- running ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _session() -> Iterator[dict[str, Any]]:
    """A namespace, and programs, names and a scope as a new process has them."""
    programs = Program("main_program"), Program("startup_program")
    with program_guard(*programs), names.guard(), scope_guard(Scope()):
        yield {"__name__": "__main__"}


def _run_snippet(block: Block, namespace: dict[str, Any], line: int) -> str:
    """What a snippet prints, logs and raises; `line`: how many lines of the session are above it."""
    code = compile("\n" * line + block.code, "train.py", "exec")
    with _printed() as out:
        try:
            exec(code, namespace)
        except Exception as e:
            print(f"{type(e).__name__}: {e}")
    return out.getvalue()


def _run_command(command: str, folder: Path) -> str:
    """What a command prints."""
    program, *arguments = shlex.split(command, comments=True)
    if program == "fleetrun":
        fleetrun = Path(sys.executable).with_name("fleetrun")
        done = subprocess.run(
            [fleetrun, *arguments],
            cwd=folder,
            env=clean_environ(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout
    assert program == "python", f"{command!r}: only python and fleetrun are run"
    try:
        with (
            _session(),
            _printed() as out,
            contextlib.chdir(folder),
            mock.patch.object(sys, "argv", arguments),
            mock.patch.object(sys, "path", [str(folder), *sys.path]),
        ):
            runpy.run_path(arguments[0], run_name="__main__")
    finally:
        for name in [path.stem for path in folder.glob("*.py")]:
            sys.modules.pop(name, None)
    return out.getvalue()


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
