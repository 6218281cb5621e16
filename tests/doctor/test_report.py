"""The report: lines of several hosts, versions that differ, the table, the JSON document; GFLOPS of ranks."""

# SPDX-License-Identifier: Apache-2.0
import json

import pytest
import torch

from argosy.doctor import compute
from argosy.doctor.check import Check
from argosy.doctor.report import compare_hosts, document, merged, plain, show, summary


def test_equal_lines_of_several_hosts_are_one_and_others_stay_apart() -> None:
    same = [Check("cores", "ok", "2 of 2", where=host) for host in "ab"]
    other = [Check("load", "ok", "0", where="a"), Check("load", "warning", "9", "see top", where="b")]
    lines = merged([*same, *other])
    assert [(line.name, line.where) for line in lines] == [("cores", "all 2"), ("load", "a"), ("load", "b")]


def test_many_figures_become_a_range_and_the_bad_one_is_named() -> None:
    rates = [Check("product", "ok", f"{n} GFLOPS", "", n, "GFLOPS", f"rank {n}") for n in (7, 5, 9, 6)]
    slow = Check("product", "warning", "1 GFLOPS", "all wait for it", 1, "GFLOPS", "rank 3")
    first, second = merged([*rates, slow])
    assert (first.where, first.figure) == ("4 of 5", "5 GFLOPS … 9 GFLOPS")
    assert second == slow


def test_warnings_with_the_same_advice_are_one_line_with_all_names() -> None:
    busy = [Check("load", "warning", f"{n}", "see top", n, "", f"rank {n}") for n in (8, 9)]
    assert [(line.where, line.figure) for line in merged(busy)] == [("all 2", "8 … 9")]
    rows = [Check("load", status, "9", "" if status == "ok" else "see top", 9, "", host) for status, host in
            (("warning", "a"), ("ok", "b"), ("warning", "c"))]  # fmt: skip
    assert [(line.status, line.where) for line in merged(rows)] == [("warning", "a, c"), ("ok", "b")]


def test_hosts_with_different_versions_are_named() -> None:
    checks = [
        Check("torch", "ok", "2.13.0+cpu, CPU", where="a"),
        Check("torch", "ok", "2.13.1+cpu, CPU", where="b"),
        Check("torch", "ok", "2.13.0+cpu, 2 GPUs", where="c"),
        *(Check("python", "ok", f"3.11.7 (/{host}/python)", where=host) for host in "abc"),
    ]
    (check,) = compare_hosts(checks)
    assert (check.name, check.status) == ("torch of all hosts", "failure")
    assert check.figure == "2.13.0+cpu: a, c; 2.13.1+cpu: b"
    assert compare_hosts([c for c in checks if c.name == "python"]) == []


def test_plain_text_is_aligned_and_advice_has_its_line() -> None:
    lines = [Check("cores", "ok", "2 of 2", where="a"), Check("x", "warning", "1", "do this", where="bb")]
    assert plain(lines) == [
        "ok       cores  a   2 of 2",
        "warning  x      bb  1",
        "         -> do this",
    ]
    assert summary(lines, 2, 4, 9.04) == "1 ok, 1 warning, 0 failures; 2 hosts, 4 ranks, 9.0 s"


def test_a_terminal_gets_a_table_in_colours(capsys: pytest.CaptureFixture[str]) -> None:
    show([Check("cores", "failure", "[0]", "buy more", where="a")], 1, 2, 1.0, columns=100)
    printed = capsys.readouterr().out
    assert "\x1b[" in printed
    assert "[0]" in printed
    assert "buy more" in printed


def test_the_document_has_every_check() -> None:
    read = json.loads(
        document([Check("link", "warning", "1", "x", 1e9, "bit/s", "a -> b")], ["a", "b"], 4, 2.0)
    )
    assert (read["status"], read["hosts"], read["ranks"]) == ("warning", ["a", "b"], 4)
    assert read["checks"] == [
        {
            "name": "link",
            "status": "warning",
            "figure": "1",
            "advice": "x",
            "value": 1e9,
            "unit": "bit/s",
            "where": "a -> b",
        }
    ]


def test_a_rank_that_computes_much_slower_than_the_others_is_named() -> None:
    names = ["rank 0", "rank 1", "rank 2"]
    checks = compute.judge([50.0, 55.0, 20.0], [60.0, 60.0, 60.0], names)
    assert [check.where for check in checks if check.status != "ok"] == ["rank 2"]
    checks = compute.judge([50.0], [10.0], ["rank 0"])
    assert [(check.name, check.status) for check in checks] == [
        ("product in float32", "ok"),
        ("product in bf16", "warning"),
    ]


def test_products_and_copies_are_measured() -> None:
    assert compute.gflops(torch.float32, budget_s=0.01) > 0
    assert compute.gflops(torch.bfloat16, budget_s=0.01) > 0
    assert compute.copy_rate(1 << 16, budget_s=0.01) > 0
