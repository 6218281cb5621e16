"""Writes the generated parts of the documentation: `python -m docs.scripts.reference`.

A page marks such a part, and everything between the marks is replaced:

    <!-- begin fleetrun -->
    <!-- end fleetrun -->

`PARTS` has the function that writes each part. The command reads tables of the code (the parsers of the command line,
argosy/engine/env_table.py, the strategies) and the dated results in benchmarks/results.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import importlib
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import ModuleType

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.engine.cluster import cli
from argosy.engine.env_table import GROUPS, EnvVariable
from argosy.framework.strategy_settings import Configs, Field, Settings, shown
from argosy.static.strategies import BuildStrategy, ExecutionStrategy
from argosy.timeline import __main__ as timeline
from docs.scripts import paddle_names
from docs.scripts.headlines import ALL_REDUCE, DENSE, RANKS, SERVERS, START_UP, STEP, Comparison

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
PART = re.compile(r"(<!-- begin ([\w-]+) -->\n)(.*?)(<!-- end \2 -->)", re.S)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    head = list(heads)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


# --- the command line ---------------------------------------------------------------------------------


def options(parser: argparse.ArgumentParser) -> str:
    """The options of a parser: a table per group."""
    parts = []
    for group in parser._action_groups:
        rows = [_option(action) for action in group._group_actions]
        if rows:
            title = {"options": "General", "positional arguments": "Arguments"}.get(
                group.title or "", group.title or ""
            )
            parts.append(f"**{title[:1].upper()}{title[1:]}**\n\n{table(('option', 'effect'), rows)}")
    return "\n".join(parts)


def _option(action: argparse.Action) -> tuple[str, str]:
    value = action.metavar or ("|".join(action.choices) if action.choices else "")
    names = [f"{name} {value}".strip() for name in action.option_strings] or [str(value)]
    text = (action.help or "").replace("show this help message and exit", "print the options and exit")
    text = text.replace("show program's version number and exit", "print the version and exit")
    return ", ".join(f"`{name}`".replace("|", "\\|") for name in names), text.replace("|", "\\|")


# --- the environment ----------------------------------------------------------------------------------


def environment() -> str:
    """A table per group of variables."""
    parts = []
    for group in GROUPS:
        has_defaults = any(variable.default for variable in group.variables)
        heads = ("variable", "default", "effect") if has_defaults else ("variable", "value")
        rows = [_variable(variable, has_defaults) for variable in group.variables]
        text = f"{group.text}\n\n" if group.text else ""
        parts.append(f"## {group.title}\n\n{text}{table(heads, rows)}")
    return "\n".join(parts)


def _variable(variable: EnvVariable, has_defaults: bool) -> list[str]:
    names = ", ".join(f"`{name}`" for name in variable.names)
    is_value = variable.default and " " not in variable.default
    default = f"`{variable.default}`" if is_value else variable.default
    return [names, *([default] if has_defaults else []), variable.help]


# --- strategies ---------------------------------------------------------------------------------------


def switches(kind: type[Settings]) -> str:
    """The fields of a strategy, without the dicts."""
    fields = [field for field in kind.fields.values() if not _is_dict(field)]
    return table(("switch", "default", "status", "effect"), [_switch(field) for field in fields])


def dicts(kind: type[Settings]) -> str:
    """The dicts of a strategy: their keys and defaults."""
    rows = []
    for field in kind.fields.values():
        if _is_dict(field):
            keys = [f"`{key.name}` {shown(key.default)}" for key in field.kind.fields.values()]
            rows.append((f"`{field.name}`", ", ".join(keys)))
    return table(("dict", "keys and defaults"), rows)


def _is_dict(field: Field) -> bool:
    return field.is_part and issubclass(field.kind, Configs)


def _switch(field: Field) -> tuple[str, str, str, str]:
    default = f"{field.kind.title}()" if field.is_part else shown(field.default)
    return f"`{field.name}`", f"`{default}`", field.status, field.help


# --- the API ------------------------------------------------------------------------------------------


def names(module: str) -> str:
    """The public names of a module; also those that are built from tables, which mkdocstrings does not see."""
    members = importlib.import_module(module)
    public = [name for name in members.__all__ if not isinstance(getattr(members, name), ModuleType)]
    return textwrap.fill("All names: " + ", ".join(f"`{name}`" for name in sorted(public)) + ".", 120) + "\n"


# --- decisions and benchmarks -------------------------------------------------------------------------


def decisions() -> str:
    """The titles of the decisions, as links."""
    lines = []
    for page in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        number, _, title = page.read_text().split("\n", 1)[0].removeprefix("# ").partition(". ")
        lines.append(f"| {number} | [{title}]({page.name}) |\n")
    return "| | decision |\n| --- | --- |\n" + "".join(lines)


def comparisons(*given: Comparison) -> str:
    """How many times as fast, best / median, and the date of each."""
    rows = [(c.label, f"{c.best:.2f} / {c.median:.2f}", c.date) for c in given]
    return table(("", "best / median", "measured"), rows)


MODULES = (
    "static",
    "static.nn",
    "nn",
    "nn.functional",
    "optimizer",
    "optimizer.lr",
    "tensor",
    "fluid.layers",
)
PARTS: dict[str, Callable[[], str]] = {
    **{f"names-{module.replace('.', '-')}": partial(names, f"argosy.{module}") for module in MODULES},
    "fleetrun": lambda: options(cli.parser()),
    "timeline": lambda: options(timeline.parser()),
    "environment": environment,
    "distributed-strategy": lambda: switches(DistributedStrategy),
    "distributed-strategy-dicts": lambda: dicts(DistributedStrategy),
    "build-strategy": lambda: switches(BuildStrategy),
    "execution-strategy": lambda: switches(ExecutionStrategy),
    "decisions": decisions,
    "paddle-names-summary": paddle_names.summary,
    "paddle-names": paddle_names.page,
    "figures-step": lambda: comparisons(*STEP.comparisons),
    "figures-ranks": lambda: comparisons(*RANKS.comparisons, START_UP),
    "figures-all-reduce": lambda: comparisons(*ALL_REDUCE.comparisons),
    "figures-servers": lambda: comparisons(*SERVERS.comparisons, DENSE),
}


def written(text: str) -> str:
    """A page with its generated parts as they should be."""
    return PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n{part[4]}", text)


def main() -> int:
    """Write all pages; exit code 1 if one had to change and --check was given."""
    changed = []
    for page in PAGES:
        text = page.read_text()
        if (new := written(text)) != text:
            changed.append(str(page.relative_to(ROOT)))
            if "--check" not in sys.argv:
                page.write_text(new)
    print(f"generated parts: {', '.join(changed) or 'all current'}")
    return int(bool(changed) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
