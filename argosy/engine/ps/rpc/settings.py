"""Settings of the RPC transport, from the environment."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass, fields

from argosy.engine import env
from argosy.engine.errors import ConfigError

_VARIABLES = {
    "send_threads": "FLAGS_rpc_send_thread_num",
    "get_threads": "FLAGS_rpc_get_thread_num",
    "prefetch_threads": "FLAGS_rpc_prefetch_thread_num",
    "deadline_s": "FLAGS_rpc_deadline, in ms",
    "max_message_mb": "ARGOSY_PS_MAX_MESSAGE_MB",
}


@dataclass(frozen=True)
class RpcSettings:
    """Settings of the transport; the same in every process of a job."""

    send_threads: int = 12
    """Threads of a server that run pushes."""
    get_threads: int = 12
    """Threads of a server that run pulls."""
    prefetch_threads: int = 12
    """Threads of a server that look up rows."""
    deadline_s: float = 180.0
    """A request fails if the server sends nothing about it for this long."""
    retry_times: int = 3
    """How often a responsive server is queried about a request without a reply."""
    retry_s: float = 2.0
    """Delay of the first query; it doubles for each further one."""
    heartbeat_s: float = 1.0
    heartbeat_timeout_s: float = 20.0
    """A trainer without a message for this long is unresponsive."""
    token: str = ""
    """The secret of the job; empty: loopback addresses only."""
    encrypt: bool = False
    """CURVE instead of PLAIN."""
    max_message_mb: int = 2048
    notice_s: float = 10.0
    """A waiting client logs this often."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "retry_times" else 1 if isinstance(value, int) else 1e-3
            if not isinstance(value, bool | str) and not value >= least:
                where = f" ({_VARIABLES[field.name]})" if field.name in _VARIABLES else ""
                raise ConfigError(f"{field.name} = {value!r}{where} is too small; use {least} or more")
        if self.encrypt and not self.token:
            raise ConfigError(
                "encryption without a job token, from which the keys are derived; set ARGOSY_JOB_TOKEN"
            )

    @classmethod
    def from_env(cls) -> "RpcSettings":
        """The values of FLAGS_rpc_* and ARGOSY_*, else the defaults."""
        return cls(
            send_threads=env.number("FLAGS_rpc_send_thread_num", default=cls.send_threads),
            get_threads=env.number("FLAGS_rpc_get_thread_num", default=cls.get_threads),
            prefetch_threads=env.number("FLAGS_rpc_prefetch_thread_num", default=cls.prefetch_threads),
            deadline_s=env.number("FLAGS_rpc_deadline", default=round(cls.deadline_s * 1000)) / 1000,
            retry_times=env.number("FLAGS_rpc_retry_times", default=cls.retry_times),
            heartbeat_s=env.seconds("ARGOSY_HEARTBEAT_S", cls.heartbeat_s),
            heartbeat_timeout_s=env.seconds("ARGOSY_PS_SILENT_S", cls.heartbeat_timeout_s),
            token=env.text("ARGOSY_JOB_TOKEN", cls.token),
            encrypt=env.flag("ARGOSY_PS_ENCRYPT", cls.encrypt),
            max_message_mb=env.number("ARGOSY_PS_MAX_MESSAGE_MB", default=cls.max_message_mb),
        )

    @property
    def max_message_bytes(self) -> int:
        return self.max_message_mb << 20
