"""argosy.report: the numbers of directories with known ones, in every state of a job; pages that are read back."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from argosy.engine.metrics.job_directory import JobDirectory
from argosy.report import compare, report, write, write_comparison
from argosy.report.__main__ import main
from argosy.report.analyse import analyse
from argosy.report.collect import collect
from tests.report.jobs_by_hand import START, Job, write_error
from tests.report.pages import ParsedPage

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x00\ud800 '\"&<!--"


def page_of(path: Path) -> ParsedPage:
    return ParsedPage(path.read_text(encoding="utf-8"))


def failure(what: str, **fields: Any) -> dict[str, Any]:
    known = {
        "text": f"RankFailed: rank 1 of 2\n  raised: {what}",
        "process": "rank 1",
        "type": what.partition(":")[0],
    }
    return (
        known
        | {"what": what, "where": "train.py:12, in step", "hint": None, "log": "workerlog.1", "waiting": []}
        | fields
    )


# --- the numbers --------------------------------------------------------------------------------------


def test_the_embedded_data_are_the_records(tmp_path: Path) -> None:
    job = Job(ranks=2, seconds=20)
    page = page_of(write(job.write(tmp_path)))
    data = page.data["report"]
    assert data == json.loads(json.dumps(report(tmp_path)))
    (loss,) = (curve for curve in data["curves"] if curve["name"] == "loss")
    recorded = [r for r in job.records(0) if r["kind"] == "values"]
    assert loss["steps"] == [r["step"] for r in recorded]
    assert loss["values"] == pytest.approx([r["values"]["loss"] for r in recorded], rel=1e-4)
    assert data["figures"]["step"] == 200
    assert data["figures"]["examples_per_s"] == pytest.approx(320)
    assert data["figures"]["step_ms"] == pytest.approx(105, rel=0.005)
    assert data["figures"]["exposed_fraction"] == pytest.approx(20 / 105)
    assert data["job"]["versions"] == {"argosy": "0.9", "torch": "2.13.0", "python": "3.11.9"}
    page.assert_inert()
    for text in ("completed", "train.py", "fuse_grad_size_in_MB", "hello from rank 1"):
        assert text in page.text


def test_the_parts_of_a_period_add_up_and_phases_are_medians(tmp_path: Path) -> None:
    breakdown = report(Job(ranks=2).write(tmp_path))["breakdown"]
    row = breakdown["periods"][0]
    assert row["period_ms"] == row["computation"] + row["blocked"] + row["script"] + row["input"] == 105
    assert row["steps"] == 198  # without the warm-up
    assert breakdown["inside"][1]["backward"] == 40


def test_the_straggler_is_named_with_its_cause(tmp_path: Path) -> None:
    stragglers = report(Job(ranks=4, slow=2).write(tmp_path))["stragglers"]
    (slow,) = stragglers["slow"]
    assert (slow["rank"], slow["cause"], slow["more_ms"]) == (2, "computation", 30)
    assert slow["relative"] == pytest.approx(115 / 85, rel=1e-3)
    assert [e["rank"] for e in stragglers["events"]] == [2]
    assert report(Job(ranks=4).write(tmp_path / "even"))["stragglers"]["slow"] == []


def test_a_collective_is_related_to_the_best_of_its_group(tmp_path: Path) -> None:
    rows = report(Job(ranks=2).write(tmp_path))["communication"]["collectives"]
    small, big = rows
    assert (small["name"], small["shortest_ms"], small["ms"]) == ("all_reduce small", 40, 41)
    assert big["bytes_per_s"] == big["link_bytes_per_s"] == small["link_bytes_per_s"] == 4e8
    assert small["link_fraction"] == pytest.approx(0.24375)


def test_the_link_is_what_the_doctor_measured_if_that_is_more(tmp_path: Path) -> None:
    path = Job(ranks=2).write(tmp_path)
    checks = [{"name": "shared-memory all-reduce", "value": 1e9, "unit": "bytes/s"}]
    checks += [
        {"name": "gloo all-reduce", "value": 6.4e9, "unit": "bit/s"},
        {"name": "link", "value": 9e9, "unit": "bit/s"},
    ]
    (path / "doctor.json").write_text(json.dumps({"ranks": 2, "checks": checks}))
    numbers = report(path)["communication"]
    assert numbers["reference"] == "doctor"
    assert {row["link_bytes_per_s"] for row in numbers["collectives"]} == {1e9}


def test_memory_and_servers_are_summed_up(tmp_path: Path) -> None:
    numbers = report(Job(ranks=2, servers=2).write(tmp_path))
    assert numbers["figures"]["peak_rss"] == 600_000_001
    assert numbers["memory"]["largest_rank"] == 1
    assert numbers["memory"]["ranks"][1]["largest"][0]["name"] == "fc_0.tmp_0"
    (table,) = numbers["servers"]["tables"]
    assert (table["rows"], table["bytes"], table["spilled"]) == (2000, 128_000, 0.25)
    assert (table["pulled_per_s"], table["pushed_per_s"]) == (1000, 500)
    assert numbers["servers"]["prefetch_hit_rate"] == 0.9
    assert numbers["servers"]["servers"][1]["requests"]["pull"]["p99_ms"] == 3
    assert "Parameter servers" in page_of(write(tmp_path)).text


def test_a_value_that_becomes_nan_is_reported_first(tmp_path: Path) -> None:
    Job().write(tmp_path)
    with (tmp_path / "metrics" / "rank0.jsonl").open("a") as file:
        record = {"kind": "values", "time": START + 90, "step": 900, "values": {"loss": "nan"}, "reduce": {}}
        file.write(json.dumps(record) + "\n")
    numbers = report(tmp_path)
    assert numbers["problems"] == ["loss was not finite at step 900: nan"]
    assert page_of(write(tmp_path)).data["report"]["curves"][0]["values"][-1] is None


# --- states of a job ----------------------------------------------------------------------------------


def test_after_a_failure_the_cause_comes_first(tmp_path: Path) -> None:
    waiting = [{"process": "rank 0", "what": "PeerLostError: lost the connection to rank 1"}]
    Job(state="failed", failure=failure("MemoryError: no 3 GB", waiting=waiting)).write(tmp_path)
    write_error(tmp_path, 1, "MemoryError", "no 3 GB")
    (tmp_path / "workerlog.1").write_text("epoch 3\nMemoryError: no 3 GB\n")
    page = page_of(write(tmp_path))
    first = page.text[: page.text.index("Curves")] + page.text[page.text.index("Rank 1 failed") :]
    order = [
        "Rank 1 failed: out of memory",
        "MemoryError: no 3 GB",
        "train.py:12",
        "40 steps",
        "Halve the batch size",
    ]
    order += ["lost the connection to rank 1", "epoch 3", "step time, median"]
    assert [first.index(text) for text in order] == sorted(first.index(text) for text in order)


def test_error_files_tell_the_cause_if_the_launcher_did_not(tmp_path: Path) -> None:
    Job(state="failed").write(tmp_path)
    write_error(tmp_path, 0, "PeerLostError", "lost the connection to rank 1", ranks=(1,), at=START + 1)
    write_error(tmp_path, 1, "ModuleNotFoundError", "No module named 'x'", at=START + 2)
    failure = report(tmp_path)["failure"]
    assert (failure["process"], failure["advice"]["kind"]) == ("rank 1", "import failed")
    assert failure["waiting"] == (("rank 0", "PeerLostError: lost the connection to rank 1"),)


def test_a_running_job_has_a_report_and_a_dead_launcher_is_noticed(tmp_path: Path) -> None:
    path = Job(state="running").write(tmp_path)
    assert (report(path)["state"], report(path)["failure"]) == ("running", None)
    ended = subprocess.Popen(["true"])
    ended.wait()
    job = json.loads((path / "job.json").read_text()) | {
        "host": socket.gethostname(),
        "launcher_pid": ended.pid,
    }
    (path / "job.json").write_text(json.dumps(job))
    assert report(path)["failure"]["advice"]["kind"] == "the launcher is gone"
    (path / "job.json").write_text(json.dumps(job | {"launcher_pid": os.getpid()}))
    assert report(path)["failure"] is None


def test_a_job_that_never_made_a_step_has_a_report(tmp_path: Path) -> None:
    path = Job(seconds=0, state="failed", failure=failure("ImportError: no")).write(tmp_path)
    for profile in (path / "metrics").glob("*.profile.json"):
        profile.unlink()
    page = page_of(write(path))
    assert "Rank 1 failed: import failed" in page.text
    assert "no rank has completed a training step" in page.text


def test_after_a_restart_the_warm_up_is_skipped_again_and_the_starts_are_counted(tmp_path: Path) -> None:
    job = Job(ranks=1, seconds=10, restarts=1)
    path = job.write(tmp_path)
    with (path / "metrics" / "rank0.jsonl").open("a") as file:
        for record in job.records(0):
            file.write(json.dumps(record | {"time": record["time"] + 60}) + "\n")
    numbers = report(path)
    assert numbers["processes"][0]["starts"] == 2
    assert numbers["breakdown"]["periods"][0]["steps"] == 2 * (100 - 2)
    assert numbers["curves"][0]["steps"] == list(range(10, 101, 10))


def test_the_report_survives_malformed_and_missing_files(tmp_path: Path) -> None:
    path = Job(ranks=3, servers=1).write(tmp_path)
    metrics = path / "metrics"
    odd = [
        '{"kind": "steps", "time": 1790000005}',
        '{"kind": "steps", "time": 1790000005, "step": 1, "steps": "x", "period_ms": [1]}',
        '{"kind": "steps", "time": 1790000005, "step": 5, "steps": 5, "group": 1, "period_ms": [null, "a"]}',
        '{"kind": "values", "time": 1790000005, "step": 1, "values": [1]}',
        '{"kind": "sample", "time": 1790000005, "forward_ms": "x"}',
        '{"kind": "steps", "time": NaN, "step": 1, "steps": 1}',
        '{"kind": "ste',
        "[]",
        "\x00\xff",
    ]
    with (metrics / "rank1.jsonl").open("a") as file:
        file.write("\n".join(odd) + "\n")
    (metrics / "server0.jsonl").write_text(
        '{"kind": "tables", "time": 1790000005, "tables": {"a": 1}, "requests": 7}\n'
    )
    (metrics / "rank0.profile.json").write_text('{"nodes": 3, "collectives": [1, {"ms": "x"}], "memory": []}')
    (metrics / "rank1.profile.json").write_text(
        '{"nodes": [{"ms": null}], "memory": {"largest": 3, "breakdown": 4}}'
    )
    (metrics / "rank2.profile.json").write_text("{")
    (metrics / "events.jsonl").write_text('{"time": 1790000005, "kind": 5, "text": {"a": 1}}\n')
    (path / "workererror.0").write_text("{}")
    for job in (
        "{",
        '{"processes": 3, "state": 7, "options": [], "failure": {"waiting": "x"}, "started": "now"}',
    ):
        (path / "job.json").write_text(job)
        page_of(write(path)).assert_inert()
    assert any("malformed" in problem for problem in report(path)["problems"])
    (path / "job.json").unlink()
    assert report(path)["figures"]["ranks"] == 3


def test_texts_of_a_job_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    path = Job(
        state="failed", failure=failure(HOSTILE, process=HOSTILE, hint=HOSTILE, waiting=[HOSTILE])
    ).write(tmp_path)
    for log in ("workerlog.0", "workerlog.1", "fleetrun.log"):
        (path / log).write_bytes(HOSTILE.encode(errors="surrogatepass") + b"\xff\n")
    job = json.loads((path / "job.json").read_text())
    job |= {"script": HOSTILE, "command": HOSTILE, "options": {HOSTILE: HOSTILE}, "state": HOSTILE}
    (path / "job.json").write_text(json.dumps(job))
    with (path / "metrics" / "rank0.jsonl").open("a") as file:
        values = {"kind": "values", "time": START + 50, "step": 500, "values": {HOSTILE: 1.0}, "reduce": {}}
        settings = {"kind": "strategy", "time": START, "text": HOSTILE, "settings": {HOSTILE: HOSTILE}}
        file.write(json.dumps(values) + "\n" + json.dumps(settings) + "\n")
    (path / "metrics" / "events.jsonl").write_text(
        json.dumps({"time": 1.0, "kind": HOSTILE, "text": HOSTILE}) + "\n"
    )
    page = page_of(write(path))
    page.assert_inert()
    assert len(page.scripts) == 3
    assert "</script><script>alert(1)</script>" in page.text
    comparison = page_of(write_comparison(path, path))
    comparison.assert_inert()
    assert len(comparison.scripts) == 3


def test_many_ranks_and_long_texts_stay_small(tmp_path: Path) -> None:
    path = Job(ranks=64, seconds=40).write(tmp_path)
    for rank in range(64):
        (path / f"workerlog.{rank}").write_text("x" * 100_000 + "\n" + "line\n" * 10_000)
    size = write(path).stat().st_size
    assert size < 2_000_000


def test_of_large_records_a_part_is_read(tmp_path: Path) -> None:
    path = Job(ranks=2, seconds=41).write(tmp_path)
    whole = report(path)
    part = analyse(collect(path, max_bytes=JobDirectory.find(path).size() // 4 + 1))
    assert part["problems"] == [
        "the records are large: one in 4 was read, so that sums and rates are estimates"
    ]
    for key in ("step_ms", "exposed_fraction", "examples_per_s"):
        assert part["figures"][key] == pytest.approx(whole["figures"][key])
    assert part["figures"]["examples"] == pytest.approx(whole["figures"]["examples"], rel=0.1)
    assert len(part["curves"][0]["steps"]) == 11


# --- comparisons and the command line -----------------------------------------------------------------


def test_a_comparison_says_what_changed_most(tmp_path: Path) -> None:
    a = Job(ranks=2).write(tmp_path / "a")
    b = Job(ranks=2, exposed_ms=5.0, settings={"fuse_grad_size_in_MB": 64}).write(tmp_path / "b")
    numbers = compare(a, b)
    assert numbers["sentence"] == (
        "A step of B takes 14% less time than one of A (median 105 ms → 90 ms); most of it is time blocked on "
        "collectives (−15 ms per step). Settings that differ: strategy.fuse_grad_size_in_MB: 32 → 64."
    )
    assert numbers["settings"] == [["strategy.fuse_grad_size_in_MB", "32", "64"]]
    (blocked,) = (row for row in numbers["phases"]["periods"] if row["name"] == "blocked")
    assert (blocked["a"], blocked["b"], blocked["difference"]) == (20, 5, -15)
    page = page_of(write_comparison(a, b))
    assert page.data["comparison"] == json.loads(json.dumps(numbers))
    assert numbers["sentence"] in page.text
    page.assert_inert()


def test_equal_runs_and_runs_without_steps_can_be_compared(tmp_path: Path) -> None:
    a = Job().write(tmp_path / "a")
    assert "same within 2%" in compare(a, a)["sentence"]
    assert "The settings are the same" in compare(a, a)["sentence"]
    never = Job(seconds=0, state="failed", failure=failure("ImportError: no")).write(tmp_path / "never")
    sentence = compare(a, never)["sentence"]
    assert sentence.startswith("B failed (import failed). The step times cannot be compared: B made no step")
    page_of(write_comparison(a, never))


def test_the_command_line_writes_compares_and_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = str(Job().write(tmp_path / "a")), str(Job().write(tmp_path / "b"))
    assert main([a]) == 0
    assert capsys.readouterr().out == f"report: {a}/report.html\n"
    assert main([a, "--quiet", "--output", str(tmp_path / "x.html")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "x.html").exists()
    for words in ([b, "--compare", a], ["--compare", a, b]):
        assert main(words) == 0
        assert capsys.readouterr().out == f"comparison: {b}/compare.html\n"
    assert main(["--json", "--compare", a, b]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "argosy.report.comparison"
    assert main(["--json", a]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["step"] == 200
    assert sorted(p.name for p in Path(a).glob("*.html")) == ["report.html"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "does not exist; give the log directory"),
        ([], "no job was given"),
        (["--compare", "."], "takes two jobs, got 1"),
    ],
)
def test_an_error_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_report_that_cannot_be_written_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Job().write(tmp_path)
    assert main([str(path), "--output", str(tmp_path / "no" / "x.html")]) == 2
    assert "give another --output FILE" in capsys.readouterr().err


def test_a_report_needs_no_torch(tmp_path: Path) -> None:
    path = Job().write(tmp_path)
    code = "import sys; from argosy.report.__main__ import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    words = [sys.executable, "-W", "error", "-c", code, str(path), "--quiet"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "0 False\n"
