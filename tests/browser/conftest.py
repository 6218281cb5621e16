"""Pages in a real browser: Debian's chromium, driven by playwright. `make test-engines` installs both."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

import pytest

from tests.browser.chromium import Browser, Page, missing


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser with an empty profile; skips the test where there is none."""
    if reason := missing():
        pytest.skip(reason)
    with Browser() as started:
        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page; an error on its console, an exception in it or a failed request fails the test."""
    with browser.page() as opened:
        yield opened
        assert not opened.problems, "\n".join(opened.problems)
