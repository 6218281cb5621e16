"""The server of the dashboard, as a process: who may read, who may write, what it answers, what it survives."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.dashboard.generated_job import GeneratedJob, this_host
from tests.dashboard.served import COMMAND, ROOT, running, served

pytestmark = pytest.mark.slow
TOKEN = "0123456789abcdef0123456789abcdef"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeneratedJob]:
    with GeneratedJob(tmp_path_factory.mktemp("job") / "log") as generated:
        generated.advance(10)
        generated.log(1, "\x1b[31mValueError: a bad batch\x1b[0m")
        generated.log(1, "the batch was skipped")
        (generated.log_dir / "secret.txt").write_text("secret")
        yield generated


@pytest.fixture(scope="module")
def address(job: GeneratedJob) -> Iterator[str]:
    with served(job.log_dir) as url:
        yield url


@contextmanager
def events(address: str, **headers: str) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    """(id, change) of an event stream."""

    def read(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        number = ""
        for line in lines:
            if line.startswith("id: "):
                number = line[4:]
            elif line.startswith("data: "):
                yield number, json.loads(line[6:])

    with httpx.stream("GET", f"{address}/events", headers=headers, timeout=WAIT_S) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        yield read(response.iter_lines())


def state(address: str) -> dict[str, Any]:
    """The first event: everything; waits until the server has read the job."""
    with events(address) as stream:
        for _, change in stream:
            if change.get("reset") and "ranks" in change:
                return change
    raise AssertionError("the stream ended")


# --- what it answers ------------------------------------------------------------------------------------


def test_the_first_event_has_the_whole_state(address: str) -> None:
    content = state(address)
    assert content["job"]["state"] == "running"
    assert content["overview"]["step"] == 240
    assert set(content["ranks"]) == {"0", "1"}
    assert set(content["series"]) >= {"loss", "lr", "examples/s"}
    assert content["heat"]["ranks"] == [0, 1]
    assert content["samples"]["0"]["backward"] > 0
    assert content["logs"]["order"] == ["workerlog.0", "workerlog.1"]


def test_later_events_have_only_what_changed(tmp_path: Path) -> None:
    with GeneratedJob(tmp_path) as job, served(tmp_path) as address, events(address) as stream:
        job.advance(100)
        loss: list[int] = []
        while 2400 not in loss:
            _, change = next(stream)
            loss = change.get("series", {}).get("loss", {}).get("x", [])
        job.advance(1)
        while 2424 not in loss:
            _, change = next(stream)
            loss = change.get("series", {}).get("loss", {}).get("x", [])
        assert "reset" not in change
        assert loss == [2412, 2424]
        assert len(json.dumps(change)) < 5_000


def test_a_page_that_reconnects_gets_what_it_missed(job: GeneratedJob, address: str) -> None:
    with events(address) as stream:
        number, _ = next(stream)
    job.advance(1)
    with events(address, **{"Last-Event-ID": number}) as stream:
        _, change = next(stream)
        assert "reset" not in change
    with events(address, **{"Last-Event-ID": "other.3"}) as stream:
        _, change = next(stream)
        assert change["reset"]


def test_a_rank_that_is_killed_is_gone_without_word_of_the_launcher(tmp_path: Path) -> None:
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    try:
        with GeneratedJob(tmp_path) as job, served(tmp_path) as address, events(address) as stream:
            this_host(job, [s.pid for s in sleepers])
            next(stream)
            sleepers[1].kill()
            sleepers[1].wait()
            killed = time.monotonic()
            states = ["running"]
            while states[-1] != "gone":
                _, change = next(stream)
                states = [p["state"] for p in change.get("job", {}).get("processes", [])] or ["running"]
            assert states == ["running", "gone"]
            assert time.monotonic() - killed < 5
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


def test_a_profile_is_fetched_by_rank(address: str) -> None:
    assert httpx.get(f"{address}/profile?rank=1").json()["collectives"][0]["group"] == "dp"
    assert httpx.get(f"{address}/profile?rank=7").status_code == 404
    assert httpx.get(f"{address}/profile?rank=../../x").status_code == 400


def test_a_log_is_read_from_its_end_and_then_from_a_position(job: GeneratedJob, address: str) -> None:
    first = httpx.get(f"{address}/log?name=workerlog.1").json()
    assert first["lines"][1] == ["ValueError: a bad batch", 2]
    job.log(1, "one more")
    rest = httpx.get(f"{address}/log?name=workerlog.1&after={first['end']}").json()
    assert rest["lines"] == [["one more", 0]]


def test_a_search_finds_errors_first_in_all_logs(job: GeneratedJob, address: str) -> None:
    job.log(0, "a batch")
    result = httpx.get(f"{address}/search?text=BATCH").json()
    assert [match[0] for match in result["matches"]] == ["workerlog.1", "workerlog.0", "workerlog.1"]
    assert result["matches"][0][2] == "ValueError: a bad batch"
    assert httpx.get(f"{address}/search?text=batch&errors=1").json()["count"] == 1
    assert httpx.get(f"{address}/search?text=(.*").json()["count"] == 0
    assert httpx.get(f"{address}/search?text=").status_code == 400


def test_a_timeline_is_asked_for_at_a_step_that_all_ranks_can_reach(job: GeneratedJob, address: str) -> None:
    csrf = state(address)["csrf"]
    headers = {"Origin": address, "X-CSRF-Token": csrf}
    asked = httpx.post(f"{address}/timeline", headers=headers).json()
    request = json.loads((job.log_dir / "metrics" / "requests.json").read_text())["timeline"]
    assert request["first_step"] >= job.step + 4_000 / job.step_ms
    assert request["steps"] == 10
    assert Path(request["directory"]).parent == job.log_dir
    assert asked["state"] == "waiting"
    assert httpx.get(f"{address}/timeline/{asked['id']}/merged.json").status_code == 404


# --- who may ----------------------------------------------------------------------------------------------


def test_pages_load_nothing_from_elsewhere(address: str) -> None:
    headers = httpx.get(address).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1"])
def test_another_name_of_a_loopback_address_is_rejected(address: str, host: str) -> None:
    answer = httpx.get(f"{address}/events", headers={"Host": host})
    assert answer.status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost:9999", "127.0.0.1", "[::1]:80"])
def test_names_of_this_host_are_accepted_at_any_port_as_ssh_forwards_them(address: str, host: str) -> None:
    assert httpx.get(address, headers={"Host": host}).status_code == 200


def test_a_post_needs_the_origin_and_the_token_of_the_page(address: str) -> None:
    csrf = state(address)["csrf"]
    wrong = [
        {},
        {"Origin": address},
        {"X-CSRF-Token": csrf},
        {"Origin": "http://evil.example", "X-CSRF-Token": csrf},
        {"Origin": "null", "X-CSRF-Token": csrf},
        {"Origin": address, "X-CSRF-Token": csrf[:-1]},
        {"Origin": address, "X-CSRF-Token": csrf, "Sec-Fetch-Site": "cross-site"},
    ]
    assert [httpx.post(f"{address}/timeline", headers=headers).status_code for headers in wrong] == [403] * 7
    assert httpx.put(f"{address}/timeline").status_code == 405
    assert httpx.get(f"{address}/timeline").status_code == 405


@pytest.mark.parametrize(
    "name",
    [
        "secret.txt",
        "../job.json",
        "workerlog.0/../secret.txt",
        "/etc/passwd",
        "workerlog.",
        "%2e%2e/x",
    ],
)
def test_only_logs_are_read(address: str, name: str) -> None:
    assert httpx.get(f"{address}/log", params={"name": name}).status_code == 404
    assert httpx.get(f"{address}/search", params={"text": "s", "name": name}).status_code == 404
    assert httpx.get(f"{address}/timeline/{name}/merged.json").status_code == 404


def test_a_link_in_place_of_a_log_is_not_followed(job: GeneratedJob, address: str) -> None:
    link = job.log_dir / "workerlog.99"
    link.symlink_to(job.log_dir / "secret.txt")
    try:
        assert httpx.get(f"{address}/log?name=workerlog.99").status_code == 404
        assert httpx.get(f"{address}/search?name=workerlog.99&text=secret").json()["count"] == 0
    finally:
        link.unlink()


def test_another_address_needs_the_token_which_becomes_a_cookie(job: GeneratedJob) -> None:
    with served(job.log_dir, "--host=0.0.0.0", "--port=0", token=TOKEN) as url:
        address = f"http://127.0.0.1:{url.rsplit(':', 1)[1]}"
        for path in ("/", "/events", "/log?name=workerlog.0", "/charts.js", "/login", "/login?token=x"):
            assert httpx.get(address + path).status_code == 401
        with httpx.Client() as client:
            answer = client.get(f"{address}/login?token={TOKEN}")
            assert answer.status_code == 303
            cookie = answer.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "samesite=strict" in cookie.lower()
            assert TOKEN not in cookie
            assert client.get(address).status_code == 200
        name = cookie.split("=")[0]
        assert httpx.get(address, headers={"Cookie": f"{name}={TOKEN}"}).status_code == 401


def failure(*options: str) -> str:
    """What the command prints when it cannot start."""
    environ = os.environ | {"PYTHONPATH": str(ROOT), "ARGOSY_JOB_TOKEN": ""}
    done = subprocess.run(
        [*COMMAND, *options], env=environ, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 2
    return done.stderr


def test_another_address_without_a_token_is_an_error(tmp_path: Path) -> None:
    assert "ARGOSY_JOB_TOKEN is not set" in failure(str(tmp_path), "--host=0.0.0.0")


def test_a_missing_directory_and_a_port_in_use_are_errors(tmp_path: Path) -> None:
    assert "not a directory" in failure(str(tmp_path / "none"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "give another --port" in failure(str(tmp_path), f"--port={taken.getsockname()[1]}")


# --- what it survives ---------------------------------------------------------------------------------------


def test_it_waits_for_a_job_that_has_not_begun_and_shows_a_new_one(tmp_path: Path) -> None:
    with served(tmp_path) as address, events(address) as stream:
        while next(stream)[1].get("job", {}).get("state") != "waiting":
            pass
        with GeneratedJob(tmp_path) as job:
            job.advance(1)
            change: dict[str, Any] = {}
            while not (change.get("reset") and change["overview"]["step"] == 24):
                job.write_job()
                _, change = next(stream)
        (tmp_path / "metrics").rename(tmp_path / "metrics.1")
        with GeneratedJob(tmp_path, ranks=3, started=time.time() + 60):
            while not (change.get("reset") and change["job"]["processes"][2:]):
                _, change = next(stream)
            assert change["overview"]["step"] == 0


def test_malformed_files_are_counted_and_do_not_hide_the_rest(tmp_path: Path) -> None:
    with GeneratedJob(tmp_path) as job:
        job.advance(2)
        with (tmp_path / "metrics" / "rank0.jsonl").open("a") as file:
            file.write(
                'no json\n{"kind":"steps","time":1}\n{"kind":"steps","time":2,"step":"x","steps":[]}\n'
            )
            file.write(
                '{"kind":"steps","time":3,"step":99,"steps":2,"period_ms":[1,2,3],"busy_ms":[1]}\n[]\n'
            )
            file.write(
                '{"kind":"values","time":4,"step":60,"values":{"loss":NaN,"bad":[1]}}\n{"kind":"sample","time":5}\n'
            )
            file.write('{"kind":"progress","time":6,"batch":"x","batches":{}}\n')
        (tmp_path / "metrics" / "rank1.profile.json").write_text('{"step": NaN}')
        (tmp_path / "metrics" / "rank9999999.jsonl").write_text('{"kind":"start","time":1}\n')
        job.job["processes"].append("nonsense")
        job.job["processes"][0]["pid"] = 10**30
        job.write_job()
        with served(tmp_path) as address:
            content = state(address)
            assert content["job"]["num_malformed"] >= 4
            assert content["series"]["loss"]["y"]
            assert content["ranks"]["1"]["step"] == 48
            assert httpx.get(f"{address}/profile?rank=1").status_code in (200, 500)
            (tmp_path / "job.json").write_text("{")
            assert httpx.get(address).status_code == 200


def test_an_open_stream_does_not_keep_it_alive(job: GeneratedJob) -> None:
    with running(job.log_dir) as (process, address), events(address) as stream:
        next(stream)
        process.terminate()
        assert process.wait(20) in (0, -15)
