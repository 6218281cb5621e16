"""The environment: an unknown variable gets a warning."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine import env


def test_an_unknown_variable_gets_a_warning_with_the_nearest_name() -> None:
    environ = {"ARGOSY_HEARTBEAT_TIMEOUT": "3", "ARGOSY_LOG": "info", "PATH": "/bin", "ARGOSY_XYZZY": "1"}
    first, second = env.unknown_variables(environ)
    assert first.startswith("the environment variable ARGOSY_HEARTBEAT_TIMEOUT has no effect")
    assert "(did you mean 'ARGOSY_HEARTBEAT_TIMEOUT_S'" in first
    assert second == (
        "the environment variable ARGOSY_XYZZY has no effect: Argosy does not read it; "
        "see docs/reference/environment.md"
    )


def test_a_rank_of_fleetrun_does_not_repeat_the_warning() -> None:
    assert env.unknown_variables({"ARGOSY_XYZZY": "1", "TORCHELASTIC_RUN_ID": "fleetrun"}) == []
    assert env.unknown_variables({"ARGOSY_XYZZY": "1", "ARGOSY_RESTART": "0"}) == []
