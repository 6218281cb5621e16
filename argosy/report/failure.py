"""The cause of a failure: which process, what it raised, its last lines, what the others waited for, what to try."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import asdict, dataclass
from typing import Any

from argosy.report.advice import Advice, advise
from argosy.report.collect import JobRun, ProcessOutput, cut

_MAX_WAITING = 16


@dataclass(frozen=True)
class Failure:
    """What the first section of the report shows."""

    process: str
    """rank 1, worker 0, server 2, or "" if it is unknown."""
    what: str
    type: str
    where: str
    after: str
    """After how many steps."""
    log: str
    lines: tuple[str, ...]
    traceback: str
    waiting: tuple[tuple[str, str], ...]
    """Other processes, and what they waited for."""
    text: str
    """The launcher's report."""
    advice: Advice

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def find_failure(run: JobRun) -> Failure | None:
    """The cause, as the launcher found it, else as the files that the processes left suggest; None without one."""
    recorded = run.job.get("failure")
    if isinstance(recorded, dict):
        return _recorded(run, recorded)
    if run.is_stale:
        return _abandoned(run)
    state = run.job.get("state")
    if state in ("running", "completed", "preempted"):
        return None
    if (raised := _first_error(run)) is not None:
        return _of_output(run, raised)
    return _ended(run) if state in ("failed", "terminated") else None


def _recorded(run: JobRun, recorded: dict[str, Any]) -> Failure:
    process, text = _text(recorded.get("process")), cut(_text(recorded.get("text")))
    log = _text(recorded.get("log"))
    output = next((o for o in run.outputs if o.log == log), None) or next(
        (o for o in run.outputs if o.name == process), None
    )
    lines = tuple(output.lines) if output else ()
    error = output.error if output else None
    what = cut(_text(recorded.get("what")) or text.partition("\n")[0], 2000)
    hint = _text(recorded.get("hint"))
    type_ = _text(recorded.get("type"))
    clues = "\n".join((type_, what, hint, error.message[:4000] if error else "", text.partition("\n")[0]))
    return Failure(
        process=process,
        what=f"{what} ({hint})" if hint else what,
        type=type_,
        where=cut(_text(recorded.get("where")), 1000),
        after=_after(run, output),
        log=log,
        lines=lines,
        traceback=cut(error.traceback) if error else "",
        waiting=_waiting(run, recorded.get("waiting"), process),
        text=text,
        advice=advise(clues, lines, has_exception=bool(type_)),
    )


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else str(value)


def _waiting(run: JobRun, recorded: Any, failed: str) -> tuple[tuple[str, str], ...]:
    """As recorded; completed by the error files of processes that blame others."""
    waiting: dict[str, str] = {}
    for entry in recorded if isinstance(recorded, list) else [recorded] if recorded else []:
        if isinstance(entry, dict):
            waiting[cut(_text(entry.get("process")), 100)] = cut(_text(entry.get("what")), 1000)
        else:
            waiting[f"{len(waiting) + 1}"] = cut(_text(entry), 1000)
    for output in run.outputs:
        if output.error is not None and output.error.ranks and output.name != failed:
            waiting.setdefault(output.name, cut(output.error.what, 1000))
    if not waiting:  # they were terminated before they raised
        for process in run.job.get("processes") or []:
            if isinstance(process, dict) and process.get("state") == "terminated":
                number = process.get("rank")
                step = run.view.ranks[number].step if number in run.view.ranks else 0
                after = f", last recorded step {step:,}" if step else ""
                waiting[f"{process.get('role')} {number}"] = f"terminated by fleetrun{after}"
    return tuple(waiting.items())[:_MAX_WAITING]


def _after(run: JobRun, output: ProcessOutput | None) -> str:
    if output is not None and output.error is not None and output.error.step:
        return f"{output.error.step:,} steps"
    number = output.name.rpartition(" ")[2] if output is not None and "server" not in output.name else ""
    view = run.view.ranks.get(int(number)) if number.isdigit() else None
    return f"{view.step:,} steps" if view is not None and view.step else ""


def _first_error(run: JobRun) -> ProcessOutput | None:
    """The first process that raised; one that blames another only if there is no other."""
    raised = [output for output in run.outputs if output.error is not None]
    return min(raised, key=lambda o: (bool(o.error.ranks), o.error.time) if o.error else (), default=None)


def _of_output(run: JobRun, output: ProcessOutput) -> Failure:
    error = output.error
    assert error is not None, "it has raised"
    return Failure(
        process=output.name,
        what=cut(error.what, 2000),
        type=error.type,
        where=cut(error.where, 1000),
        after=_after(run, output),
        log=output.log,
        lines=tuple(output.lines),
        traceback=cut(error.traceback),
        waiting=_waiting(run, None, output.name),
        text="",
        advice=advise(f"{error.type}\n{error.message[:4000]}", output.lines, has_exception=True),
    )


def _abandoned(run: JobRun) -> Failure:
    if (raised := _first_error(run)) is not None:
        return _of_output(run, raised)
    advice = Advice(
        "the launcher is gone",
        "job.json says that the job runs, but the process of fleetrun does not exist: it was killed, or the host "
        "restarted.",
        (
            "dmesg -T | grep -i 'killed process' says whether the kernel killed it for lack of memory.",
            "Its last lines are below. Start fleetrun with nohup, in tmux, or by a scheduler if its terminal closed.",
            "Resume from the last checkpoint.",
        ),
    )
    what = f"fleetrun (pid {run.job.get('launcher_pid')}) ended without recording the end of the job"
    return _bare(run, what, advice)


def _ended(run: JobRun) -> Failure:
    code = run.job.get("exit_code")
    what = f"state {run.job.get('state')!r}, exit code {code} of fleetrun; no exception was recorded"
    clues = {130: "SIGINT", 143: "SIGTERM", 129: "SIGHUP", 137: "SIGKILL"}.get(code, "")  # type: ignore[arg-type]
    return _bare(run, what, advise(clues, run.launcher_log, has_exception=False))


def _bare(run: JobRun, what: str, advice: Advice) -> Failure:
    return Failure(
        process="",
        what=what,
        type="",
        where="",
        after=_after(run, None),
        log="fleetrun.log",
        lines=tuple(run.launcher_log),
        traceback="",
        waiting=_waiting(run, None, ""),
        text="",
        advice=advice,
    )
