"""Messages between ranks and the supervising actor of their node."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

import pytest

from argosy.engine.cluster import ray_channel
from argosy.engine.cluster.ray_channel import RankChannel
from argosy.engine.errors import ConfigError

TOKEN = "a token"


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """The messages that the actor has got; this process is rank 3 of 4."""
    messages: list[object] = []

    def receive(header: dict[str, object], payload: bytes) -> bytes:
        messages.append((header, payload))
        return payload.upper()

    channel = RankChannel(TOKEN, receive)
    monkeypatch.setenv(ray_channel.VARIABLE, channel.name)
    monkeypatch.setenv("ARGOSY_JOB_TOKEN", TOKEN)
    monkeypatch.setenv("PADDLE_TRAINER_ID", "3")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "4")
    yield messages
    channel.close()


def test_a_message_has_its_rank_and_gets_a_reply(received: list[object]) -> None:
    assert ray_channel.is_open()
    assert ray_channel.send("metrics", b"loss") == b"LOSS"
    assert received == [({"kind": "metrics", "rank": 3}, b"loss")]


def test_a_process_without_the_token_is_rejected(
    received: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGOSY_JOB_TOKEN", "a guess")
    with pytest.raises(ConfigError, match="cannot send result to the supervising actor"):
        ray_channel.send("result", b"forged")
    monkeypatch.setenv("ARGOSY_JOB_TOKEN", TOKEN)
    ray_channel.send("result", b"true")
    assert received == [({"kind": "result", "rank": 3}, b"true")]


def test_without_a_job_on_ray_there_is_no_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ray_channel.VARIABLE, raising=False)
    assert not ray_channel.is_open()
    with pytest.raises(ConfigError, match="start the job with fleetrun --on=ray or argosy.ray.run"):
        ray_channel.send("metrics")
