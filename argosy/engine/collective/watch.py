"""What each rank is doing, told to the others once a second, so that nobody waits without knowing for whom.

    rank 1 ──▶ store: watch/1 = {"beat": 41, "step": 7, "started": {"dp": 1127}, "waiting": "", "end": ""}

A rank that waits longer than a second reads the records of those it waits for. They tell whether a rank is
late (alive, and busy with something else), silent (its beats have stopped: it is stopped or unreachable),
waiting itself for something that we have not started (then nobody will ever go on), or at its end.

Only a thread of its own speaks with the store: while rank 0 is stopped, the store answers nobody, and whoever
asks it hangs for good. The main thread looks at what the thread has brought, and at the clock.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import threading
import time
from dataclasses import dataclass, field

from torch._C._distributed_c10d import Store

_PERIOD_S = 1.0
_LINGER_S = {True: 10.0, False: 2.5}
"""How long rank 0 waits for others that are busy: at a good end, and after a failure, which a launcher awaits."""


@dataclass
class Record:
    """One rank's state, as it tells it."""

    beat: int = 0
    step: int = 0
    """Steps that the rank has finished."""
    started: dict[str, int] = field(default_factory=dict)
    """By group: how many collectives the rank has started."""
    waiting: str = ""
    """What it waits for: the group and the number of the collective, and its name; empty if it does not wait."""
    waiting_for: list[int] = field(default_factory=list)
    """The ranks of that group."""
    end: str = ""
    """Not empty once the process ends: "done", or the exception that ended it."""


class Watch:
    """Tells this rank's record to the store, and reads those of the others."""

    def __init__(self, store: Store | None, rank: int, size: int) -> None:
        self.own = Record()
        self.rank, self.size = rank, size
        self.broken = ""
        """Not empty: the exception that ended a step of this rank halfway; the ranks are out of step since."""
        self._pid = os.getpid()
        self.store_is_gone = store is None
        """True once the store does not exist any more, which means that rank 0 does not."""
        self.records: dict[int, Record] = {}
        """What the others have told, as of the last look; a rank that has not connected yet is not there."""
        self._heard_at = self._looked_at = time.monotonic()
        self._since: dict[int, float] = {}
        self._looks = 0
        self._news = threading.Condition()
        self._wanted, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._live, name="argosy-watch", daemon=True)
        if store is not None:
            # A connection of its own: a wait for a key holds up whoever else asks through the same one.
            self._store = store.clone()  # type: ignore[attr-defined]  # not in the stubs
            self._exchange(reading=False)
            self._thread.start()

    def look(self, timeout_s: float = _PERIOD_S) -> dict[int, Record]:
        """Read the records of the others anew; without an answer of the store they stay as they were."""
        with self._news:
            before = self._looks
            self._wanted.set()
            self._news.wait_for(lambda: self.store_is_gone or self._looks > before, timeout_s)
            return dict(self.records)

    def deaf_s(self) -> float:
        """For how long the store has not answered."""
        return time.monotonic() - self._heard_at

    def silent_s(self, rank: int) -> float:
        """For how long, as far as this rank has looked, the other's beats have stood still."""
        return self._looked_at - self._since.get(rank, self._looked_at)

    def end(self, how: str) -> None:
        """Tell, once, how this process ends; the rank with the store stays until the others have ended too."""
        if (
            self.store_is_gone or self.own.end or os.getpid() != self._pid
        ):  # the end of a forked child is not ours
            return
        self.own.end = how
        self._stop.set()
        self._wanted.set()
        self._thread.join(timeout=2 * _PERIOD_S)  # not longer: a stopped store must not hold up the end
        if self.rank == 0:
            self._linger()

    def _linger(self) -> None:
        """Keep the store for those who still want to know that this rank has ended, and after which step."""
        deadline = time.monotonic() + _LINGER_S[self.own.end == "done"]
        while not self.store_is_gone and time.monotonic() < deadline:
            self._exchange(reading=True)
            if all(told.end or self.silent_s(r) > 3 * _PERIOD_S for r, told in self.records.items()):
                return
            time.sleep(0.02)

    def _live(self) -> None:
        while not (self._stop.is_set() or self.store_is_gone):
            wanted = self._wanted.wait(_PERIOD_S)
            self._wanted.clear()
            self._exchange(reading=wanted)

    def _exchange(self, reading: bool) -> None:
        """Tell the own record; read the others' if somebody wants to know."""
        self.own.beat += 1
        # Copies: the main thread goes on changing the record meanwhile.
        own = json.dumps(vars(self.own) | {"started": dict(self.own.started)})
        try:
            self._store.set(f"watch/{self.rank}", own)
            found = self._read() if reading else None
        except RuntimeError:  # torch.distributed's errors are
            with self._news:
                self.store_is_gone = True
                self._news.notify_all()
            return
        self._heard_at = time.monotonic()
        if found is not None:
            self._take(found)

    def _read(self) -> dict[int, Record]:
        found = {}
        for rank in range(self.size):
            key = f"watch/{rank}"
            # To get a key that is not there waits for it.
            if rank != self.rank and (rank in self.records or self._store.check([key])):
                found[rank] = Record(**json.loads(self._store.get(key)))
        return found

    def _take(self, found: dict[int, Record]) -> None:
        with self._news:
            for rank, told in found.items():
                if rank not in self.records or told.beat != self.records[rank].beat:
                    self._since[rank] = self._heard_at
            self.records = found
            self._looked_at = self._heard_at
            self._looks += 1
            self._news.notify_all()
