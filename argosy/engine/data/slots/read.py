"""Read files through a command, in several processes at once, into Records.

    files ─▶ thread 1: sh -c pipe_command < file ─▶ parse ─┐
         └─▶ thread 2: sh -c pipe_command < file ─▶ parse ─┴▶ a few parts ─▶ next()

One process reads a whole file. With one thread the parts are in the order of the files, else in the order in which
they get ready. At most two parts per thread are queued, so that memory is bounded.
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
from argosy.engine.data.slots.slot import SlotSpec
from argosy.engine.errors import DataError
from argosy.engine.log import logger

_CHUNK_BYTES = 1 << 18
_STDERR_BYTES = 2000
"""How much of the end of stderr is reported."""
_JOIN_S = 10.0


class Pipe:
    """A process of the pipe command that reads one file; `chunks` is its output, in complete lines."""

    def __init__(self, path: str, command: str, modules: str | None = None) -> None:
        self.path, self.command = path, command
        self._stderr_file = tempfile.TemporaryFile()  # noqa: SIM115  (`close` closes it)
        try:
            with open(path, "rb") as file:
                self._process = subprocess.Popen(
                    command,
                    shell=True,
                    stdin=file,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr_file,
                    start_new_session=True,  # so that the children of the shell can be killed with it
                    env=env.for_pipe_command(modules),
                )
        except OSError as e:
            self._stderr_file.close()
            raise DataError(
                f"{path} cannot be read: {e.strerror}; give existing files to set_filelist"
            ) from e

    def chunks(self) -> Iterator[bytes]:
        """The output until the process exits; raises DataError if it fails."""
        source: IO[bytes] = self._process.stdout  # type: ignore[assignment]  # stdout=PIPE
        rest = b""
        while data := source.read(_CHUNK_BYTES):
            complete, newline, incomplete = data.rpartition(b"\n")
            if newline:
                yield rest + complete + newline
                rest = incomplete
            else:
                rest += data
        if rest:
            yield rest
        self._check_exit(self._process.wait())

    def _check_exit(self, code: int) -> None:
        stderr = self._stderr()
        if code:
            status = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
            raise DataError(
                f"pipe_command {self.command!r} ended with {status} on {self.path}; try it by hand: "
                f"{self.command} < {self.path}\n{stderr}".rstrip()
            )
        if stderr:
            logger.warning("stderr of pipe_command %r on %s:\n%s", self.command, self.path, stderr)

    def _stderr(self) -> str:
        self._stderr_file.seek(max(0, self._stderr_file.seek(0, os.SEEK_END) - _STDERR_BYTES))
        return self._stderr_file.read().decode(errors="replace").strip()

    def kill(self) -> None:
        """Kill the process and its children, if it still runs."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process, and release its resources."""
        self.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr_file.close()


class RecordStream(Iterator[Records]):
    """The records of files, part by part; `close` kills the processes early."""

    def __init__(
        self,
        files: Sequence[str],
        command: str,
        slots: tuple[SlotSpec, ...],
        threads: int,
        modules: str | None = None,
    ) -> None:
        # The threads reference the queue, not this object: otherwise it could never be garbage-collected.
        self._queue = _PartQueue(files, lambda path: Pipe(path, command, modules), slots, threads)
        workers = [
            threading.Thread(target=self._queue.run, name="argosy-slots", daemon=True) for _ in range(threads)
        ]
        self._stop = weakref.finalize(self, _stop, self._queue, workers)
        for thread in workers:
            thread.start()

    def __next__(self) -> Records:
        part = self._queue.take()
        if isinstance(part, Records):
            return part
        self.close()
        if part is None:
            raise StopIteration
        try:
            raise part
        finally:
            del part  # break the reference cycle: the traceback refers to this frame

    def close(self) -> None:
        """Stop the processes and threads; parts that were read ahead are dropped, and the iterator is exhausted."""
        self._stop()


class _PartQueue:
    """The parts that the threads have read, and the files that are left; shared with the consumer."""

    def __init__(
        self,
        files: Sequence[str],
        open_pipe: Callable[[str], Pipe],
        slots: tuple[SlotSpec, ...],
        threads: int,
    ) -> None:
        self._files, self._open, self._slots = deque(files), open_pipe, slots
        self._parts: deque[Records | BaseException] = deque()
        self._capacity = 2 * threads
        self._num_active = threads
        self._running: set[Pipe] = set()
        self._closed = False
        self._changed = threading.Condition()

    def run(self) -> None:
        """The main function of each thread: reads one file after the other."""
        try:
            while (pipe := self._next_pipe()) is not None:
                try:
                    self._read(pipe)
                finally:
                    self._release(pipe)
        except BaseException as e:
            self._put(e)
        with self._changed:
            self._num_active -= 1
            self._changed.notify_all()

    def take(self) -> Records | BaseException | None:
        """The next part, an error, or None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._parts or self._closed or not self._num_active)
            if self._closed or not self._parts:
                return None
            self._changed.notify_all()
            return self._parts.popleft()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._parts.clear()
            for pipe in self._running:
                pipe.kill()
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
            self._put(parse(text, self._slots, _source(pipe), line))
            line += text.count(b"\n")
            if self._closed:
                return

    def _release(self, pipe: Pipe) -> None:
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


def _source(pipe: Pipe) -> str:
    return pipe.path if pipe.command == "cat" else f"the output of {pipe.command!r} on {pipe.path}"


def _stop(queue: _PartQueue, threads: list[threading.Thread]) -> None:
    queue.close()
    for thread in threads:
        # Garbage collection may run this in any thread, even in one of these.
        if thread.ident is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)
