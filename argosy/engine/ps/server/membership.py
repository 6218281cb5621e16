"""The membership of a job on one server: live, left, excluded and unresponsive trainers."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.errors import ConfigError
from argosy.engine.log import NOTICE, logger
from argosy.engine.ps.rpc.server import Request


class Membership:
    """The state of each trainer; the service's lock guards changes."""

    def __init__(self, trainers: int) -> None:
        self.live = set(range(trainers))
        self.left: set[int] = set()
        self.excluded: dict[int, Request] = {}
        """Trainers in a collective: steps do not wait for them. The reply to the request is sent when they are back."""
        self.unresponsive: dict[int, float] = {}
        """Trainers that a launcher may restart, and since when they are unresponsive."""
        self._incarnations: dict[int, str] = {}
        self._hello_ids: dict[int, int] = {}
        """The sequence number of each trainer's last hello, in this incarnation: a fence for earlier requests."""

    def active(self) -> set[int]:
        """The trainers whose gradients a step needs."""
        return self.live - self.excluded.keys()

    def register(self, request: Request) -> bool:
        """A trainer starts, restarts a step, or is back from a collective; True if it had left."""
        trainer, incarnation = request.trainer, request.client
        self.unresponsive.pop(trainer, None)
        if (paused := self.excluded.pop(trainer, None)) is not None and not paused.is_replied:
            paused.reply()
        had_left = trainer in self.left
        if trainer not in self.live:
            logger.warning("trainer %d has rejoined", trainer)
            self.live.add(trainer)
            self.left.discard(trainer)
        if self._incarnations.get(trainer, incarnation) != incarnation:
            logger.log(NOTICE, "trainer %d has restarted (or two processes have this number)", trainer)
        self._incarnations[trainer], self._hello_ids[trainer] = incarnation, request.id
        return had_left

    def is_registered(self, request: Request) -> bool:
        """True if this incarnation has sent a hello before."""
        return self._incarnations.get(request.trainer) == request.client

    def is_current_incarnation(self, request: Request) -> bool:
        return self._incarnations.get(request.trainer, request.client) == request.client

    def is_outdated(self, request: Request) -> bool:
        """True if it was sent before the last hello: handlers run concurrently, so it may be late."""
        return request.id < self._hello_ids.get(request.trainer, 0)

    def pause(self, request: Request) -> None:
        """Exclude a trainer from steps until its next hello, unless that has arrived already."""
        self.check(request)
        if self.is_outdated(request):
            request.reply()
        else:
            self.excluded[request.trainer] = request

    def check(self, request: Request) -> None:
        """Raise if a request is of a previous incarnation of its trainer, or of a trainer that was dropped."""
        trainer = request.trainer
        if not self.is_current_incarnation(request):
            raise ConfigError(
                f"trainer {trainer} has restarted; this is a request of its previous incarnation, end that process"
            )
        if trainer not in self.live:
            raise ConfigError(
                f"trainer {trainer} was unresponsive and was dropped; restart it to rejoin the job"
            )


def named(numbers: list[int], group: str = "trainers") -> str:
    """trainers 1, 3"""
    return f"{group if len(numbers) != 1 else group[:-1]} {', '.join(map(str, numbers))}"
