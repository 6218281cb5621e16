"""Reports and comparisons in a browser: every chart is drawn, nothing is requested, and no text of a job runs."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.report import write, write_comparison
from tests.browser.chromium import Browser, Page
from tests.report.jobs_by_hand import Job, write_error
from tests.report.test_report import HOSTILE, failure

pytestmark = pytest.mark.engines
UNDRAWN = (
    "[...document.querySelectorAll('[data-chart]')].filter((e) => !e.querySelector('svg, canvas, table'))"
)


def show(page: Page, path: Path) -> None:
    """Open a page, and wait until everything that is visible is drawn."""
    page.open(path.as_uri())
    page.wait(f"document.body.dataset.drawn === 'true' && {UNDRAWN}.every((e) => e.closest('details'))")


def test_every_chart_of_a_job_with_servers_is_drawn(page: Page, tmp_path: Path) -> None:
    show(page, write(Job(ranks=4, slow=2, servers=2).write(tmp_path)))
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    page.wait(f"{UNDRAWN}.length === 0")
    assert "Rank 2 needs 1.35 times" in page.text("#stragglers")
    assert "all_reduce small" in page.text("#communication")
    assert page.hosts == {""}


def test_the_cause_is_what_is_seen_first_and_nothing_of_the_job_runs(page: Page, tmp_path: Path) -> None:
    path = Job(state="failed", failure=failure(f"MemoryError: {HOSTILE}", waiting=[HOSTILE])).write(tmp_path)
    write_error(path, 1, "MemoryError", HOSTILE)
    (path / "workerlog.1").write_bytes(HOSTILE.encode(errors="surrogatepass"))
    ran = []
    page.page.on("dialog", lambda dialog: ran.append(dialog.dismiss()))
    show(page, write(path))
    assert "Rank 1 failed: out of memory" in page.text("main > :first-child")
    assert "<script>alert(1)</script>" in page.text("#failure pre")
    assert page.evaluate("document.images.length") == 0
    assert not ran


def test_a_script_that_got_into_the_page_would_not_run(page: Page, tmp_path: Path) -> None:
    path = write(Job().write(tmp_path))
    attack = "<script>document.title = 'owned'</script><p onclick=\"document.title = 'owned'\" id=p>p</p>"
    path.write_text(path.read_text().replace("<main>", f"<main>{attack}"))
    page.open(path.as_uri())
    page.page.click("#p")
    assert page.evaluate("document.title").endswith("completed")
    assert any("Content Security Policy" in problem for problem in page.problems)
    page.problems.clear()


def test_a_comparison_draws_both_runs(page: Page, tmp_path: Path) -> None:
    a, b = Job().write(tmp_path / "a"), Job(exposed_ms=5.0).write(tmp_path / "b")
    show(page, write_comparison(a, b))
    assert page.evaluate("document.querySelectorAll('[data-chart=both-0] path.chart-series').length") == 2
    assert "−15 ms" in page.text("[data-chart=compare-phases]")


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_job_with_hardly_any_steps_is_drawn(page: Page, tmp_path: Path, seconds: int) -> None:
    show(page, write(Job(seconds=seconds, state="running").write(tmp_path)))


def test_dark_and_narrow_and_many_ranks(browser: Browser, tmp_path: Path) -> None:
    path = write(Job(ranks=64, slow=17).write(tmp_path))
    with browser.page(width=1024, theme="dark") as page:
        show(page, path)
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        assert not page.problems
