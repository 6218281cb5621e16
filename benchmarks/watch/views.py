"""What reads the records of a job, as fleetrun runs it: the monitor with its sinks, the dashboard, and a client of it.

python views.py DIRECTORY        until SIGTERM
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from types import FrameType

from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.job_record import JobRecord, Place
from argosy.engine.launch.live import Live
from argosy.engine.launch.monitor import Monitor, Sink
from argosy.engine.launch.screen import Screen
from argosy.engine.metrics.prometheus import PrometheusSink
from argosy.engine.metrics.tensorboard import TensorBoardSink


def stream(url: str) -> None:
    """Read the events that a page reads."""
    with (
        contextlib.suppress(OSError, http.client.HTTPException),
        urllib.request.urlopen(f"{url}events") as response,
    ):
        while response.read1(1 << 16):
            pass


def drain(descriptor: int) -> None:
    """Read what the live block writes."""
    while os.read(descriptor, 1 << 16):
        pass


def main(directory: str) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit

    signal.signal(signal.SIGTERM, stop)
    record = JobRecord(directory, Configuration("train.py"))
    record.start(Place("rank", rank, "host") for rank in range(2))
    record.write()
    master, slave = os.openpty()
    threading.Thread(target=drain, args=(master,), daemon=True).start()
    sinks: list[Sink] = [TensorBoardSink(f"{directory}/tensorboard"), PrometheusSink("127.0.0.1", 0, None)]
    Monitor(directory, record, Live(Screen(slave), "train.py"), sinks)
    command = [sys.executable, "-u", "-m", "argosy.dashboard", directory, "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as dashboard:
        os.setpriority(os.PRIO_PROCESS, dashboard.pid, 10)  # as fleetrun does
        try:
            assert dashboard.stdout is not None
            url = re.search(r"http://\S+", dashboard.stdout.readline())
            assert url is not None, "the dashboard prints its address"
            threading.Thread(target=stream, args=(url[0],), daemon=True).start()
            signal.pause()
        finally:
            dashboard.terminate()


if __name__ == "__main__":
    main(sys.argv[1])
