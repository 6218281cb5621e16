"""The options of a job, validated: the same errors on the command line and from Python."""

# SPDX-License-Identifier: Apache-2.0
import os
from dataclasses import dataclass, fields
from typing import Literal

from argosy.engine.env import step_range
from argosy.engine.errors import ConfigError
from argosy.engine.net import Endpoint, has_port, host_of, is_numeric, without_brackets

RunMode = Literal["collective", "ps", "ps-heter"]
MODES = ("collective", "ps", "ps-heter")
LOG_LEVELS = ("debug", "info", "notice", "warning", "error")
_COLLECTIVE = ("ips", "nproc_per_node")
_ARGOSY_PS = ("server_state", "server_durability", "dead_worker", "encrypt")
"""Options that Paddle's launcher does not have."""
_PS = ("servers", "workers", "worker_num", "server_num", "http_port", *_ARGOSY_PS)
_NODES = ("nodes", "node_rank", "master", "interface", "node_role", "join_timeout_s")
"""Options of a job whose launchers find each other."""
_WATCHING = ("dashboard", "dashboard_host", "metrics_port", "metrics_host", "tensorboard")
_SCRIPT = ("module", "paddle", "autotune")
_RUNNING = ("host", "start_port", "xpus", "log_level", "tee", "max_restarts", "timeout_s")
_PROFILING = ("timeline", "timeline_steps")
_SHOWN_IF_GIVEN = (*_NODES, *_SCRIPT, *_RUNNING, "grace_s", "requeue_code", *_PROFILING, *_WATCHING)
"""Options that the banner, which is Paddle's, shows only if they are given."""
_THIS_HOST = ("127.0.0.1",)
NODE_ROLES = ("server", "worker")
DEAD_WORKER = ("end", "drop")
SERVER_DURABILITY = ("log", "disk", "snapshot")
DOCTOR = "argosy.doctor"
"""The module that --doctor runs on every rank."""
_HETER = ("heter_workers", "heter_worker_num")
_RENAMED = {"timeout_s": "timeout", "grace_s": "grace", "join_timeout_s": "join_timeout"}
_NOT_OPTIONS = ("script", "script_args", "module", "run_mode")


@dataclass(frozen=True)
class Configuration:
    """One call of fleetrun; the defaults are Paddle's."""

    script: str
    """The training script, or the module's name if `module`."""
    script_args: tuple[str, ...] = ()
    module: bool = False
    paddle: bool = False
    """Run the script under the import hook, so that its `import paddle` imports Argosy."""
    nproc_per_node: int | None = None
    """Ranks on this host; by default one per device, or one on a CPU."""
    gpus: tuple[str, ...] | None = None
    xpus: str | None = None
    ips: tuple[str, ...] | None = None
    """All hosts of the job, in the order of their ranks; by default this one alone (see `hosts`)."""
    host: str | None = None
    """Which of `ips` this host is, if it cannot be detected."""
    nodes: int | None = None
    """How many launchers form this job, one per node; they find each other through node 0 (see `nodes.py`)."""
    node_rank: int | None = None
    """Which of the nodes this is; by default the number that Slurm, MPI or Kubernetes gave this task."""
    master: str | None = None
    """host:port at which the launcher of node 0 listens for the others."""
    join_timeout_s: float | None = None
    """How long the launchers wait for each other at the start; None: see `nodes.JOIN_S`."""
    interface: str | None = None
    """The network interface that the other hosts reach; by default the one of the route to them."""
    end_with_stdin: bool = False
    """End the job when standard input reaches its end: the connection that started this launcher is lost."""
    node_role: str | None = None
    """In a parameter-server job: this node runs only servers, or only workers; by default both."""
    start_port: int | None = None
    """Local rank i of each host gets this port + i; by default free ports on one host, 6070 on several."""
    log_dir: str = "log"
    log_level: str | None = None
    tee: bool = False
    quiet: bool = False
    """Print only what the script prints, warnings and failures."""
    timeout_s: float | None = None
    """How long the ranks wait for each other in one collective."""
    max_restarts: int = 0
    grace_s: float | None = None
    """After SIGTERM: how long the job may take to save a checkpoint; None: SIGTERM terminates it at once."""
    requeue_code: int | None = None
    """The exit code of a job that was preempted and has saved a checkpoint."""
    autotune: bool = False
    """True: as strategy.auto in the script."""
    timeline: str | None = None
    """A directory: each rank writes a timeline of its steps there."""
    timeline_steps: str | None = None
    """The steps of the timeline, such as 3-12."""
    dashboard: int | None = None
    """The port of the dashboard; 0: its default one, or a free one if that is taken, None: no dashboard."""
    dashboard_host: str = "127.0.0.1"
    metrics_port: int | None = None
    """The port at which Prometheus reads metrics; None: it cannot."""
    metrics_host: str = "127.0.0.1"
    tensorboard: str | None = None
    """A directory in which values are written for TensorBoard."""
    run_mode: RunMode | None = None
    servers: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    heter_workers: tuple[str, ...] = ()
    worker_num: int | None = None
    server_num: int | None = None
    heter_worker_num: int | None = None
    http_port: int | None = None
    server_state: str | None = None
    """A directory in which servers store their state, and from which they resume."""
    server_durability: str | None = None
    """Which acknowledged updates a killed server may lose; see docs/explanation/guarantees.md. Default: log."""
    dead_worker: str | None = None
    """What happens if a worker has failed and has no restart left: the job ends (default), or the worker is dropped."""
    encrypt: bool = False
    """Encrypt the traffic between workers and servers."""
    doctor: bool = False
    """The job is that of --doctor: its ranks report failures themselves, and exit with 1."""
    json: bool = False
    """The doctor prints JSON."""

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_lists(self)
        _check_timeline(self)
        _check_watching(self)
        _check_nodes(self)
        if self.run_mode not in (None, *MODES):
            raise ConfigError(f"--run_mode={self.run_mode} is not a mode; use one of {', '.join(MODES)}")
        if self.log_level not in (None, *LOG_LEVELS):
            raise ConfigError(
                f"--log_level={self.log_level} is not a level; use one of {', '.join(LOG_LEVELS)}"
            )
        if self.xpus is not None:
            raise ConfigError(f"--xpus={self.xpus}: XPUs are not supported; use --gpus or --nproc_per_node")
        if mode(self) == "collective":
            _check_host(self, f"--ips={_text(self.hosts)}", self.hosts)
        else:
            _check_ps(self)

    @property
    def requeued_with(self) -> int:
        """--requeue_code, or 75, EX_TEMPFAIL of sysexits.h: a temporary failure, to be tried again."""
        return 75 if self.requeue_code is None else self.requeue_code

    @property
    def hosts(self) -> tuple[str, ...]:
        """--ips, or this host alone."""
        return _THIS_HOST if self.ips is None else self.ips


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def max_processes() -> int:
    """The limit of processes of one kind on a host: more than is useful, but it catches typing errors."""
    return max(256, 16 * num_cores())


