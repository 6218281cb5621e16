"""The settings that earlier jobs chose, by model, machine, ranks and link: the next job starts with them.

    {"format": 1, "choices": {"3f2a… 2x2 1gbit": {"setting": {"bucket_mb": 4, …}, "step_ms": 310.2, "link": 0.94}}}

One file for each CPU model, torch version and number of threads, as for kernel choices. Links are of one kind if their
bandwidths differ by less than a factor of 1.5.
"""

# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from argosy.distributed.auto.setting import Setting
from argosy.distributed.auto.template import Template
from argosy.engine import env
from argosy.engine.files import locked, replacement
from argosy.engine.kernels.choices_file import file_name
from argosy.engine.log import logger

FORMAT = 1
_SAME_LINK = 1.5


def cache_file() -> Path:
    """The file of this machine."""
    return env.cache_dir() / "autotune" / file_name(torch.get_num_threads())


def fingerprint(template: Template, hosts: int, ranks: int) -> str:
    """Of a model on so many hosts and ranks: its ops with the types of their results, and what its ranks sum."""
    digest = hashlib.sha256(repr(template.reduced).encode())
    for node in template.program.graph.nodes:
        value = node.meta.get("val")
        kind = (value.dtype, tuple(map(str, value.shape))) if isinstance(value, torch.Tensor) else ()
        digest.update(f"{node.target}{kind}".encode())
    digest.update(repr(asdict(template.setting)).encode())
    return f"{digest.hexdigest()[:16]} {hosts}x{ranks // hosts}"


def find(path: Path, key: str, gbit_per_s: float) -> Setting | None:
    """The choice for this model and a link of about this bandwidth (0: none); None without one."""
    for entry in _read(path).get(key, []):
        if _is_same(entry, gbit_per_s):
            return setting_of(entry.get("setting"))
    return None


def has(path: Path, key: str) -> bool:
    """Whether there is a choice for any link."""
    return bool(_read(path).get(key))


def add(path: Path, key: str, gbit_per_s: float, setting: Setting, step_ms: float) -> None:
    """Store a choice in place of that for a similar link; a file that cannot be written is logged."""
    entry = {"setting": asdict(setting), "step_ms": round(step_ms, 4), "link": round(gbit_per_s, 4)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name("lock")):
            choices = _read(path)
            choices[key] = [entry, *(e for e in choices.get(key, []) if not _is_same(e, gbit_per_s))]
            with replacement(path) as temporary:
                temporary.write_text(json.dumps({"format": FORMAT, "choices": choices}, indent=1) + "\n")
    except OSError as e:
        logger.warning("the choice of autotune is not stored in %s: %s", path, e.strerror)


def setting_of(values: Any) -> Setting | None:
    """The setting of a JSON object; None if it is not one of this version."""
    names = {field.name for field in fields(Setting)}
    if not isinstance(values, dict) or values.keys() != names:
        return None
    defaults = asdict(Setting())
    if any(type(values[name]) is not type(default) for name, default in defaults.items()):
        return None
    return Setting(**values)


def _is_same(entry: dict[str, Any], gbit_per_s: float) -> bool:
    link = entry.get("link")
    if not isinstance(link, int | float):
        return False
    return link == gbit_per_s or bool(link and 1 / _SAME_LINK < gbit_per_s / link < _SAME_LINK)


def _read(path: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        content = json.loads(path.read_text())
        choices: dict[str, list[dict[str, Any]]] = content["choices"]
        if content["format"] != FORMAT or not all(isinstance(e, list) for e in choices.values()):
            return {}
        return choices
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
