"""Which process failed first, and why: from exit codes and error files."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.failure_report import ErrorRecord, ProcessExit, cause, is_reported, text
from argosy.engine.launch.rank_env import ProcessSpec


def ranks(*numbers: int, role: str = "rank") -> list[ProcessSpec]:
    return [ProcessSpec(n, n, {}, (), role) for n in numbers]


def exited(
    rank: int,
    code: int | None,
    what: str = "",
    log: str = "/nowhere",
    role: str = "rank",
    blames: tuple[int, ...] = (),
    state: str = "lost",
) -> ProcessExit:
    kind, _, message = what.partition(": ")
    trace = f"Traceback (most recent call last):\n{what}\n"
    error = ErrorRecord(kind, message, "t.py:1, in f", trace, 1, 7, 0.0, 3, blames, state) if what else None
    return ProcessExit(ranks(rank, role=role)[0], 100 + rank, code, log, error)


LOST = "argosy.engine.errors.PeerLostError: rank 1 is gone"


def test_the_cause_is_the_first_that_did_not_just_lose_a_peer() -> None:
    lost = exited(0, 1, LOST, blames=(1,))
    assert cause([lost, exited(1, 1, "ValueError: x"), exited(2, 1)]).exit.spec.rank == 1
    assert cause([exited(0, -9), exited(1, 1, "ValueError: x")]).exit.spec.rank == 0


def test_the_cause_is_the_first_by_time_whichever_was_noticed_first() -> None:
    late, early = exited(0, -9), exited(1, 1, "ValueError: x")
    late = ProcessExit(late.spec, late.pid, late.code, late.log, at=2.0)
    early = ProcessExit(early.spec, early.pid, early.code, early.log, early.error, at=1.0)
    assert cause([late, early]).exit.spec.rank == 1


def test_blame_is_followed_to_a_rank_that_ended_with_0() -> None:
    failures = [exited(0, 1, LOST, blames=(1,)), exited(1, 1, LOST, blames=(2,))]
    root = cause(failures, [exited(2, 0), exited(3, None)])
    assert (root.exit.spec.rank, root.victim) == (2, failures[1])
    said = text(failures, 4, ranks(3), [exited(2, 0), exited(3, None)]).splitlines()
    assert said[0].startswith("RankFailed: rank 2 of 4 on ")
    assert said[0].endswith(" ended with exit code 0 (pid 102); log: /nowhere")
    assert said[1] == f"  rank 1 was waiting for it: {LOST}"
    assert "another host" not in "\n".join(said)
    assert said[-3:] == [
        f"  also: rank 0 ended with exit code 1 (pid 100): {LOST}; log: /nowhere",
        f"  also: rank 1 ended with exit code 1 (pid 101): {LOST}; log: /nowhere",
        "  terminated by fleetrun for that reason: rank 3",
    ]


def test_a_rank_that_still_runs_is_described_as_the_others_report_it() -> None:
    for state, said in (
        ("unresponsive", "runs, but sends no heartbeat"),
        ("late", "is alive, but did not join the others"),
        ("left", "has left the job without error"),
    ):
        root = cause([exited(0, 1, LOST, blames=(1,), state=state)], [exited(1, None)])
        assert (root.exit.described, root.is_certain) == (said, True)
    stopped = ProcessExit(ranks(1)[0], 101, None, "/nowhere", state="is stopped")
    assert (
        cause([exited(0, 1, LOST, blames=(1,), state="unresponsive")], [stopped]).exit.described
        == "is stopped"
    )


def test_a_rank_that_may_still_write_an_error_file_is_waited_for() -> None:
    for state in ("failed", "lost"):
        failures = [exited(0, 1, LOST, blames=(1,), state=state)]
        assert not cause(failures, [exited(1, None)]).is_certain
        assert cause(failures, [exited(1, 0)]).is_certain
        assert cause(failures).is_certain  # of another host, whose error files are not here


def test_ranks_that_blame_each_other_do_not_blame_another_host() -> None:
    failures = [exited(0, 1, LOST, blames=(1,)), exited(1, 1, LOST, blames=(0,))]
    assert cause(failures).exit.spec.rank == 1
    assert "another host" not in text(failures, 2, [])


def test_consequences_and_terminated_ranks_have_a_line_each() -> None:
    said = text([exited(0, 1, LOST, blames=(1,)), exited(1, -9)], size=4, terminated=ranks(2, 3)).splitlines()
    assert said[0].startswith("RankFailed: rank 1 of 4 on ")
    assert said[0].endswith(" ended with SIGKILL (pid 101), first of 2 failures; log: /nowhere")
    assert said[1] == "  killed from outside, often the kernel for lack of memory; see dmesg"
    assert said[-2:] == [
        f"  also: rank 0 ended with exit code 1 (pid 100): {LOST}; log: /nowhere",
        "  terminated by fleetrun for that reason: ranks 2, 3",
    ]


def test_a_cause_on_another_host_is_reported() -> None:
    said = text([exited(0, 1, LOST, blames=(1,))], 2, [])
    assert "  it needed rank 1, on another host: the cause is in the logs there\n" in said


def test_exit_codes_and_signals_have_names() -> None:
    assert str(exited(0, 3)) == "exit code 3"
    assert str(exited(0, 137)) == "exit code 137"
    assert str(exited(0, -11)) == "SIGSEGV"
    assert exited(0, 137).hint == exited(0, -9).hint != ""
    assert exited(0, 1).hint == exited(0, 0).hint == ""
    assert str(exited(0, -40)) == "signal 40"


def test_the_exception_is_reported_once_with_its_source_line_and_step() -> None:
    said = text([exited(0, 1, "ValueError: x"), exited(1, 1, "ValueError: x")], 2, [])
    assert "  raised: ValueError: x\n  at:     t.py:1, in f\n  after:  3 steps\n" in said
    assert "also: rank 1 ended with exit code 1 (pid 101): the same; log: /nowhere" in said


def test_a_traceback_that_is_not_in_the_log_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a line\n")
    said = text([exited(0, 1, "ValueError: x", log=str(log))], 1, [])
    assert "  its traceback:\n    | Traceback (most recent call last):\n    | ValueError: x" in said
    log.write_text("Traceback (most recent call last):\nValueError: x\n")
    assert "its traceback" not in text([exited(0, 1, "ValueError: x", log=str(log))], 1, [])


def test_servers_and_workers_are_reported_by_role() -> None:
    others = [*ranks(1, 0, role="worker"), *ranks(1, role="server")]
    said = text([exited(0, -9, role="server"), exited(2, 1, role="worker")], 2, others)
    assert said.startswith("ServerFailed: server 0 of 2 on ")
    assert "  also: worker 2 ended with exit code 1 (pid 102); log: /nowhere\n" in said
    assert said.endswith("  terminated by fleetrun for that reason: server 1, workers 1, 0")


def test_a_server_that_exits_by_itself_gets_a_hint() -> None:
    assert "fleet.run_server()" in exited(0, 0, role="server").hint
    assert exited(0, 0, role="worker").hint == ""


def suggests_doctor(*failures: ProcessExit, others: tuple[ProcessExit, ...] = ()) -> bool:
    lines = text(failures, 4, [], others).splitlines()
    is_last = lines[-1].startswith("  to check hosts, links and shared memory: fleetrun --doctor")
    assert is_last == any("--doctor" in line for line in lines)
    return is_last


def test_a_failure_that_may_be_the_hosts_suggests_the_doctor() -> None:
    collective = "argosy.engine.errors.CollectiveError"
    assert suggests_doctor(exited(0, -7))  # SIGBUS
    assert suggests_doctor(exited(0, 1, f"{collective}: unreachable", blames=(1,), state="late"))
    assert suggests_doctor(exited(0, 1, LOST, blames=(3,)))  # on another host
    assert suggests_doctor(exited(0, 1, "ConnectionRefusedError: [Errno 111]"))
    assert suggests_doctor(exited(0, 1, "RuntimeError: unable to allocate shared memory(shm)"))
    assert suggests_doctor(exited(0, 1, LOST, blames=(1,), state="unresponsive"), others=(exited(1, None),))


def test_a_failure_of_the_script_does_not_suggest_the_doctor() -> None:
    assert not suggests_doctor(exited(0, 1, "ValueError: x"))
    assert not suggests_doctor(exited(0, -9))
    assert not suggests_doctor(exited(0, 1, LOST, blames=(1,)), exited(1, 1, "ValueError: x"))
    assert not suggests_doctor(exited(0, 1, LOST, blames=(1,)), others=(exited(1, 0),))  # it left early
    assert not suggests_doctor(exited(0, 1, LOST, blames=(1,), state="failed"))
    assert not suggests_doctor(exited(0, 3, "SystemExit: 3"))


def test_only_what_the_doctor_has_printed_is_not_reported_again() -> None:
    doctor, job = Configuration("argosy.doctor", doctor=True), Configuration("t.py")
    said, crashed = exited(0, 1, "SystemExit: 1"), exited(1, 1, "ValueError: x")
    assert is_reported(doctor, [said])
    assert not is_reported(doctor, [said, crashed])
    assert not is_reported(doctor, [exited(0, -7)])
    assert not is_reported(job, [said])