def mode(config: Configuration) -> RunMode:
    """Collective or parameter-server mode, from the arguments alone; arguments of both are an error."""
    collective = _given(config, _COLLECTIVE)
    if config.run_mode == "collective":
        collective = f"--run_mode=collective {collective}".strip()
    ps = _given(config, (*_PS, *_HETER))
    if config.run_mode in ("ps", "ps-heter"):
        ps = f"--run_mode={config.run_mode} {ps}".strip()
    if collective and ps:
        raise ConfigError(
            f"{collective} selects a collective job, {ps} selects parameter servers; leave out one of them"
        )
    if not ps:
        return "collective"
    return "ps-heter" if config.run_mode == "ps-heter" or _given(config, _HETER) else "ps"


def mode_is_a_guess(config: Configuration) -> bool:
    """True if no argument selects collective mode."""
    return config.run_mode is None and not _given(config, _COLLECTIVE)


def _given(config: Configuration, names: tuple[str, ...]) -> str:
    """The arguments that differ from their defaults, as on the command line; no default can be given explicitly."""
    defaults = {f.name: f.default for f in fields(Configuration)}
    values = [(n, getattr(config, n)) for n in names if getattr(config, n) != defaults[n]]
    return " ".join(f"--{n}" if v is True else f"--{n}={_text(v)}" for n, v in values)


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _check_numbers(config: Configuration) -> None:
    for name in ("nproc_per_node", "worker_num", "server_num", "heter_worker_num"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name}={value}: at least one process is needed; use 1 or more")
        # A list may be of many hosts, and the numbers of servers and workers are those of all nodes.
        is_local = not getattr(config, name.removesuffix("_num") + "s", ()) and config.nodes is None
        if value is not None and is_local and value > max_processes():
            raise ConfigError(
                f"--{name}={value}: this host has {num_cores()} cores, and at most {max_processes()} processes of "
                "a job are started on it; use fewer, or more hosts"
            )
    for name in ("start_port", "http_port", "metrics_port"):
        value = getattr(config, name)
        if value is not None and not 1 <= value <= 65535:
            raise ConfigError(f"--{name}={value} is not a port; use 1 to 65535, best above 1023")
    if config.max_restarts < 0:
        raise ConfigError(f"--max_restarts={config.max_restarts}: use 0 (never) or more")
    for name, option in _RENAMED.items():
        seconds = getattr(config, name)
        if seconds is not None and not seconds > 0:
            raise ConfigError(f"--{option}={seconds:g}: use a number of seconds greater than 0")
    _check_requeue_code(config)


