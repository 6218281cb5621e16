"""What `threading`, `queue` and `time` give, over the simulated scheduler; only what the parameter server uses."""

# SPDX-License-Identifier: Apache-2.0
from collections import deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from tests.simulation import scheduler
from tests.simulation.scheduler import World


class Lock:
    """A lock that is not fair: the thread that runs first gets it."""

    is_reentrant = False

    def __init__(self, world: World) -> None:
        self._world = world
        self._owner: scheduler.Thread | None = None
        self._count = 0
        self._waiting: list[scheduler.Thread] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._world.may_interrupt()
        me = self._world.current
        if self._owner is me and self.is_reentrant:
            self._count += 1
            return True
        while self._owner is not None:
            if not blocking:
                return False
            self._waiting.append(me)
            self._world.block()
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        self._world.check_alive()
        assert self._owner is self._world.current, "a lock is released by another thread than its owner"
        self._count -= 1
        if not self._count:
            self._owner = None
            waiting, self._waiting = self._waiting, []
            for thread in waiting:
                self._world.make_ready(thread)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        if not self._world.current.process.is_dead:
            self.release()


class RLock(Lock):
    """A lock that its owner may take again."""

    is_reentrant = True


class Condition:
    """A condition over a lock that is not taken twice."""

    def __init__(self, world: World, lock: Lock | None = None) -> None:
        self._world, self._lock = world, lock or RLock(world)
        self._waiting: list[scheduler.Thread] = []

    def wait(self, timeout: float | None = None) -> bool:
        me = self._world.current
        self._waiting.append(me)
        self._lock.release()
        was_woken = self._world.block(timeout)
        if me in self._waiting:
            self._waiting.remove(me)
        self._lock.acquire()
        return was_woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = None if timeout is None else self._world.now + timeout
        while not (result := predicate()):
            left = None if until is None else until - self._world.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, count: int = 1) -> None:
        woken, self._waiting = self._waiting[:count], self._waiting[count:]
        for thread in woken:
            self._world.make_ready(thread)

    def notify_all(self) -> None:
        self.notify(len(self._waiting))

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()


class Event:
    """A flag to wait for."""

    def __init__(self, world: World) -> None:
        self._world, self._is_set = world, False
        self._waiting: list[scheduler.Thread] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            self._world.make_ready(thread)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        self._world.may_interrupt()
        until = None if timeout is None else self._world.now + timeout
        while not self._is_set:
            left = None if until is None else until - self._world.now
            if left is not None and left <= 0:
                return False
            self._waiting.append(self._world.current)
            self._world.block(left)
        return True


class SimpleQueue:
    """A queue without a limit."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._items: deque[Any] = deque()
        self._waiting: list[scheduler.Thread] = []

    def put(self, item: Any) -> None:
        self._items.append(item)
        waiting, self._waiting = self._waiting, []
        for thread in waiting:  # all: one of them may have been woken by something else already
            self._world.make_ready(thread)

    def get(self) -> Any:
        while not self._items:
            self._waiting.append(self._world.current)
            self._world.block()
        return self._items.popleft()


class Thread:
    """A thread of the process that starts it."""

    def __init__(
        self,
        world: World,
        target: Callable[..., None],
        name: str = "",
        args: Iterable[Any] = (),
        daemon: bool = False,
    ) -> None:
        self._world, self._target, self.name, self._args = world, target, name or "thread", tuple(args)
        self._thread: scheduler.Thread | None = None

    def start(self) -> None:
        run = lambda: self._target(*self._args)  # noqa: E731
        self._thread = self._world.start(self._world.current.process, run, self.name)

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.is_over

    def join(self, timeout: float | None = None) -> None:
        assert self._thread is not None, "it was not started"
        until = None if timeout is None else self._world.now + timeout
        while not self._thread.is_over:
            left = None if until is None else until - self._world.now
            if left is not None and left <= 0:
                return
            self._thread.joining.append(self._world.current)
            self._world.block(left)


class Local:
    """Attributes of which each thread has its own."""

    def __init__(self, world: World) -> None:
        object.__setattr__(self, "_world", world)

    def _values(self) -> dict[str, Any]:
        world: World = object.__getattribute__(self, "_world")
        return world.current.local.setdefault(id(self), {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._values()[name] = value


def threading_of(world: World) -> SimpleNamespace:
    """A module in the place of `threading`."""
    return SimpleNamespace(
        Lock=lambda: Lock(world),
        RLock=lambda: RLock(world),
        Condition=lambda lock=None: Condition(world, lock),
        Event=lambda: Event(world),
        Thread=lambda target, name="", args=(), daemon=False: Thread(world, target, name, args, daemon),
        local=lambda: Local(world),
        get_ident=lambda: id(world.current),
    )


def time_of(world: World) -> SimpleNamespace:
    """A module in the place of `time`."""

    def sleep(seconds: float) -> None:
        until = world.now + seconds
        while world.now < until:
            world.block(until - world.now)

    clock = lambda: world.now  # noqa: E731
    return SimpleNamespace(monotonic=clock, time=clock, thread_time_ns=lambda: 0, sleep=sleep)
