"""TorchX: `fleetrun --on torchx [--scheduler slurm]`, through TorchX's runner.

The scheduler `local_cwd` starts all nodes on this host and forgets them when fleetrun ends; the others live on.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from argosy.engine import process_effects
from argosy.engine.cluster.engine import Engine, Outcome
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.torchx_app import application, random_port, specs
from argosy.engine.errors import ConfigError, nearest
from argosy.engine.launch import ports

_LOCAL = "local_cwd"
_POLL_S = {_LOCAL: 0.1}
_REMOTE_POLL_S = 5.0
_OPTIONS = ("partition", "time", "namespace")
"""Settings that are run options of TorchX's schedulers under the same name."""


class TorchX(Engine):
    """The schedulers of TorchX; the id of a job is TorchX's handle, such as slurm://torchx/12."""

    name = "torchx"
    settings: ClassVar[tuple[str, ...]] = ("scheduler", "image", "cpus", "memory", *_OPTIONS)

    def __init__(self) -> None:
        self._runner: Any = None

    def plan(self, job: ClusterJob) -> str:
        try:
            return str(self._dry_run(job))
        finally:
            self._close()

    def submit(self, job: ClusterJob) -> str:
        request = self._dry_run(job)
        try:
            handle = str(self._runner.schedule(request))
        except (OSError, subprocess.CalledProcessError) as e:
            self._close()
            raise ConfigError(f"TorchX cannot submit to {_scheduler(job)}: {e}; is it reachable?") from e
        self._follows(handle)
        return handle

    def _dry_run(self, job: ClusterJob) -> Any:
        scheduler = _scheduler(job)
        if scheduler == "slurm":
            _check_export(job)
            # TorchX cannot follow both streams of a Slurm job.
            job = replace(job, setup=("exec 2>&1", *job.setup))
        port = ports.free_ports("127.0.0.1", 1)[0] if scheduler == _LOCAL else random_port()
        app = application(job, port)
        with _no_new_signal_handlers():
            return self._opened().dryrun(app, scheduler, self._options(scheduler, job))

    def _options(self, scheduler: str, job: ClusterJob) -> dict[str, Any]:
        """The run options of the scheduler: --partition and others, and NAME=VALUE in --engine_args."""
        try:
            known = self._opened().scheduler_run_opts(scheduler)
        except KeyError as e:
            names = self._opened().scheduler_backends()
            raise ConfigError(
                f"--scheduler={scheduler} is none of TorchX's{nearest(scheduler, names)}"
            ) from e
        except ModuleNotFoundError as e:
            raise ConfigError(f"--scheduler={scheduler}: TorchX needs another package for it ({e})") from e
        given = [f"{name}={job.settings[name]}" for name in _OPTIONS if name in job.settings]
        options: dict[str, Any] = {}
        for word in (*given, *job.arguments):
            name, equals, _ = word.partition("=")
            if not equals or known.get(name) is None:
                listed = nearest(name, [key for key, _ in known])
                raise ConfigError(f"{word} is no run option of TorchX's scheduler {scheduler}{listed}")
            options |= known.cfg_from_str(word)
        return options

    def nodes(self, job_id: str) -> tuple[str, ...]:
        status = self._status(job_id)
        replicas = [replica for role in status.roles for replica in role.replicas]
        if not replicas:
            count = sum(role.num_replicas for role in self._app(job_id).roles)
            return ("localhost",) * count if job_id.startswith(_LOCAL) else ()
        return tuple(replica.hostname for replica in replicas)

    def logs(self, job_id: str) -> Iterator[str]:
        self._status(job_id)
        streams = import_module("torchx.schedulers.api").Stream
        stream = streams.STDOUT if job_id.startswith("slurm") else None
        role = self._app(job_id).roles[0].name
        for line in self._runner.log_lines(job_id, role, k=0, should_tail=True, streams=stream):
            yield line.rstrip("\n")

    def wait(self, job_id: str) -> Outcome:
        scheduler = job_id.partition(":")[0]
        try:
            status = self._status(job_id)
            if not status.is_terminal():
                status = self._runner.wait(job_id, wait_interval=_POLL_S.get(scheduler, _REMOTE_POLL_S))
            return _outcome(status)
        finally:
            self._close()

    def cancel(self, job_id: str) -> None:
        status = self._status(job_id)
        self._runner.cancel(job_id)
        if not status.is_terminal():
            self.wait(job_id)
        self._close()

    def _app(self, job_id: str) -> Any:
        app = self._runner.describe(job_id)
        if app is None or not app.roles:
            raise ConfigError(f"TorchX does not know the roles of {job_id} any more")
        return app

    def _status(self, job_id: str) -> Any:
        self._follows(job_id)
        try:
            with _no_new_signal_handlers():
                status = self._opened().status(job_id)
        except (specs().MalformedAppHandleException, KeyError) as e:
            raise ConfigError(
                f"{job_id} is no handle of TorchX; write one that `torchx run` or fleetrun has printed, such as "
                "slurm://torchx/12"
            ) from e
        except (OSError, subprocess.CalledProcessError) as e:
            raise ConfigError(
                f"TorchX cannot read the state of {job_id}: {e}; on Slurm it needs accounting (sacct); "
                "fleetrun --on=slurm does not"
            ) from e
        if status is None:
            raise ConfigError(f"TorchX has no job {job_id}; {_LOCAL} forgets its jobs when fleetrun ends")
        return status

    def _follows(self, job_id: str) -> None:
        self.is_detached = not job_id.startswith(f"{_LOCAL}:")

    def _opened(self) -> Any:
        if self._runner is None:
            specs()  # raises if TorchX is not installed
            self._runner = import_module("torchx.runner").get_runner()
        return self._runner

    def _close(self) -> None:
        """End what `local_cwd` has started, and remove its temporary logs."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None


def _scheduler(job: ClusterJob) -> str:
    return job.settings.get("scheduler", _LOCAL)


def _check_export(job: ClusterJob) -> None:
    """TorchX lists the variables in one option of srun, separated by commas."""
    for name, value in job.environ.items():
        if "," in value:
            raise ConfigError(
                f"the variable {name}={value} has a comma, which TorchX cannot pass to Slurm; use --on=slurm"
            )


def _outcome(status: Any) -> Outcome:
    """local_cwd writes the exit code of each replica into a file of its log directory; others have only a state."""
    state = status.state.name
    codes: dict[str, int] = {}
    if status.ui_url and (url := urlsplit(status.ui_url)).scheme == "file":
        roles = json.loads((Path(url.path) / "SUCCESS").read_text())["roles"]
        codes = {f"{role} {r['replica_id']}": r["exitcode"] for role, rs in roles.items() for r in rs}
    failed = {name: code for name, code in codes.items() if code != 0}
    listed = ", ".join(f"{name}: exit code {code}" for name, code in failed.items())
    message = listed or ("" if status.msg == specs().NONE else status.msg)
    reason = f"{state} ({message})" if message else state
    if state == "SUCCEEDED":
        return Outcome(0, reason)
    # All launchers exit with the same code; a killed one has a negative one.
    positive = [code for code in failed.values() if code > 0]
    return Outcome(positive[0] if positive else 143 if state == "CANCELLED" else 1, reason)


@contextmanager
def _no_new_signal_handlers() -> Iterator[None]:
    """Undo that TorchX's local scheduler, when it is created, handles SIGINT and SIGTERM."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    with process_effects.during("launcher-signals"):
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
