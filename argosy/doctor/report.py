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
    hosts_by_version: dict[str, dict[str, list[str]]] = {name: {} for name in _SAME}
    for check in checks:
        if check.name in _SAME:
            hosts_by_version[check.name].setdefault(check.figure.split(" ")[0].rstrip(","), []).append(
                check.where
            )
    return [
        Check(
            f"{name} of all hosts",
            _SAME[name],  # type: ignore[arg-type]  # a status
            "; ".join(f"{version}: {', '.join(hosts)}" for version, hosts in sorted(versions.items())),
            "install the same version on all hosts: programs and messages may differ",
            where="all hosts",
        )
        for name, versions in hosts_by_version.items()
        if len(versions) > 1
    ]


def merged(checks: Sequence[Check]) -> list[Check]:
    """One line for what several hosts or ranks have in common; checks of one name stay together."""
    by_name: dict[str, list[Check]] = {}
    for check in checks:
        by_name.setdefault(check.name, []).append(check)
    lines = []
    for group in by_name.values():
        alike: dict[tuple[str, str], list[Check]] = {}
        for check in group:
            alike.setdefault((check.status, check.advice), []).append(check)
        for some in alike.values():
            is_same = len({check.figure for check in some}) == 1
            is_common = some[0].status != "ok" and len(some) == len(group)  # the advice is for all of them
            is_long = len(some) >= _MANY or is_common
            is_long &= all(check.value is not None for check in some)
            lines += [_common(some, len(group))] if len(some) > 1 and (is_same or is_long) else some
    return lines


def _common(some: Sequence[Check], count: int) -> Check:
    """One line for checks of one status: those that are not ok are named."""
    where = f"all {count}" if len(some) == count else f"{len(some)} of {count}"
    if some[0].status != "ok" and len(some) < count:
        where = ", ".join(check.where for check in some)
    low, high = (choose(some, key=lambda check: check.value or 0.0) for choose in (min, max))
    figure = low.figure if low.figure == high.figure else f"{low.figure} … {high.figure}"
    return replace(some[0], figure=figure, where=where)


def summary(lines: Sequence[Check], hosts: int, ranks: int, seconds: float) -> str:
    """The last line: how many of the others are ok, warnings, failures."""
    counts = [sum(line.status == status for line in lines) for status in STATUSES]
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
    print(summary(lines, hosts, ranks, seconds))


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
    for column in ("", "check", "where", "figure, and what to do"):
        table.add_column(column, overflow="fold")
    for line in lines:
        style = _STYLES[line.status]
        cell = Text(line.figure)
        if line.advice:
            cell.append(f"\n-> {line.advice}", style)
        table.add_row(Text(line.status, style), Text(line.name), Text(line.where), cell)
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
