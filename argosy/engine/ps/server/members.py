"""The trainers of a job, as a server sees them."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.errors import ConfigError
from argosy.engine.log import NOTICE, logger
from argosy.engine.ps.rpc.listener import Request


class Members:
    """Who is alive, has left, or waits elsewhere; the service's lock guards what changes together."""

    def __init__(self, trainers: int) -> None:
        self.live = set(range(trainers))
        self.left: set[int] = set()
        self.away: dict[int, Request] = {}
        """Those in a meeting: steps go on without them. The request is answered when they are back."""
        self.silent: dict[int, float] = {}
        """Those that a launcher may start anew, and since when they are silent."""
        self._lives: dict[int, str] = {}
        self._greeted: dict[int, int] = {}
        """The number of each one's last greeting, in this life."""

    def waited_for(self) -> set[int]:
        """Whose gradients a step needs."""
        return self.live - self.away.keys()

    def greet(self, request: Request) -> bool:
        """A trainer begins, begins a step anew, or is back from a meeting; True if it had left."""
        trainer, life = request.trainer, request.client
        self.silent.pop(trainer, None)
        if (away := self.away.pop(trainer, None)) is not None and not away.is_answered:
            away.answer()
        had_left = trainer in self.left
        if trainer not in self.live:
            logger.warning("trainer %d is back", trainer)
            self.live.add(trainer)
            self.left.discard(trainer)
        if self._lives.get(trainer, life) != life:
            logger.log(NOTICE, "trainer %d has begun anew (or two processes have this number)", trainer)
        self._lives[trainer], self._greeted[trainer] = life, request.id
        return had_left

    def knows(self, request: Request) -> bool:
        """True if it is not the first word of this life."""
        return self._lives.get(request.trainer) == request.client

    def is_of_this_life(self, request: Request) -> bool:
        return self._lives.get(request.trainer, request.client) == request.client

    def is_outdated(self, request: Request) -> bool:
        """True if it was sent before the last greeting: handlers run beside each other, and it is late."""
        return request.id < self._greeted.get(request.trainer, 0)

    def pause(self, request: Request) -> None:
        """A trainer waits elsewhere; or has been back already."""
        self.check(request)
        if self.is_outdated(request):
            request.answer()
        else:
            self.away[request.trainer] = request

    def check(self, request: Request) -> None:
        """Raise if a message is of a former life of its trainer, or of one that was dropped."""
        trainer = request.trainer
        if not self.is_of_this_life(request):
            raise ConfigError(f"trainer {trainer} has begun anew; this is a message of its former life")
        if trainer not in self.live:
            raise ConfigError(
                f"trainer {trainer} was silent for so long that it was dropped; start it anew, and it takes part again"
            )


def named(numbers: list[int], group: str = "trainers") -> str:
    """trainers 1, 3"""
    return f"{group if len(numbers) != 1 else group[:-1]} {', '.join(map(str, numbers))}"
