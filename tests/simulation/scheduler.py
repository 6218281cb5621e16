"""A deterministic scheduler: simulated processes and threads over a simulated clock, all from one seed.

Each simulated thread is a greenlet, and exactly one runs at a time. It gives up control where it blocks (a lock, a
condition, a poll, a sleep), where it writes to the simulated disk, and, with some probability, where it takes a lock.
The scheduler then picks one of the threads that can run, at random; if none can, the clock jumps to the next timer.

    run ─▶ due timers ─▶ a random runnable thread ─▶ until it blocks ─▶ …
                                    no thread can run ─▶ clock = next timer

A killed process runs nothing any more: whatever its threads call next raises `greenlet.GreenletExit`.
"""

# SPDX-License-Identifier: Apache-2.0
import heapq
import itertools
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import greenlet


class Stuck(Exception):
    """The simulation has used up its steps or its time: some thread spins, or somebody waits for ever."""


@dataclass(eq=False)
class Process:
    """A simulated process: its threads, and what belongs to it."""

    name: str
    is_dead: bool = False
    is_paused: bool = False
    threads: list["Thread"] = field(default_factory=list)
    parked: list["Thread"] = field(default_factory=list)
    """Threads that could run if the process was not paused."""
    on_kill: list[Callable[[], None]] = field(default_factory=list)
    """What the operating system does when the process is gone, such as closing its sockets."""
    failure: BaseException | None = None
    """What its main thread has raised."""
    is_over: bool = False
    """Its main thread has returned or raised."""


