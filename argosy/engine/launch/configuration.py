"""What a job is asked to be, checked: the same errors for the shell and for a Python caller."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass, fields
from typing import Literal

from argosy.engine.env import step_range
from argosy.engine.errors import ConfigError

RunMode = Literal["collective", "ps", "ps-heter"]
MODES = ("collective", "ps", "ps-heter")
LOG_LEVELS = ("debug", "info", "notice", "warning", "error")
_COLLECTIVE = ("ips", "nproc_per_node")
_OWN_PS = ("server_state", "dead_worker", "encrypt")
"""Those that Paddle's launcher does not have."""
_PS = ("servers", "workers", "worker_num", "server_num", "http_port", *_OWN_PS)
DEAD_WORKER = ("end", "drop")
_HETER = ("heter_workers", "heter_worker_num")


@dataclass(frozen=True)
class Configuration:
    """One call of fleetrun; the defaults are Paddle's."""

    script: str
    """The training script, or the module's name if `module`."""
    script_args: tuple[str, ...] = ()
    module: bool = False
    paddle: bool = False
    """Run the script under the import hook, so that its `import paddle` finds Argosy."""
    nproc_per_node: int | None = None
    """Ranks on this host; by default one per device, or one on a CPU."""
    gpus: tuple[str, ...] | None = None
    xpus: str | None = None
    ips: tuple[str, ...] = ("127.0.0.1",)
    """All hosts of the job, in the order of their ranks."""
    host: str | None = None
    """Which of `ips` this host is, when that cannot be guessed."""
    start_port: int | None = None
    """Rank i of each host gets this port + i; by default free ports on one host, 6070 on several."""
    log_dir: str = "log"
    log_level: str | None = None
    tee: bool = False
    timeout_s: float | None = None
    """How long the ranks wait for each other in one collective."""
    max_restarts: int = 0
    timeline: str | None = None
    """A directory: each rank writes a timeline of its steps there."""
    timeline_steps: str | None = None
    """Of which steps, such as 3-12."""
    run_mode: RunMode | None = None
    servers: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    heter_workers: tuple[str, ...] = ()
    worker_num: int | None = None
    server_num: int | None = None
    heter_worker_num: int | None = None
    http_port: int | None = None
    server_state: str | None = None
    """A directory from which servers go on, and in which they keep what they need for that."""
    dead_worker: str = "end"
    """What a worker that cannot be started anew does to the job: end it, or be dropped from it."""
    encrypt: bool = False
    """Encrypt what goes between workers and servers."""

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_lists(self)
        _check_timeline(self)
        if self.run_mode not in (None, *MODES):
            raise ConfigError(f"--run_mode={self.run_mode} is no mode; use one of {', '.join(MODES)}")
        if self.log_level not in (None, *LOG_LEVELS):
            raise ConfigError(f"--log_level={self.log_level} is no level; use one of {', '.join(LOG_LEVELS)}")
        if self.xpus is not None:
            raise ConfigError(f"--xpus={self.xpus}: XPUs are not supported; use --gpus or --nproc_per_node")
        if mode(self) == "collective":
            _check_host(self, f"--ips={_text(self.ips)}", self.ips)
        else:
            _check_ps(self)


def mode(config: Configuration) -> RunMode:
    """Collective or parameter server, from the arguments alone; arguments of both are an error."""
    collective = _words(config, _COLLECTIVE)
    if config.run_mode == "collective":
        collective = f"--run_mode=collective {collective}".strip()
    ps = _words(config, (*_PS, *_HETER))
    if config.run_mode in ("ps", "ps-heter"):
        ps = f"--run_mode={config.run_mode} {ps}".strip()
    if collective and ps:
        raise ConfigError(
            f"{collective} asks for a collective job, {ps} for parameter servers; leave out one of them"
        )
    if not ps:
        return "collective"
    return "ps-heter" if config.run_mode == "ps-heter" or _words(config, _HETER) else "ps"


def mode_is_a_guess(config: Configuration) -> bool:
    """True if no argument says that the job is a collective one."""
    return config.run_mode is None and not _words(config, _COLLECTIVE)


def _words(config: Configuration, names: tuple[str, ...]) -> str:
    """Those of the arguments that differ from their default, as the user would write them."""
    defaults = {f.name: f.default for f in fields(Configuration)}
    given = [(n, getattr(config, n)) for n in names if getattr(config, n) != defaults[n]]
    return " ".join(f"--{n}" if v is True else f"--{n}={_text(v)}" for n, v in given)


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _check_numbers(config: Configuration) -> None:
    for name in ("nproc_per_node", "worker_num", "server_num", "heter_worker_num"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name}={value}: at least one process is needed; use 1 or more")
    for name in ("start_port", "http_port"):
        value = getattr(config, name)
        if value is not None and not 1 <= value <= 65535:
            raise ConfigError(f"--{name}={value} is no port; use 1 to 65535, best above 1023")
    if config.max_restarts < 0:
        raise ConfigError(f"--max_restarts={config.max_restarts}: use 0 (never) or more")
    if config.timeout_s is not None and not config.timeout_s > 0:
        raise ConfigError(f"--timeout={config.timeout_s:g}: use a number of seconds greater than 0")


