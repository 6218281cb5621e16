"""Which names of Paddle 2.0 work: imports each name of paddle_names.txt as a script would, through the import hook."""

# SPDX-License-Identifier: Apache-2.0
import importlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path
from typing import Any

from argosy.engine.errors import ArgosyError
from argosy.framework import unsupported_names
from argosy.framework.missing import Raises
from argosy.paddle import install, uninstall

LIST = Path(__file__).with_name("paddle_names.txt")
WORKS, RAISES, NOT_FOR_STATIC, MISSING = "works", "raises", "not for static graphs on CPU", "missing"


@dataclass(frozen=True)
class Name:
    """A name of Paddle and whether it works in Argosy."""

    module: str
    name: str
    status: str
    reason: str = ""


def listed() -> Iterator[tuple[str, str]]:
    """(module, name) of every line of the list."""
    module = ""
    for line in LIST.read_text().splitlines():
        if line.startswith("["):
            module = line.strip("[]")
        elif not line.startswith("#"):
            yield from ((module, name) for name in line.split())


@cache
def names() -> tuple[Name, ...]:
    """Every name of the list with its status."""
    install()
    try:
        return tuple(_name(module, name) for module, name in listed())
    finally:
        uninstall()


def _name(module: str, name: str) -> Name:
    inside = f"{module}.{name}".removeprefix("paddle.")
    entry = unsupported_names.entry(inside)
    value = _look_up(module, name)
    if value is not None and not isinstance(value, Raises):
        return Name(module, name, WORKS)
    if entry is not None:
        return Name(module, name, RAISES if entry.is_for_static_cpu else NOT_FOR_STATIC, entry.reason)
    if isinstance(value, Raises):
        return Name(module, name, RAISES, value.reason)
    return Name(module, name, MISSING)


def _look_up(module: str, name: str) -> Any:
    try:
        return reduce(getattr, name.split("."), importlib.import_module(module))
    except (ArgosyError, ImportError, AttributeError):
        pass
    try:
        return importlib.import_module(f"{module}.{name}")
    except (ArgosyError, ImportError):
        return None


def summary() -> str:
    """How many names of each module work, and the share of those that make sense for static graphs on the CPU."""
    modules = list(dict.fromkeys(name.module for name in names()))
    rows = [_summary_row(f"`{module}`", [n for n in names() if n.module == module]) for module in modules]
    rows.append(_summary_row("**all**", list(names())))
    heads = ("module", "names", WORKS, RAISES, MISSING, NOT_FOR_STATIC, "share that works")
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, ["---"] * len(heads), *rows))


def _summary_row(title: str, group: list[Name]) -> list[str]:
    count = Counter(name.status for name in group)
    meant = len(group) - count[NOT_FOR_STATIC]
    share = f"{100 * count[WORKS] // meant} %" if meant else "–"
    cells = (len(group), *(count[status] for status in (WORKS, RAISES, MISSING, NOT_FOR_STATIC)))
    return [title, *map(str, cells), share]


def page() -> str:
    """For every module: the names that work, then the others by reason."""
    parts = []
    for module in dict.fromkeys(name.module for name in names()):
        group = [name for name in names() if name.module == module]
        lines = [f"## {module}\n"]
        lines += _works([name.name for name in group if name.status == WORKS])
        reasons = dict.fromkeys((n.status, n.reason) for n in group if n.status != WORKS)
        for status, reason in reasons:
            chosen = [n.name for n in group if (n.status, n.reason) == (status, reason)]
            because = {MISSING: "Missing", RAISES: f"Raises because {reason}"}
            lines.append(
                f"{because.get(status, f'Not for static graphs on CPU: {reason}')}: {_code(chosen)}.\n"
            )
        parts.append("\n".join(lines))
    return "\n".join(parts)


def _works(chosen: list[str]) -> list[str]:
    return [f"Works: {_code(chosen)}.\n"] if chosen else []


def _code(chosen: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(chosen))
