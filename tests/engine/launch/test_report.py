"""Who failed first, and of what: read from the log that the rank itself has written."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from argosy.engine.launch.layout import Rank
from argosy.engine.launch.report import Death, Raised, cause, last_traceback, text


def ranks(*numbers: int, role: str = "rank") -> list[Rank]:
    return [Rank(n, n, {}, (), role) for n in numbers]


def death(rank: int, code: int, what: str = "", log: str = "/nowhere", role: str = "rank") -> Death:
    raised = Raised(what, "t.py:1, in f") if what else None
    return Death(ranks(rank, role=role)[0], 100 + rank, code, log, raised)


LOST = "argosy.engine.errors.PeerLostError: rank 1 is gone"


def test_the_innermost_line_of_the_users_code_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "Traceback (most recent call last):\nKeyError: 'old'\n\nDuring handling, another\n\n"
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 9, in <module>\n    train()\n    ^^^^^^^\n'
        '  File "/home/me/loop.py", line 3, in train\n    step()\n'
        '  File "/venv/lib/python3.11/site-packages/torch/x.py", line 5, in step\n    raise y\n'
        "torch.Wrong: it broke\nand more\n"
    )
    assert last_traceback(str(log)) == Raised("torch.Wrong: it broke", "/home/me/loop.py:3, in train")


def test_a_log_without_a_traceback_gives_none(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Traceback (most recent call last):\n  File")
    assert last_traceback(str(log)) is None
    assert last_traceback(str(tmp_path / "absent")) is None


def test_the_cause_is_the_first_that_did_not_just_lose_a_peer() -> None:
    assert cause([death(0, 1, LOST), death(1, 1, "ValueError: x"), death(2, 1)]).rank.rank == 1
    assert cause([death(0, -9), death(1, 1, "ValueError: x")]).rank.rank == 0
    assert cause([death(2, 1, LOST), death(1, 1, LOST)]).rank.rank == 2


def test_consequences_and_ended_ranks_have_a_line_each() -> None:
    said = text([death(0, 1, LOST), death(1, -9)], size=4, ended_by_us=ranks(2, 3)).splitlines()
    assert said[0].startswith("RankFailed: rank 1 of 4 on ")
    assert said[0].endswith(" ended with SIGKILL (pid 101), first of 2 failures; log: /nowhere")
    assert said[1] == "  killed from outside, often the kernel for lack of memory; see dmesg"
    assert said[-2:] == [
        f"  also: rank 0 ended with exit code 1 (pid 100): {LOST}; log: /nowhere",
        "  ended by fleetrun for that reason: ranks 2, 3",
    ]


def test_a_cause_on_another_host_is_said() -> None:
    assert "the cause is in the logs of another host" in text([death(0, 1, LOST)], 2, [])


def test_exit_codes_and_signals_have_names() -> None:
    assert str(death(0, 3)) == "exit code 3"
    assert str(death(0, 137)) == "exit code 137"
    assert str(death(0, -11)) == "SIGSEGV"
    assert death(0, 137).hint == death(0, -9).hint != ""
    assert death(0, 1).hint == death(0, 0).hint == ""
    assert str(death(0, -40)) == "signal 40"


def test_an_error_about_another_rank_comes_behind_one_of_its_own() -> None:
    other = "argosy.engine.errors.CollectiveError: rank 0 ran out of data"
    assert cause([death(1, 1, other), death(0, 3)]).rank.rank == 0
    assert cause([death(1, 1, LOST), death(2, 1, other)]).rank.rank == 2
    said = text([death(0, 1, "ValueError: x"), death(1, 1, "ValueError: x")], 2, [])
    assert "also: rank 1 ended with exit code 1 (pid 101): the same; log: /nowhere" in said


def test_a_syntax_error_is_found_without_a_traceback(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        '  File "/home/me/train.py", line 2\n    y = = 2\n        ^\nSyntaxError: invalid syntax\n'
    )
    assert last_traceback(str(log)) == Raised("SyntaxError: invalid syntax", "/home/me/train.py:2")


def test_servers_and_workers_are_named_as_such() -> None:
    others = [*ranks(1, 0, role="worker"), *ranks(1, role="server")]
    said = text([death(0, -9, role="server"), death(2, 1, role="worker")], 2, others)
    assert said.startswith("ServerFailed: server 0 of 2 on ")
    assert "  also: worker 2 ended with exit code 1 (pid 102); log: /nowhere\n" in said
    assert said.endswith("  ended by fleetrun for that reason: server 1, workers 1, 0")


def test_a_server_that_ends_by_itself_is_told_where_it_should_have_stayed() -> None:
    assert "fleet.run_server()" in death(0, 0, role="server").hint
    assert death(0, 0, role="worker").hint == ""
