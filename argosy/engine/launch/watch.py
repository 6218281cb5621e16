"""Run a job with all that shows and exports it: the terminal, sinks, the dashboard; at the end the report."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from argosy.engine.errors import ConfigError
from argosy.engine.launch import companions, live
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.console import logger
from argosy.engine.launch.job_record import JobRecord
from argosy.engine.launch.monitor import Monitor, Sink
from argosy.engine.launch.processes import Events
from argosy.engine.net import Endpoint, is_loopback

if TYPE_CHECKING:
    from argosy.engine.metrics.prometheus import PrometheusSink


def watched(
    config: Configuration,
    record: JobRecord,
    events: Events,
    environ: Mapping[str, str],
    work: Callable[[], int],
) -> int:
    """Run `work`, which runs the job and returns its exit code; raises ConfigError before that."""
    with contextlib.ExitStack() as stack:
        lock = threading.Lock()
        sinks = _sinks(config, environ, lock)
        display = stack.enter_context(live.display(config, environ))
        stack.enter_context(companions.dashboard(config, record))
        monitor = Monitor(config.log_dir, record, display, sinks, lock)
        stack.callback(monitor.stop)
        code = record.run(work)
    companions.write_report(config, record, monitor.view, events)
    return code


def _sinks(config: Configuration, environ: Mapping[str, str], lock: threading.Lock) -> list[Sink]:
    """What the options ask for; imported only then. `lock` guards the view of the job."""
    sinks: list[Sink] = []
    if config.tensorboard is not None:
        from argosy.engine.metrics.tensorboard import TensorBoardSink

        sinks.append(TensorBoardSink(config.tensorboard))
    if config.metrics_port is not None:
        sinks.append(_prometheus(config, config.metrics_port, environ, lock))
    if config.dashboard is not None:
        token_for(config.dashboard_host, "--dashboard_host", environ)
    return sinks


def _prometheus(
    config: Configuration, port: int, environ: Mapping[str, str], lock: threading.Lock
) -> "PrometheusSink":
    from argosy.engine.metrics.prometheus import PrometheusSink

    host = config.metrics_host
    sink = PrometheusSink(host, port, token_for(host, "--metrics_host", environ), lock)
    logger.info("metrics for Prometheus: http://%s/metrics", Endpoint(host, port))
    return sink


def token_for(host: str, option: str, environ: Mapping[str, str]) -> str | None:
    """The token that clients at this address need; None for loopback. Raises if the user has set none."""
    if is_loopback(host):
        return None
    if not (token := environ.get("ARGOSY_JOB_TOKEN")):
        raise ConfigError(
            f"{option}={host} can be reached from other hosts, and ARGOSY_JOB_TOKEN is not set, which clients need; "
            "export a secret, for example what `openssl rand -hex 16` prints, or leave the option out"
        )
    return token
