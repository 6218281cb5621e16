"""Memory of the dashboard, of its page and of its server, for a job of 64 ranks that runs for an hour.

The job is generated (tests/dashboard/generated_job.py) and runs in fast motion: half a minute at a time, after each of
which the page has caught up. Then a second server joins the job at its end.

python benchmarks/dashboard_memory.py --ranks 64 --minutes 60
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it has no annotations

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.browser.chromium import Browser, Page
from tests.dashboard.generated_job import GeneratedJob
from tests.dashboard.served import running

STRIDE_S = 30
WAIT_MS = 600_000


def renderer_mb() -> float:
    """Private memory of the renderer of the page: what it takes beside other pages, in megabytes."""
    renderers = [p for p in psutil.Process().children(recursive=True) if "--type=renderer" in p.cmdline()]
    return max(float(p.memory_full_info().uss) for p in renderers) / 1e6


def heap_mb(page: Page) -> tuple[float, float]:
    """The JavaScript heap, before and after a garbage collection, in megabytes."""
    session = page.page.context.new_cdp_session(page.page)
    session.send("Performance.enable")

    def used() -> float:
        metrics: list[dict[str, Any]] = session.send("Performance.getMetrics")["metrics"]
        return float(next(m["value"] for m in metrics if m["name"] == "JSHeapUsedSize")) / 1e6

    before = used()
    session.send("HeapProfiler.collectGarbage")
    return before, used()


def watch(ranks: int, minutes: int, log_dir: Path) -> None:
    """Print a row per ten minutes of the job."""
    print("| minute | steps | heap MB | after GC | renderer MB | server MB |\n|---|---|---|---|---|---|")
    with (
        GeneratedJob(log_dir, ranks, straggler=ranks // 3) as job,
        running(log_dir) as (process, url),
        Browser() as b,
    ):
        server = psutil.Process(process.pid)
        largest = 0.0
        with b.page() as page:
            page.open(url)
            for second in range(STRIDE_S, minutes * 60 + 1, STRIDE_S):
                job.advance(STRIDE_S)
                job.log(0, f"step {job.step}")
                job.write_profiles()
                page.wait(f"dashboard.state.overview.step === {job.step}", timeout_ms=WAIT_MS)
                largest = max(largest, renderer_mb())
                if second % 600 == 0 or second == minutes * 60:
                    before, after = heap_mb(page)
                    row = (
                        second // 60,
                        job.step,
                        before,
                        after,
                        renderer_mb(),
                        server.memory_info().rss / 1e6,
                    )
                    print("| {} | {} | {:.1f} | {:.1f} | {:.0f} | {:.0f} |".format(*row), flush=True)
            assert not page.problems, page.problems
        print(f"\nlargest renderer: {largest:.0f} MB")
        join(b, log_dir, job.step)


def join(b: Browser, log_dir: Path, step: int) -> None:
    """Print what a server and a page take that come at the end."""
    began = time.monotonic()
    with running(log_dir) as (process, url), b.page() as page:
        server = psutil.Process(process.pid)
        page.open(url)
        page.wait(f"dashboard.state.overview.step === {step}", timeout_ms=WAIT_MS)
        size = sum(f.stat().st_size for f in (log_dir / "metrics").iterdir()) / 1e6
        print(
            f"joined at the end: {size:.0f} MB of records read and shown after {time.monotonic() - began:.0f} s, "
            f"server {server.memory_info().rss / 1e6:.0f} MB, renderer {renderer_mb():.0f} MB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--minutes", type=int, default=60)
    known = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        watch(known.ranks, known.minutes, Path(directory) / "log")


if __name__ == "__main__":
    main()
