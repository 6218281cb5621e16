"""The results as text: totals, then everything that is not equal, stable from run to run."""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import date

from tests.torch_db import nets
from tests.torch_db.outcome import (
    EAGER_FAILS,
    EQUAL,
    KINDS,
    PROPERTIES_ONLY,
    REJECTED,
    SHAPE_ONLY,
    WRONG,
    Record,
    stable,
)
from tests.torch_db.reasons import reason_for

_ROWS = (
    ("modules", ("train", "eval", "clone")),
    ("samples", ("train", "eval", "clone")),
    ("ops", ("forward", "backward")),
    ("nets", ("train", "eval", "clone")),
)
_FORMS = ("concrete", "unknown", "empty")
_MOST_NAMES = 12
_HEAD = """# Coverage of torch

Which of torch's modules and ops compute in a program what they compute in eager mode. `make coverage-torch` wrote this
page on {date}. It calls torch's modules and functions with the samples of torch's own databases, in a program and
in eager mode, and compares outputs, gradients and buffers. Nets are random compositions of layers; each is trained for
some steps on batches of several sizes.

| word | meaning |
|---|---|
| train, eval | a module called in that mode |
| clone | `program.clone(for_test=True)` after a training run, against `module.eval()` |
| concrete | every size is known when the program is built |
| unknown | dimension 0 of every feed is `None` |
| empty | a sample with a tensor without elements; sizes of 0 are `None` |
| equal | the same values, shapes and dtypes |
| rejected | an error that says what is unsupported, why, and in which line of the script |
| raw | an error that does not |
| wrong | other values, shapes or dtypes than eager mode has |
| crash, timeout | the process died, or took too long |
| runner fails | a mistake of the comparison itself |
| skipped | the clone of what did not run; the gradient of what is not equal |

Samples that eager mode itself rejects are not counted. Of the equal ones, "by shape" are random or
uninitialised in eager mode too and draw other numbers here; "by properties" are random modules of which shape,
scale and distribution were compared.
"""


def summary(records: Sequence[Record]) -> str:
    """The totals as a table in Markdown; a row counts samples, and how many names have nothing but equal ones."""
    counted = [r for r in records if r.kind != EAGER_FAILS]
    head = ["", "form", "names", "all equal", "samples", *KINDS, "by shape", "by properties"]
    lines = [_row(head), _row(["---"] * len(head))]
    for group, modes in _ROWS:
        for mode in modes:
            for form in _FORMS:
                chosen = [r for r in counted if (r.group, r.mode, r.form) == (group, mode, form)]
                if chosen:
                    lines.append(_row([f"{group} {mode}", form, *_totals(chosen)]))
    return "\n".join(lines)


def _totals(records: Sequence[Record]) -> list[str]:
    names = {r.name for r in records}
    bad = {r.name for r in records if r.kind != EQUAL}
    kinds = Counter(r.kind for r in records)
    details = Counter(r.detail for r in records if r.kind == EQUAL)
    counts = [len(names), len(names - bad), len(records), *(kinds[kind] for kind in KINDS)]
    return [str(count) for count in (*counts, details[SHAPE_ONLY], details[PROPERTIES_ONLY])]


def to_markdown(records: Sequence[Record]) -> str:
    """The whole report."""
    parts = [_HEAD.replace("{date}", str(date.today())), "## Totals\n", summary(records), ""]
    for kind in ("wrong", "crash", "timeout", "runner fails", "raw", "rejected"):
        chosen = [r for r in records if r.kind == kind]
        if chosen:
            parts += [
                f"## {kind.capitalize()}\n",
                _listed(chosen, with_reasons=kind in (WRONG, REJECTED)),
                "",
            ]
    return "\n".join(parts)


def _listed(records: Iterable[Record], with_reasons: bool) -> str:
    """One line for each message: where it comes from and, if we know it, the reason."""
    names: dict[tuple[str, str], set[str]] = defaultdict(set)
    places: dict[tuple[str, str], set[str]] = defaultdict(set)
    for r in records:
        key = (r.group, message(r))
        names[key].add(r.name)
        places[key].add(f"{r.mode} {r.form}")
    lines = [_row(["what", "where", "message", "reason"]), _row(["---"] * 4)]
    for key in sorted(names, key=lambda key: (key[0], sorted(names[key]), key[1])):
        given = (reason_for(name, key[1]) for name in sorted(names[key]))
        reasons = dict.fromkeys(filter(None, given)) if with_reasons else {}
        cells = [_some(sorted(names[key])), ", ".join(sorted(places[key])), key[1], " ".join(reasons)]
        lines.append(_row([cells[0], cells[1], _escaped(cells[2]), cells[3]]))
    return "\n".join(lines)


def message(record: Record) -> str:
    """The detail without the arguments' shapes and the net's pieces, so that samples of one cause share a line."""
    detail = stable(nets.without_pieces(record.detail))
    _, actual, tail = detail.partition(" cannot be built: ")
    return f"cannot be built: {tail}" if actual else detail


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
