"""The file of kernel choices, which persists measurements for the next start.

    {"format": 1, "choices": {"conv2d_grad weight, 8x64x56x56, …": {"best": "transposed", "ms": {"aten": 21.8, …}}}}

One file for each CPU model, torch version and number of threads. Writes are atomic, and concurrent ranks lose nothing:
each adds its choices to the current content under a lock.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

import torch

from argosy.engine.files import locked, replacement
from argosy.engine.log import logger

_FORMAT = 1
Entry = dict[str, Any]
"""best: the name of the fastest alternative; ms: the best time of each."""


def file_name(threads: int) -> str:
    """amd-epyc-25-1-torch-2.13.0-threads-2.json"""
    words = f"{_cpu()} torch {torch.__version__} threads {threads}".lower()
    return re.sub(r"[^a-z0-9.+]+", "-", words).strip("-") + ".json"


def read(path: Path) -> dict[str, Entry]:
    """The choices in the file; {} if there is no file. An invalid file is renamed, with a warning."""
    try:
        return _parsed(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        _rename_invalid(path, e)
        return {}


def add(path: Path, new: dict[str, Entry], replaces: bool = True) -> None:
    """Add choices to the file; OSError if it cannot be written. Without `replaces` a choice that covers the same
    alternatives stays: of several ranks that search, the first one decides."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name("lock")):
        known = read(path)
        fresh = {k: e for k, e in new.items() if replaces or not e["ms"].keys() <= _measured(known.get(k))}
        if fresh:
            _write(path, {**known, **fresh})


def _measured(entry: Entry | None) -> set[str]:
    return set(entry["ms"]) if entry else set()


def _parsed(text: str) -> dict[str, Entry]:
    content = json.loads(text)
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"it is not a file of kernel choices of format {_FORMAT}")
    choices = content.get("choices")
    if not isinstance(choices, dict):
        raise ValueError("it has no choices")
    for key, entry in choices.items():
        if not isinstance(entry, dict) or not isinstance(entry.get("best"), str):
            raise ValueError(f"the choice for {key!r} has no best alternative")
    return choices


def _rename_invalid(path: Path, reason: Exception) -> None:
    renamed = path.with_name(path.name + ".damaged")
    with contextlib.suppress(OSError):  # another rank may have renamed it
        os.replace(path, renamed)
    logger.warning("the file of kernel choices %s is invalid: %s; renamed to %s", path, reason, renamed.name)


def _write(path: Path, choices: dict[str, Entry]) -> None:
    text = json.dumps({"format": _FORMAT, "choices": choices}, indent=1, sort_keys=True)
    with replacement(path) as temporary:
        temporary.write_text(text + "\n")


def _cpu() -> str:
    """The name and the numbers of the CPU model: in a virtual machine the name alone is often ambiguous."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    fields = dict(re.findall(r"^([^\t\n:]+?)\s*:\s*(.*)$", text.split("\n\n", 1)[0], re.MULTILINE))
    words = [fields[key] for key in ("model name", "cpu family", "model") if key in fields]
    return " ".join(words) or platform.machine()
