"""A chromium without a window, driven by playwright: pages that collect their errors and requests."""

# SPDX-License-Identifier: Apache-2.0
import importlib.util
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

ARGUMENTS = [
    "--headless",
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-precise-memory-info",
]
TIMEOUT_MS = 60_000
"""Of a wait for a condition: generous, because the machine may be busy."""


def missing() -> str | None:
    """Why there is no browser here, or None."""
    if importlib.util.find_spec("playwright") is None:
        return "no playwright; make test-engines installs it"
    if shutil.which("chromium") is None:
        return "no chromium; make test-engines installs it"
    return None


@dataclass
class Page:
    """A page of the browser, and what went wrong in it."""

    page: Any
    """playwright's page."""
    problems: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    """Hosts and ports that the page has sent requests to."""

    def on_console(self, message: Any) -> None:
        """Keep what the page, or the browser, reports as an error."""
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def on_failed_request(self, request: Any) -> None:
        """Keep requests that failed, but for those that the page itself gave up: a closed stream, a download."""
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"failed: {request.url}: {request.failure}")

    def open(self, url: str) -> None:
        """Load a page; does not wait for the network to be idle, which an event stream never is."""
        self.page.goto(url, wait_until="domcontentloaded")

    def wait(self, condition: str, argument: Any = None, timeout_ms: float = TIMEOUT_MS) -> None:
        """Wait until a JavaScript expression, or function of the argument, is true; raises TimeoutError.

        Not playwright's wait_for_function: it calls eval, which the pages forbid (Content-Security-Policy).
        """
        deadline = time.monotonic() + timeout_ms / 1000
        while not self.page.evaluate(condition, argument):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"not true after {timeout_ms / 1000:.0f} s: {condition}; problems: {self.problems}"
                )
            self.page.wait_for_timeout(50)

    def text(self, selector: str) -> str:
        """The visible text of the first element that matches."""
        return str(self.page.inner_text(selector))

    def evaluate(self, expression: str, argument: Any = None) -> Any:
        """The value of a JavaScript expression, or of a function of the argument."""
        return self.page.evaluate(expression, argument)


class Browser:
    """A running chromium with an empty profile."""

    def __enter__(self) -> "Browser":
        from playwright.sync_api import sync_playwright

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._playwright = sync_playwright().start()
            self._browser = self._playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=ARGUMENTS
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._browser.close()
        self._playwright.stop()

    @contextmanager
    def page(
        self, width: int = 1280, height: int = 900, theme: str = "light", **options: Any
    ) -> Iterator[Page]:
        """A page of its own context: no cookies, no storage."""
        context = self._browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, **options
        )
        context.set_default_timeout(TIMEOUT_MS)
        page = Page(context.new_page())
        page.page.on("pageerror", lambda error: page.problems.append(f"exception: {error}"))
        page.page.on("console", page.on_console)
        page.page.on("requestfailed", page.on_failed_request)
        page.page.on("request", lambda r: page.hosts.add(urlsplit(r.url).netloc))
        try:
            yield page
        finally:
            context.close()
