"""Takes the pictures of the dashboard: `python -m docs.scripts.dashboard_pictures` writes dashboard-*.png.

The job is a generated one (tests/dashboard/generated_job.py): eight ranks, one of which becomes a straggler. Needs
chromium and playwright, which `make test-browser` installs.
"""

# SPDX-License-Identifier: Apache-2.0
import io
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from tests.browser.chromium import Browser, missing
from tests.dashboard.generated_job import GeneratedJob
from tests.dashboard.served import served

PICTURES = Path(__file__).parents[1] / "pictures"
SECONDS = 180
MAX_BYTES = 200_000


def take(log_dir: Path) -> None:
    """The top of the page in both themes, as PNG files of few colours."""
    with GeneratedJob(
        log_dir, ranks=8, straggler=5, straggles_from=2600, started=time.time() - SECONDS
    ) as job:
        job.advance(SECONDS)
        text = "rank 5 is 18 % slower than the others: its own computation; the host runs other processes"
        job.event("straggler", text, role="worker", rank=5, cause="computation")
        job.write_profiles()
        with served(log_dir) as url, Browser() as browser:
            for theme in ("light", "dark"):
                with browser.page(1280, 1130, theme=theme) as page:
                    page.open(url)
                    page.wait("document.querySelector('#program-tree li')")
                    page.page.hover("#steps-chart canvas", position={"x": 430, "y": 140})
                    page.wait("document.querySelector('#steps-chart .chart-tip:not([hidden])')")
                    write(PICTURES / f"dashboard-{theme}.png", page.page.screenshot())


def write(path: Path, data: bytes) -> None:
    """With 200 colours: the page has few, and the file is a third of the size."""
    image = Image.open(io.BytesIO(data)).convert("RGB").quantize(200, dither=Image.Dither.NONE)
    image.save(path, optimize=True)
    size = path.stat().st_size
    assert size < MAX_BYTES, f"{path} has {size} bytes"
    print(f"{path.name}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    if reason := missing():
        sys.exit(f"error: {reason}")
    with tempfile.TemporaryDirectory(prefix="job-") as directory:
        take(Path(directory) / "log")
