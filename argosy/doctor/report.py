"""The report: one table for all hosts, or one JSON document."""

# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from argosy.doctor.check import STATUSES, Check, worst
from argosy.engine.version import VERSION

FORMAT = 1
"""Of the JSON document; changes if a key gets another meaning."""
_STYLES = {"ok": "green", "warning": "yellow", "failure": "bold red"}
_MANY = 4
"""From so many hosts or ranks on, those of which a check is ok share a line."""
_SAME = {"argosy": "failure", "torch": "failure", "python": "warning"}
"""Checks whose figures must be the same on all hosts, and how bad it is if not."""


def compare_hosts(checks: Iterable[Check]) -> list[Check]:
    """A line for each version that differs between the hosts."""
    found: dict[str, dict[str, list[str]]] = {name: {} for name in _SAME}
    for check in checks:
        if check.name in _SAME:
            found[check.name].setdefault(check.figure.split(" ")[0].rstrip(","), []).append(check.where)
    return [
        Check(
            f"{name} of all hosts",
            _SAME[name],  # type: ignore[arg-type]  # a status
            "; ".join(f"{version}: {', '.join(hosts)}" for version, hosts in sorted(versions.items())),
            "install the same version on all hosts: programs and messages may differ",
            where="all hosts",
        )
        for name, versions in found.items()
        if len(versions) > 1
    ]


def merged(checks: Sequence[Check]) -> list[Check]:
    """One line for what several hosts or ranks have in common; checks of one name stay together."""
    by_name: dict[str, list[Check]] = {}
    for check in checks:
        by_name.setdefault(check.name, []).append(check)
    lines = []
    for group in by_name.values():
        good = [check for check in group if check.status == "ok"]
        is_same = len({check.figure for check in good}) == 1
        if len(good) > 1 and (is_same or len(good) >= _MANY):
            lines += [_common(good, len(group), is_same), *(c for c in group if c.status != "ok")]
        else:
            lines += group
    return lines


def _common(good: Sequence[Check], count: int, is_same: bool) -> Check:
    where = f"all {count}" if len(good) == count else f"{len(good)} of {count}"
    if is_same:
        return replace(good[0], where=where)
    values = [(check.value, check.figure) for check in good if check.value is not None]
    if not values:
        return replace(good[0], figure=f"{good[0].figure}, …", where=where)
    low, high = min(values), max(values)
    return replace(good[0], figure=f"{low[1]} … {high[1]}", where=where)


def summary(checks: Sequence[Check], hosts: int, ranks: int, seconds: float) -> str:
    """The last line: how many checks are ok, warnings, failures."""
    counts = [sum(check.status == status for check in checks) for status in STATUSES]
    words = ", ".join(
        f"{count} {status if status == 'ok' else status + 's' * (count != 1)}"
        for count, status in zip(counts, STATUSES, strict=True)
    )
    of = f"{hosts} host{'s' * (hosts != 1)}, {ranks} rank{'s' * (ranks != 1)}"
    return f"{words}; {of}, {seconds:.1f} s"


def show(checks: Sequence[Check], hosts: int, ranks: int, seconds: float, columns: int | None) -> None:
    """Print the table: `columns` wide and in colours on a terminal, plain with None."""
    lines = merged(checks)
    if columns is None:
        for line in plain(lines):
            print(line)
    else:
        Console(force_terminal=True, width=columns).print(_table(lines))
    print(summary(checks, hosts, ranks, seconds))


def plain(lines: Sequence[Check]) -> list[str]:
    """Aligned text; advice has a line of its own."""
    widths = [max((len(getattr(line, key)) for line in lines), default=0) for key in ("name", "where")]
    text = []
    for line in lines:
        text.append(
            f"{line.status:7}  {line.name:{widths[0]}}  {line.where:{widths[1]}}  {line.figure}".rstrip()
        )
        if line.advice:
            text.append(f"{'':7}  -> {line.advice}")
    return text


def _table(lines: Sequence[Check]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("", "check", "where", "figure", "what to do"):
        table.add_column(column, overflow="fold")
    for line in lines:
        status = Text(line.status, _STYLES[line.status])
        table.add_row(status, *map(Text, (line.name, line.where, line.figure, line.advice)))
    return table


def document(checks: Sequence[Check], hosts: Sequence[str], ranks: int, seconds: float) -> str:
    """The JSON document."""
    return json.dumps(
        {
            "format": FORMAT,
            "argosy": VERSION,
            "status": worst(checks),
            "hosts": list(hosts),
            "ranks": ranks,
            "seconds": round(seconds, 2),
            "checks": [asdict(check) for check in checks],
        },
        indent=1,
    )