class World:
    """All processes, the clock, and the source of randomness."""

    def __init__(self, seed: int, preempts: float = 0.2, max_switches: int = 2_000_000) -> None:
        """`preempts`: the probability that a thread is interrupted where it takes a lock."""
        self.random = random.Random(seed)
        self.now = 1000.0
        self.switches = 0
        self._preempts = preempts
        self.work_s = 2e-5
        """How long a thread runs, at most, until it blocks."""
        self.errors: list[str] = []
        """Threads that ended with an unhandled exception."""
        self._max_switches = max_switches
        self._hub = greenlet.getcurrent()
        self._ready: list[Thread] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._current: Thread | None = None
        self._processes: list[Process] = []

    def process(self, name: str, main: Callable[[], None]) -> Process:
        """Start a process."""
        process = Process(name)
        self._processes.append(process)
        self.start(process, main)
        return process

    @property
    def current(self) -> "Thread":
        """The thread that runs."""
        assert self._current is not None, "this may be called only by a simulated thread"
        return self._current

    def start(self, process: Process, function: Callable[[], None], name: str = "main") -> "Thread":
        """Start a thread of a process."""
        thread = Thread(self, process, function, name)
        process.threads.append(thread)
        self.make_ready(thread)
        return thread

    def kill(self, process: Process) -> None:
        """End a process as SIGKILL does: none of its code runs any more."""
        if process.is_dead:
            return
        process.is_dead = process.is_over = True
        for function in process.on_kill:
            function()
        for thread in process.threads:
            thread.end()

    def pause(self, process: Process, seconds: float) -> None:
        """Stop a process for a while, as SIGSTOP and SIGCONT do."""
        process.is_paused = True
        self.at(self.now + seconds, lambda: self._continue(process))

    def _continue(self, process: Process) -> None:
        process.is_paused = False
        parked, process.parked = process.parked, []
        self._ready += parked

    def at(self, when: float, function: Callable[[], None]) -> None:
        """Call a function when the clock says so; it must not block."""
        heapq.heappush(self._timers, (when, next(self._numbers), function))

    def after(self, seconds: float, function: Callable[[], None]) -> None:
        self.at(self.now + seconds, function)

    def make_ready(self, thread: "Thread") -> None:
        """A thread can run again."""
        if not thread.is_ready and not thread.is_over:
            thread.is_ready = True
            self._ready.append(thread)

    def run(self, is_over: Callable[[], bool], until: float) -> None:
        """Run until a condition holds, looked at whenever a timer was due; `Stuck` if the clock passes `until`."""
        while True:
            while self._timers and self._timers[0][0] <= self.now:
                heapq.heappop(self._timers)[2]()
            if not self._ready:
                if is_over():
                    return
                if not self._timers or self._timers[0][0] > until:
                    raise Stuck(f"nothing is over at {self.now:.3f}")
                self.now = self._timers[0][0]
                continue
            place = int(self.random.random() * len(self._ready))
            self._ready[place], self._ready[-1] = self._ready[-1], self._ready[place]
            self._run(self._ready.pop())
            if self.now > until:
                raise Stuck(f"nothing is over at {self.now:.3f}")

    def _run(self, thread: "Thread") -> None:
        thread.is_ready = False
        process = thread.process
        if process.is_dead or thread.is_over:
            return
        if process.is_paused:
            thread.is_ready = True
            process.parked.append(thread)
            return
        self.switches += 1
        if self.switches > self._max_switches:
            raise Stuck(f"{self.switches} switches")
        self.now += self.random.random() * self.work_s
        self._current = thread
        thread.greenlet.switch()
        self._current = None

    def check_alive(self) -> None:
        """Raise in a thread whose process was killed."""
        if self.current.process.is_dead:
            raise greenlet.GreenletExit

    def block(self, timeout_s: float | None = None) -> bool:
        """Give up control until `make_ready`, or until the time is over; True if it was made ready."""
        self.check_alive()
        thread = self.current
        thread.was_woken = True
        if timeout_s is not None:
            thread.waits += 1
            number = thread.waits
            self.at(self.now + max(timeout_s, 0.0), lambda: self._time_out(thread, number))
        self._switch_out()
        thread.waits += 1  # a timer that is still to come means nothing any more
        return thread.was_woken

    def _time_out(self, thread: "Thread", number: int) -> None:
        if thread.waits == number and not thread.is_ready:
            thread.was_woken = False
            self.make_ready(thread)

    def interrupt(self) -> None:
        """Let others run; the thread stays runnable."""
        self.check_alive()
        self.make_ready(self.current)
        self._switch_out()

    def _switch_out(self) -> None:
        self._hub.switch()
        self.check_alive()

    def may_interrupt(self) -> None:
        """Let others run, with some probability."""
        if self.random.random() < self._preempts:
            self.interrupt()
        else:
            self.check_alive()

    def close(self) -> None:
        """End all threads."""
        for process in self._processes:
            self.kill(process)


class Thread:
    """A simulated thread."""

    def __init__(self, world: World, process: Process, function: Callable[[], None], name: str) -> None:
        self.world, self.process, self.name = world, process, name
        self.greenlet = greenlet.greenlet(self._main, parent=world._hub)
        self.is_ready = self.is_over = False
        self.was_woken = False
        self.waits = 0
        self.joining: list[Thread] = []
        self.local: dict[int, dict[str, Any]] = {}
        self._function = function

    def _main(self) -> None:
        is_main = self.process.threads[0] is self
        try:
            self._function()
        except greenlet.GreenletExit:
            pass
        except Exception as e:
            if is_main:
                self.process.failure = e
            else:
                self.world.errors.append(
                    f"{self.process.name}, thread {self.name}: {''.join(traceback.format_exception(e)[-4:])}"
                )
        finally:
            self._finish()
            self.process.is_over |= is_main

    def _finish(self) -> None:
        self.is_over = True
        for waiting in self.joining:
            self.world.make_ready(waiting)

    def end(self) -> None:
        """Unwind what is left of a killed thread; its process is dead, so that it has no effect on anything."""
        outer, self.world._current = self.world._current, self
        while self.greenlet and not self.greenlet.dead:
            self.greenlet.throw(greenlet.GreenletExit)
        self.world._current = outer
        self._finish()
