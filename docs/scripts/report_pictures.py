"""Photographs pages: `python -m docs.scripts.report_pictures PAGE.html docs/pictures/report.png [dark]`.

The pictures of the documentation are those of real jobs: log/report.html, DIR/timeline.html. Needs chromium and
playwright, as `make test-browser` installs them.
"""

# SPDX-License-Identifier: Apache-2.0
import io
import sys
from pathlib import Path

from PIL import Image

from tests.browser.chromium import Browser

WIDTH, HEIGHT, NUM_COLORS = 1180, 900, 128


def main(source: Path, target: Path, theme: str = "light") -> None:
    """Write the first screen of a page, in few colours."""
    with Browser() as browser, browser.page(width=WIDTH, height=HEIGHT, theme=theme) as page:
        page.open(source.absolute().as_uri())
        page.wait("document.body.dataset.drawn === 'true'")
        page.wait("document.querySelector('.chart svg, .chart canvas, .chart table')")
        image = Image.open(io.BytesIO(page.page.screenshot()))
        image.convert("RGB").quantize(NUM_COLORS).save(target, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