def _check_requeue_code(config: Configuration) -> None:
    code = config.requeue_code
    if code is not None and config.grace_s is None:
        raise ConfigError(f"--requeue_code={code} without a grace period; add --grace=S, or leave it out")
    if code is not None and not 3 <= code <= 125:
        raise ConfigError(f"--requeue_code={code}: use 3 to 125; the other exit codes have a meaning already")


def _check_lists(config: Configuration) -> None:
    for name in ("gpus", "ips", "servers", "workers", "heter_workers"):
        values = getattr(config, name)
        if values is None or (name in ("servers", "workers", "heter_workers") and not values):
            continue
        if isinstance(values, str):
            raise ConfigError(f"{name}={values!r} is a str; write a tuple, as in ('a', 'b')")
        text = f"--{name}={','.join(values)}"
        if not values or not all(values):
            raise ConfigError(f"{text}: an entry is empty; separate entries with one comma, as in a,b")
        # Workers of one host without a port are equal: their ports are chosen later.
        counted = [v for v in values if name != "workers" or has_port(v)]
        if twice := sorted({v for v in counted if counted.count(v) > 1}):
            raise ConfigError(f"{text}: {', '.join(twice)} is listed more than once; list each once")


def _check_timeline(config: Configuration) -> None:
    if config.timeline == "":
        raise ConfigError("--timeline= is empty; write --timeline=DIR, or leave it out")
    if config.timeline_steps is None:
        return
    step_range(config.timeline_steps, "--timeline_steps")
    if config.timeline is None:
        raise ConfigError(
            f"--timeline_steps={config.timeline_steps} without a timeline; add --timeline=DIR, or leave it out"
        )


def _check_watching(config: Configuration) -> None:
    if config.tensorboard == "":
        raise ConfigError("--tensorboard= is empty; write --tensorboard=DIR, or leave it out")
    if config.dashboard is not None and not 0 <= config.dashboard <= 65535:
        raise ConfigError(f"--dashboard={config.dashboard} is not a port; use 1 to 65535, or none")
    for name, port in (("dashboard", config.dashboard), ("metrics", config.metrics_port)):
        host = getattr(config, f"{name}_host")
        if not is_numeric(host):
            raise ConfigError(
                f"--{name}_host={host} is not an address of this host; use one, such as 127.0.0.1, or 0.0.0.0 for all"
            )
        if port is None and (given := _given(config, (f"{name}_host",))):
            option = "dashboard" if name == "dashboard" else "metrics_port=P"
            raise ConfigError(f"{given} without a port; add --{option}, or leave it out")
    if config.metrics_port is not None and config.metrics_port == config.dashboard:
        raise ConfigError(f"--metrics_port={config.metrics_port} is that of --dashboard, too; use two ports")


def _check_nodes(config: Configuration) -> None:
    for name in ("node_rank", "master", "node_role", "join_timeout_s"):
        if config.nodes is None and (value := getattr(config, name)) is not None:
            option = _RENAMED.get(name, name)
            raise ConfigError(f"--{option}={value} without a number of nodes; add --nodes=N, or leave it out")
    if config.nodes is None:
        return
    if config.nodes < 1:
        raise ConfigError(f"--nodes={config.nodes}: use 1 or more")
    if config.node_rank is not None and not 0 <= config.node_rank < config.nodes:
        raise ConfigError(
            f"--node_rank={config.node_rank}: the nodes are numbered from 0 to {config.nodes - 1} (--nodes)"
        )
    if config.master is not None:
        Endpoint.parse(config.master, "--master")
    if config.node_role not in (None, *NODE_ROLES):
        raise ConfigError(f"--node_role={config.node_role}; use one of {', '.join(NODE_ROLES)}")
    if config.node_role is not None and mode(config) == "collective":
        raise ConfigError(
            f"--node_role={config.node_role}: only a parameter-server job has roles; add --server_num=N and "
            "--worker_num=N, or leave it out"
        )
    if given := _given(config, ("ips", "host", "servers", "workers", "start_port")):
        raise ConfigError(
            f"--nodes={config.nodes} and {given}: the launchers of all nodes find hosts and ports themselves; "
            "leave out one of them"
        )


