"""Files through a command, in several processes at once, into Records.

    files ─▶ thread 1: sh -c pipe_command < file ─▶ parse ─┐
         └─▶ thread 2: sh -c pipe_command < file ─▶ parse ─┴▶ a few parts ─▶ next()

A file is read whole by one process. With one thread the parts come in the order of the files, else as they are
ready. At most two parts for each thread wait, so that memory is bounded whatever the files hold.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from argosy.engine import env
from argosy.engine.data.slots.parse import parse
from argosy.engine.data.slots.records import Records
from argosy.engine.data.slots.slot import Slot
from argosy.engine.errors import DataError
from argosy.engine.log import logger

_CHUNK_BYTES = 1 << 18
_SAID = 2000
_JOIN_S = 10.0
Parts = Iterator[Records]


class Pipe:
    """A process of the pipe command that reads one file; `chunks` are what it writes, in whole lines."""

    def __init__(self, path: str, command: str, modules: str | None = None) -> None:
        self.path, self.command = path, command
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (`close` closes it)
        try:
            with open(path, "rb") as file:
                self._process = subprocess.Popen(
                    command,
                    shell=True,
                    stdin=file,
                    stdout=subprocess.PIPE,
                    stderr=self._said,
                    start_new_session=True,  # so that what the shell has started can be ended with it
                    env=env.for_pipe_command(modules),
                )
        except OSError as e:
            self._said.close()
            raise DataError(
                f"{path} cannot be read: {e.strerror}; give a file that is there to set_filelist"
            ) from e

    def chunks(self) -> Iterator[bytes]:
        """The text up to the end of the process, which must be a good one."""
        source: IO[bytes] = self._process.stdout  # type: ignore[assignment]  # there is a pipe
        rest = b""
        while data := source.read(_CHUNK_BYTES):
            whole, newline, rest_of = data.rpartition(b"\n")
            if newline:
                yield rest + whole + newline
                rest = rest_of
            else:
                rest += data
        if rest:
            yield rest
        self._check_end(self._process.wait())

    def _check_end(self, code: int) -> None:
        said = self._stderr()
        if code:
            how = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
            raise DataError(
                f"pipe_command {self.command!r} ended with {how} on {self.path}; try it by hand: "
                f"{self.command} < {self.path}\n{said}".rstrip()
            )
        if said:
            logger.warning("pipe_command %r said on %s:\n%s", self.command, self.path, said)

    def _stderr(self) -> str:
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - _SAID))
        return self._said.read().decode(errors="replace").strip()

    def end(self) -> None:
        """End the process and all that it has started, if it still runs."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process and forget it."""
        self.end()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._said.close()


class Reading(Iterator[Records]):
    """The records of files, part by part; `close` ends the processes early."""

    def __init__(
        self,
        files: Sequence[str],
        command: str,
        slots: tuple[Slot, ...],
        threads: int,
        modules: str | None = None,
    ) -> None:
        # The threads know what they share and not this object: otherwise it could never become garbage.
        self._shared = _Shared(files, lambda path: Pipe(path, command, modules), slots, threads)
        team = [
            threading.Thread(target=self._shared.run, name="argosy-slots", daemon=True)
            for _ in range(threads)
        ]
        self._stop = weakref.finalize(self, _stop, self._shared, team)
        for thread in team:
            thread.start()

    def __next__(self) -> Records:
        part = self._shared.take()
        if isinstance(part, Records):
            return part
        self.close()
        if part is None:
            raise StopIteration
        try:
            raise part
        finally:
            del part  # the traceback holds this frame

    def close(self) -> None:
        """End the processes and threads; what was read ahead is dropped, and the iterator is at its end."""
        self._stop()


class _Shared:
    """What the threads and the reader of their parts share."""

    def __init__(
        self, files: Sequence[str], open_pipe: Callable[[str], Pipe], slots: tuple[Slot, ...], threads: int
    ) -> None:
        self._files, self._open, self._slots = deque(files), open_pipe, slots
        self._parts: deque[Records | BaseException] = deque()
        self._capacity = 2 * threads
        self._at_work = threads
        self._running: set[Pipe] = set()
        self._closed = False
        self._changed = threading.Condition()

    def run(self) -> None:
        """The life of one thread: file after file."""
        try:
            while (pipe := self._next_pipe()) is not None:
                try:
                    self._read(pipe)
                finally:
                    self._forget(pipe)
        except BaseException as e:
            self._put(e)
        with self._changed:
            self._at_work -= 1
            self._changed.notify_all()

    def take(self) -> Records | BaseException | None:
        """The next part, an error, or None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._parts or self._closed or not self._at_work)
            if self._closed or not self._parts:
                return None
            self._changed.notify_all()
            return self._parts.popleft()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._parts.clear()
            for pipe in self._running:
                pipe.end()
            self._changed.notify_all()

    def _next_pipe(self) -> Pipe | None:
        with self._changed:
            if self._closed or not self._files:
                return None
            pipe = self._open(self._files.popleft())
            self._running.add(pipe)
            return pipe

    def _read(self, pipe: Pipe) -> None:
        line = 1
        for text in pipe.chunks():
            self._put(parse(text, self._slots, _place(pipe), line))
            line += text.count(b"\n")
            if self._closed:
                return

    def _forget(self, pipe: Pipe) -> None:
        with self._changed:
            self._running.discard(pipe)
        pipe.close()

    def _put(self, part: Records | BaseException) -> None:
        with self._changed:
            is_error = isinstance(part, BaseException)
            self._changed.wait_for(lambda: is_error or self._closed or len(self._parts) < self._capacity)
            if not self._closed:
                self._parts.append(part)
                self._changed.notify_all()


def _place(pipe: Pipe) -> str:
    return pipe.path if pipe.command == "cat" else f"what {pipe.command!r} made of {pipe.path}"


def _stop(shared: _Shared, team: list[threading.Thread]) -> None:
    shared.close()
    for thread in team:
        # A garbage collection may run this in any thread, even in one of the team.
        if thread.ident is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)
