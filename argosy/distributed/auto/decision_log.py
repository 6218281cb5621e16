"""The decision log of autotune: what was tried, the predicted and measured figures, and why; as lines and as JSON.

step 132: switch to buckets of 4 MB, overlap: 21.3 % faster (18.9 % to 23.0 %) in 10 pairs, …
"""

# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from argosy.distributed.auto.tuner import Decision
from argosy.engine.files import replacement
from argosy.engine.log import NOTICE, logger

FILE = "autotune.json"
FORMAT, VERSION = "argosy.autotune", 1


def line(decision: Decision) -> str:
    """A decision on one line."""
    text = f"autotune, step {decision.step}: {_what(decision)}"
    return f"{text}; {decision.spent_s:.2f} s of {decision.elapsed_s:.0f} s used"


def _what(d: Decision) -> str:
    if d.kind in ("start", "restore"):
        verb = "starts with" if d.kind == "start" else "continues with"
        return f"{verb} {d.setting.text()} ({d.reason})"
    if d.kind == "plan":
        return f"plan: {d.reason}"
    if d.kind == "change":
        return f"change: {d.reason}"
    assert d.tried is not None, d.kind
    figures = f"{d.measured_ms:.2f} ms against {d.against_ms:.2f} ms, predicted {d.predicted_ms:.2f} ms"
    between = f" ({d.low:.1%} to {d.high:.1%})" if d.low is not None and d.high is not None else ""
    gain = d.gain or 0.0
    word = f"{gain:.1%} faster" if gain >= 0 else f"{-gain:.1%} slower"
    verb = "switch to" if d.kind == "switch" else "not"
    return f"{verb} {d.tried.text()}: {word}{between} in {d.pairs} pairs, {figures}: {d.reason}"


class DecisionLog:
    """Logs new decisions, and writes all of them to a file; used by rank 0."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        """None: nothing is written."""
        self._num_logged = 0

    def update(self, decisions: Sequence[Decision], facts: dict[str, Any]) -> None:
        """Log what is new; `facts` about the job are written with the decisions."""
        if len(decisions) == self._num_logged:
            return
        for decision in decisions[self._num_logged :]:
            logger.log(NOTICE, "%s", line(decision))
        self._num_logged = len(decisions)
        if self.path is None:
            return
        content = {"format": FORMAT, "version": VERSION, **facts, "decisions": list(map(_data, decisions))}
        try:
            with replacement(self.path) as temporary:
                temporary.write_text(json.dumps(content, indent=1) + "\n")
        except OSError as e:
            logger.warning("the decisions of autotune are not written to %s: %s", self.path, e.strerror)
            self.path = None


def _data(decision: Decision) -> dict[str, Any]:
    return {key: value for key, value in asdict(decision).items() if value is not None} | {
        "text": _what(decision)
    }
