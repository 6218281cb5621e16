"""RpcSettings of the transport: defaults, environment, refusals."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.ps.rpc.sockets import RpcSettings


def test_the_defaults_are_paddles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARGOSY_JOB_TOKEN", raising=False)
    settings = RpcSettings.from_env()
    assert settings == RpcSettings()
    assert (settings.send_threads, settings.get_threads, settings.prefetch_threads) == (12, 12, 12)
    assert (settings.deadline_s, settings.retry_times) == (180.0, 3)


def test_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "FLAGS_rpc_send_thread_num": "1",
        "FLAGS_rpc_get_thread_num": "2",
        "FLAGS_rpc_prefetch_thread_num": "3",
        "FLAGS_rpc_deadline": "2500",
        "FLAGS_rpc_retry_times": "0",
        "ARGOSY_HEARTBEAT_S": "0.5",
        "ARGOSY_PS_HEARTBEAT_TIMEOUT_S": "7",
        "ARGOSY_JOB_TOKEN": "secret",
        "ARGOSY_PS_ENCRYPT": "1",
        "ARGOSY_PS_MAX_MESSAGE_MB": "64",
    }
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert RpcSettings.from_env() == RpcSettings(
        1,
        2,
        3,
        2.5,
        0,
        heartbeat_s=0.5,
        heartbeat_timeout_s=7.0,
        token="secret",
        encrypt=True,
        max_message_mb=64,
    )


@pytest.mark.parametrize(
    "flag", ["FLAGS_rpc_send_thread_num", "FLAGS_rpc_get_thread_num", "FLAGS_rpc_prefetch_thread_num"]
)
def test_no_threads_are_rejected(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(flag, "0")
    with pytest.raises(ConfigError, match=rf"_threads = 0 \({flag}\) is too small; use 1 or more"):
        RpcSettings.from_env()


def test_no_time_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"deadline_s = 0.0 \(FLAGS_rpc_deadline, in ms\) is too small"):
        RpcSettings(deadline_s=0.0)
    with pytest.raises(ConfigError, match=r"retry_s = 0.0 is too small"):
        RpcSettings(retry_s=0.0)


def test_encryption_needs_a_token() -> None:
    with pytest.raises(ConfigError, match="set ARGOSY_JOB_TOKEN"):
        RpcSettings(encrypt=True)