def _check_lists(config: Configuration) -> None:
    for name in ("gpus", "ips", "servers", "workers", "heter_workers"):
        values = getattr(config, name)
        if values is None or (name in ("servers", "workers", "heter_workers") and not values):
            continue
        if isinstance(values, str):
            raise ConfigError(f"{name}={values!r} is a str; write a tuple of them, as in ('a', 'b')")
        text = f"--{name}={','.join(values)}"
        if not values or not all(values):
            raise ConfigError(f"{text}: an entry is empty; write them with one comma in between, as in a,b")
        # Workers of one host whose ports are to be chosen look alike.
        counted = [v for v in values if name != "workers" or ":" in v]
        if twice := sorted({v for v in counted if counted.count(v) > 1}):
            raise ConfigError(f"{text}: {', '.join(twice)} stands there more than once; name each once")


def _check_timeline(config: Configuration) -> None:
    if config.timeline == "":
        raise ConfigError("--timeline= names no directory; write --timeline=DIR, or leave it out")
    if config.timeline_steps is None:
        return
    step_range(config.timeline_steps, "--timeline_steps")
    if config.timeline is None:
        raise ConfigError(
            f"--timeline_steps={config.timeline_steps} without a timeline; add --timeline=DIR, or leave it out"
        )


def _check_host(config: Configuration, where: str, known: tuple[str, ...]) -> None:
    if config.host is not None and config.host not in known:
        raise ConfigError(f"--host={config.host} is not among {where}; name it as it stands there")


def _check_ps(config: Configuration) -> None:
    if mode(config) == "ps-heter":
        given = _words(config, _HETER) or f"--run_mode={config.run_mode}"
        raise ConfigError(f"{given}: heter workers are not supported; use --workers or --worker_num")
    if config.gpus is not None:
        raise ConfigError(
            f"--gpus={_text(config.gpus)}: workers of a job with parameter servers train on the CPU; leave it out"
        )
    if config.dead_worker not in DEAD_WORKER:
        raise ConfigError(
            f"--dead_worker={config.dead_worker}; use end (the job ends) or drop (the others go on)"
        )
    if config.server_state == "":
        raise ConfigError("--server_state= names no directory; write --server_state=DIR, or leave it out")
    for kind in ("server", "worker"):
        _check_endpoints(config, kind)
    listed = (*config.servers, *config.workers)
    names = tuple(dict.fromkeys(e.rpartition(":")[0] or e for e in listed))
    _check_host(config, "--servers and --workers", names or ("127.0.0.1",))
    if config.start_port is not None and config.servers and config.workers and all(":" in e for e in listed):
        raise ConfigError(
            f"--start_port={config.start_port}, but --servers and --workers have ports already; leave it out"
        )
    if (config.servers and not config.workers) or (config.workers and not config.servers):
        _check_counts_are_local(config, names)


def _check_endpoints(config: Configuration, kind: str) -> None:
    number, listed = getattr(config, f"{kind}_num"), getattr(config, f"{kind}s")
    if number is None and not listed:
        given = _words(config, _PS) or f"--run_mode={config.run_mode}"
        raise ConfigError(
            f"{given} asks for a job with parameter servers, but no {kind}s are given; "
            f"add --{kind}_num=N or --{kind}s=host:port,…"
        )
    if number is not None and listed and number != len(listed):
        raise ConfigError(
            f"--{kind}_num={number}, but --{kind}s lists {len(listed)}; make them agree, or give one only"
        )
    for entry in listed:
        host, colon, port = entry.rpartition(":")
        if not colon and kind == "worker":
            continue  # Paddle chooses the port of a worker that has none
        if not (host and port.isdecimal() and 1 <= int(port) <= 65535):
            raise ConfigError(f"--{kind}s: {entry!r} is no endpoint; write host:port")


def _check_counts_are_local(config: Configuration, names: tuple[str, ...]) -> None:
    """Processes that are only counted run on this host; a list beside the count must not name others."""
    counted, listed = ("worker", "servers") if config.servers else ("server", "workers")
    if len(names) > 1:
        raise ConfigError(
            f"--{counted}_num counts {counted}s of one host, but --{listed} names {', '.join(names)}; "
            f"list them too: --{counted}s=host:port,…"
        )


def shown(config: Configuration) -> str:
    """The banner at the start: every argument, sorted by name, in the shape of Paddle's launcher."""
    left_out = _OWN_PS if mode(config) == "collective" else ()
    values = {f.name: getattr(config, f.name) for f in fields(config) if f.name not in left_out}
    values["training_script"] = values.pop("script")
    values["training_script_args"] = list(values.pop("script_args"))
    values["timeout"] = values.pop("timeout_s")
    lines = [f"{name}: {_text(value)}" for name, value in sorted(values.items())]
    return "\n".join(["-----------  Configuration Arguments -----------", *lines, "-" * 48])
