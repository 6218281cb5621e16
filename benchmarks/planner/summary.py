"""Errors of predictions: by setting, by model, over all; and the rank correlation."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

Line = dict[str, Any]


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's; values that are equal do not occur."""
    if len(a) < 2:
        return 1.0
    first, second = (np.argsort(np.argsort(values)) for values in (a, b))
    return float(np.corrcoef(first, second)[0, 1])


def figures(lines: Sequence[Line]) -> dict[str, float]:
    """Median and worst error, rank correlation, and the machine's own repeatability."""
    errors = [abs(line["error"]) for line in lines]
    predicted, measured = ([line[key] for line in lines] for key in ("predicted_ms", "measured_ms"))
    return {
        "settings": len(lines),
        "median error": median(errors),
        "worst error": max(errors),
        "rank correlation": rank_correlation(predicted, measured),
        "median repeatability": median(line["repeatability"] for line in lines),
        "worst repeatability": max(line["repeatability"] for line in lines),
    }


def table(lines: Sequence[Line]) -> str:
    """Markdown: the figures of every model and of all, then every setting."""
    models = list(dict.fromkeys(line["model"] for line in lines))
    text = [
        "| model | settings | median error | worst error | rank correlation | repeatability: median | worst |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, mine in [*((m, [x for x in lines if x["model"] == m]) for m in models), ("all", list(lines))]:
        f = figures(mine)
        cells = [f"{f['median error']:.1%}", f"{f['worst error']:.1%}", f"{f['rank correlation']:.3f}"]
        cells += [f"{f['median repeatability']:.1%}", f"{f['worst repeatability']:.1%}"]
        text.append(f"| {name} | {f['settings']} | {' | '.join(cells)} |")
    text += ["", "| model | setting | predicted ms | measured ms | error | repeatability | other processes |"]
    text.append("|---|---|---|---|---|---|---|")
    for line in lines:
        times = f"{line['predicted_ms']:.2f} | {line['measured_ms']:.2f} | {line['error']:+.1%}"
        rest = f"{line['repeatability']:.1%} | {line['foreign']:.0%}"
        text.append(f"| {line['model']} | {line['case']} | {times} | {rest} |")
    return "\n".join(text) + "\n"
