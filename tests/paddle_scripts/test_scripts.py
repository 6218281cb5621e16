"""Scripts for Paddle 1.8 and 2.0 train unmodified: each file in this folder, as its first comment lines say.

    # run: fleetrun --paddle --server_num=1 --worker_num=2       the command; the script and `args` are appended
    # args: --epochs 1
    # expect: epoch 0: loss \\d+\\.\\d+                            a regular expression that the output must match
    # falls: loss (\\d+\\.\\d+)                                    of the numbers that a process prints, the last must
                                                              be at most 0.8 of the first
    # suite: fast                                               in `make test`; else in `make test-slow`

`run` is `python -m argosy.paddle` if it is left out. The working directory is empty.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import re
import shlex
from collections import defaultdict
from pathlib import Path

import pytest

from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun

FOLDER = Path(__file__).parent
PYTHON = "python -m argosy.paddle"
TIMEOUT_S = 240.0
MOST_OF_FIRST = 0.8
"""How much of the first loss the last one may be: noise of batches and initial weights does not pass for training."""


def directives(script: Path) -> dict[str, list[str]]:
    """The values of the comment lines at the head of the script, by keyword."""
    values: dict[str, list[str]] = defaultdict(list)
    for line in script.read_text().splitlines():
        match = re.match(r"# (run|args|expect|falls|suite): (.*)", line)
        if match is None:
            break
        values[match[1]].append(match[2])
    return values


def cases() -> list[object]:
    scripts = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("test_"))
    return [
        pytest.param(
            path, id=path.stem, marks=[] if "fast" in directives(path)["suite"] else [pytest.mark.slow]
        )
        for path in scripts
    ]


def outputs_of(script: Path, cwd: Path, ranks: ForkServer) -> dict[str, str]:
    """What the command prints, as "stdout", and what each log of its processes contains; the exit code must be 0."""
    given = directives(script)
    command = (given["run"] or [PYTHON])[0]
    arguments = shlex.split(" ".join(given["args"]))
    cache = {"ARGOSY_CACHE": os.environ["ARGOSY_CACHE"]} if "ARGOSY_CACHE" in os.environ else {}
    if command == PYTHON:
        done = ranks.python("-m", "argosy.paddle", str(script), *arguments, cwd=cwd, timeout_s=TIMEOUT_S)
        texts, errors, code = {"stdout": done.stdout}, done.stderr, done.returncode
    else:
        program, *options = shlex.split(command)
        assert (program, options[0]) == ("fleetrun", "--paddle"), command
        job = WarmFleetrun(ranks, *options, str(script), *arguments, cwd=cwd, environ=cache)
        out, errors = job.communicate(TIMEOUT_S)
        logs = sorted(path for path in (cwd / "log").glob("*log*") if path.is_file())
        texts = {"stdout": out} | {path.name: path.read_text() for path in logs}
        code = job.wait()
    assert code == 0, "\n".join([*texts.values(), errors])
    return texts


def check_falls(pattern: str, texts: dict[str, str]) -> None:
    """The numbers that match fall in each text that has any; a text is of one process, or of the launcher's mirror."""
    numbers = {name: [float(number) for number in re.findall(pattern, text)] for name, text in texts.items()}
    printed = {name: losses for name, losses in numbers.items() if losses}
    assert printed, f"{pattern!r} is not in\n" + "\n".join(texts.values())
    for name, losses in printed.items():
        assert len(losses) > 1, f"{name}: {pattern!r} matches once: {losses}"
        assert losses[-1] <= MOST_OF_FIRST * losses[0], f"{name}: {pattern!r} does not fall: {losses}"


@pytest.mark.parametrize("script", cases())
def test_a_script_trains_unmodified(script: Path, tmp_path: Path, ranks: ForkServer) -> None:
    given = directives(script)
    assert given["expect"] or given["falls"], f"{script.name} says nothing about its output"
    texts = outputs_of(script, tmp_path, ranks)
    out = "\n".join(texts.values())
    for pattern in given["expect"]:
        assert re.search(pattern, out), f"{pattern!r} is not in\n{out}"
    for pattern in given["falls"]:
        check_falls(pattern, texts)
