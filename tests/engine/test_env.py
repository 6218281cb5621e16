"""The environment: every variable is known and documented, and an unknown one gets a warning."""

# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

from argosy.engine import env

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"ARGOSY_[A-Z][A-Z_]*[A-Z]")


def test_every_variable_that_is_read_is_in_the_list() -> None:
    texts = [path.read_text() for path in (ROOT / "argosy").rglob("*.py")]
    quoted = {name for text in texts for name in re.findall(r"[\"']" + NAME.pattern + r"[\"']", text)}
    assert {name.strip("\"'") for name in quoted} <= env.KNOWN


def test_every_variable_of_the_list_is_read_and_documented() -> None:
    sources = [path.read_text() for path in (ROOT / "argosy").rglob("*.py") if path.name != "env.py"]
    read = set(NAME.findall("\n".join(sources)))
    own = re.findall(NAME, (ROOT / "argosy/engine/env.py").read_text())
    assert read | set(own) >= env.KNOWN
    rows = [line for line in (ROOT / "docs/env.md").read_text().splitlines() if line.startswith("| `")]
    assert {name for line in rows for name in NAME.findall(line.split("|")[1])} == env.KNOWN


def test_an_unknown_variable_gets_a_warning_with_the_nearest_name() -> None:
    environ = {"ARGOSY_HEARTBEAT_TIMEOUT": "3", "ARGOSY_LOG": "info", "PATH": "/bin", "ARGOSY_XYZZY": "1"}
    first, second = env.unknown_variables(environ)
    assert first.startswith("the environment variable ARGOSY_HEARTBEAT_TIMEOUT has no effect")
    assert "(did you mean 'ARGOSY_HEARTBEAT_TIMEOUT_S'" in first
    assert second == (
        "the environment variable ARGOSY_XYZZY has no effect: Argosy does not read it; see docs/env.md"
    )


def test_a_rank_of_fleetrun_does_not_repeat_the_warning() -> None:
    assert env.unknown_variables({"ARGOSY_XYZZY": "1", "TORCHELASTIC_RUN_ID": "fleetrun"}) == []
    assert env.unknown_variables({"ARGOSY_XYZZY": "1", "ARGOSY_RESTART": "0"}) == []