def _check_host(config: Configuration, where: str, known: tuple[str, ...]) -> None:
    if config.host is not None and config.host not in known:
        raise ConfigError(f"--host={config.host} is not among {where}; write it as it is written there")


def _check_ps(config: Configuration) -> None:
    if mode(config) == "ps-heter":
        given = _given(config, _HETER) or f"--run_mode={config.run_mode}"
        raise ConfigError(f"{given}: heter workers are not supported; use --workers or --worker_num")
    if config.gpus is not None:
        raise ConfigError(
            f"--gpus={_text(config.gpus)}: workers of a job with parameter servers train on the CPU; leave it out"
        )
    if config.dead_worker not in (None, *DEAD_WORKER):
        raise ConfigError(
            f"--dead_worker={config.dead_worker}; use end (the job ends) or drop (the others continue)"
        )
    if config.server_durability not in (None, *SERVER_DURABILITY):
        raise ConfigError(
            f"--server_durability={config.server_durability}; use log (what is acknowledged survives a kill), "
            "disk (and a power failure) or snapshot (up to a minute of asynchronous training is lost)"
        )
    if config.server_state == "":
        raise ConfigError("--server_state= is empty; write --server_state=DIR, or leave it out")
    for kind in ("server", "worker"):
        _check_endpoints(config, kind)
    listed = (*config.servers, *config.workers)
    names = tuple(dict.fromkeys(host_of(e) if has_port(e) else without_brackets(e) for e in listed))
    _check_host(config, "--servers and --workers", names or ("127.0.0.1",))
    if config.start_port is not None and config.servers and config.workers and all(map(has_port, listed)):
        raise ConfigError(
            f"--start_port={config.start_port}, but --servers and --workers have ports already; leave it out"
        )
    if (config.servers and not config.workers) or (config.workers and not config.servers):
        _check_counts_are_local(config, names)


def _check_endpoints(config: Configuration, kind: str) -> None:
    number, listed = getattr(config, f"{kind}_num"), getattr(config, f"{kind}s")
    if number is None and not listed:
        given = _given(config, _PS) or f"--run_mode={config.run_mode}"
        raise ConfigError(
            f"{given} selects parameter-server mode, but no {kind}s are given; "
            f"add --{kind}_num=N or --{kind}s=host:port,…"
        )
    if number is not None and listed and number != len(listed):
        raise ConfigError(
            f"--{kind}_num={number}, but --{kind}s lists {len(listed)}; make them agree, or give one only"
        )
    for entry in listed:
        if has_port(entry) or kind == "server":  # Paddle chooses the port of a worker that has none
            Endpoint.parse(entry, f"--{kind}s")


def _check_counts_are_local(config: Configuration, names: tuple[str, ...]) -> None:
    """Processes given by number run on this host; a list besides the number must not have other hosts."""
    counted, listed = ("worker", "servers") if config.servers else ("server", "workers")
    if len(names) > 1:
        raise ConfigError(
            f"--{counted}_num counts {counted}s of one host, but --{listed} has {', '.join(names)}; "
            f"list them too: --{counted}s=host:port,…"
        )


def shown(config: Configuration) -> str:
    """The banner at the start: every argument, sorted by name, in the format of Paddle's launcher."""
    hidden = [
        "quiet",
        "end_with_stdin",
        "doctor",
        "json",
        *(_ARGOSY_PS if mode(config) == "collective" else ()),
    ]
    hidden += [name for name in _SHOWN_IF_GIVEN if not _given(config, (name,))]
    values = {f.name: getattr(config, f.name) for f in fields(config) if f.name not in hidden}
    values["ips"] = config.hosts
    values["training_script"] = values.pop("script")
    values["training_script_args"] = list(values.pop("script_args"))
    values = {_RENAMED.get(name, name): value for name, value in values.items()}
    lines = [f"{name}: {_text(value)}" for name, value in sorted(values.items())]
    return "\n".join(["-----------  Configuration Arguments -----------", *lines, "-" * 48])


def words(config: Configuration) -> list[str]:
    """The command line that gives this configuration: options that differ from their defaults, the script."""
    options = []
    for option in fields(config):
        value = getattr(config, option.name)
        if option.name in _NOT_OPTIONS or value == option.default:
            continue
        name = _RENAMED.get(option.name, option.name)
        if value is True:
            options.append(f"--{name}")
        else:
            text = ",".join(value) if isinstance(value, tuple) else f"{value}"
            options.append(f"--{name}={text}")
    if config.run_mode is not None:
        options.append(f"--run_mode={config.run_mode}")
    if config.doctor:
        return [*options, *config.script_args]
    return [*options, *(["-m"] if config.module else []), config.script, *config.script_args]
