"""The dashboard of real jobs in a browser: every panel has data, failures show, the page outlives job and server."""

# SPDX-License-Identifier: Apache-2.0
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.browser.chromium import Browser, Page
from tests.browser.fleet_job import COLLECTIVE, SERVERS, FleetJob, fleet_job
from tests.dashboard.generated_job import GeneratedJob
from tests.dashboard.served import running, served

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]
WAIT_MS = 120_000
"""For data of a job that has just started, on a machine that may be busy."""


@pytest.fixture(scope="module")
def collective(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetJob]:
    with fleet_job(tmp_path_factory.mktemp("collective"), "train_collective.py", *COLLECTIVE) as job:
        yield job


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GeneratedJob, str]]:
    """A job that does not change unless a test lets it, and its page."""
    with GeneratedJob(tmp_path_factory.mktemp("generated"), ranks=4) as job:
        job.advance(30)
        for number in range(300):
            job.log(0, f"step {number}")
        job.log(2, "ValueError: <b>bad</b> batch")
        with served(job.log_dir) as url:
            yield job, url


def wait_for(page: Page, selector: str, text: str = "") -> None:
    """Wait until an element that matches has this text in it."""
    is_shown = "([selector, text]) => [...document.querySelectorAll(selector)].some(e => e.textContent.includes(text))"
    page.wait(is_shown, [selector, text], WAIT_MS)


# --- real jobs --------------------------------------------------------------------------------------------


def test_every_panel_shows_a_real_job_of_two_ranks(page: Page, collective: FleetJob) -> None:
    page.open(collective.url)
    wait_for(page, "#state", "running")
    wait_for(page, "#connection", "live")
    for title in ("loss", "lr", "examples/s"):
        wait_for(page, "#values-charts h3", title)
    page.wait("document.querySelectorAll('#values-charts path.chart-series').length >= 3", timeout_ms=WAIT_MS)
    page.wait(
        "document.querySelector('#steps-chart canvas')?.ariaLabel.includes('2 rows')", timeout_ms=WAIT_MS
    )
    wait_for(page, "#phases-chart .chart-legend", "backward")
    page.wait("document.querySelectorAll('#ranks-table tbody tr').length === 2", timeout_ms=WAIT_MS)
    wait_for(page, "#links-table td", "dp")
    wait_for(page, "#buckets-table td", "all_reduce")
    wait_for(page, "#memory-breakdown .chart-legend", "activations")
    wait_for(page, "#memory-layers td", "train_collective.py:")
    wait_for(page, "#program-tree li", "backward")
    wait_for(page, "#log-lines div", "loss")
    assert page.evaluate("document.getElementById('servers').hidden")
    assert page.hosts == {urlsplit(collective.url).netloc}


def test_the_program_unfolds_to_its_nodes(page: Page, collective: FleetJob) -> None:
    page.open(collective.url)
    wait_for(page, "#program-tree li", "forward")
    page.page.focus("#program-tree li")
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowDown"):
        page.page.keyboard.press(key)
    focused = page.evaluate("document.activeElement.getAttribute('aria-level')")
    assert focused == "3"


def test_the_button_records_a_timeline_and_opens_it(page: Page, collective: FleetJob) -> None:
    page.open(collective.url)
    page.wait("!document.getElementById('record').disabled", timeout_ms=WAIT_MS)
    page.wait("dashboard.state.overview.step > 20", timeout_ms=WAIT_MS)
    page.page.click("#record")
    wait_for(page, "#timeline a", "Download for Perfetto")
    assert "2 of 2 ranks" in page.text("#timeline")
    with page.page.expect_download() as download:
        page.page.click("#timeline a >> text=Perfetto")
    merged = json.loads(Path(download.value.path()).read_bytes())
    steps = {event["pid"] for event in merged["traceEvents"]}
    assert steps >= {0, 1}
    with page.page.expect_popup() as popup:
        page.page.click("#timeline a >> text=Open")
    popup.value.wait_for_selector("canvas, svg")


def test_every_panel_shows_a_real_job_with_parameter_servers(page: Page, tmp_path: Path) -> None:
    with fleet_job(tmp_path / "job", "train_servers.py", *SERVERS) as job:
        page.open(job.url)
        wait_for(page, "#values-charts h3", "loss")
        page.wait("document.querySelectorAll('#ranks-table tbody tr').length === 4", timeout_ms=WAIT_MS)
        page.wait(
            "document.querySelector('#steps-chart canvas')?.ariaLabel.includes('2 rows')", timeout_ms=WAIT_MS
        )
        wait_for(page, "#phases-chart .chart-legend", "forward")
        wait_for(page, "#tables-table td", "clicks")
        wait_for(page, "#servers-table td", "server 1")
        wait_for(page, "#requests-table td", "push")
        wait_for(page, "#program-tree li", "backward")
        wait_for(page, "#memory-layers td", "train_servers.py:")
        page.page.select_option("#log-name", "serverlog.0")
        wait_for(page, "#log-note", "serverlog.0")


def test_a_killed_rank_appears_within_five_seconds(browser: Browser, tmp_path: Path) -> None:
    with fleet_job(tmp_path / "job", "train_collective.py", *COLLECTIVE) as job, browser.page() as page:
        page.open(job.url)
        page.wait("dashboard.state.overview.step > 5", timeout_ms=WAIT_MS)
        killed = job.kill(1)
        wait_for(page, "#failure h2", "rank 1")
        assert time.time() - killed < 5
        job.process.wait(120)
        wait_for(page, "#connection", "disconnected, last data of")
        assert "rank 1" in page.text("#failure h2")
        assert page.evaluate("document.querySelectorAll('#values-charts path.chart-series').length") >= 1
        assert not [p for p in page.problems if "ERR_" not in p], page.problems  # only refused connections


def test_the_end_of_a_job_is_shown(page: Page, tmp_path: Path) -> None:
    with fleet_job(tmp_path / "job", "train_collective.py", *COLLECTIVE, steps=30) as job:
        assert job.process.wait(240) == 0
        with served(job.log_dir) as url:
            page.open(url)
            wait_for(page, "#state", "completed")
            page.wait("document.getElementById('record').disabled")
            wait_for(page, "#tiles dd", "0 of 2")
            wait_for(page, "#log-lines div", "step 20: loss")


def test_panels_of_parameter_servers_sum_up_tables_over_the_servers(page: Page, tmp_path: Path) -> None:
    with GeneratedJob(tmp_path, ranks=2, servers=2) as job, served(tmp_path) as url:
        job.advance(10)
        page.open(url)
        wait_for(page, "#tables-table tr", "embedding_user219,2005.22 MB122,000120,20031 %95 %")
        wait_for(page, "#requests-table tr", "push_denseserver 1240.4 ms0.9 ms2.4 ms384 kB/s")
        wait_for(page, "#links-table tr", "rank 1 → servers")
        wait_for(page, "#servers-table tr", "server 0host-a2")


def test_a_failure_comes_first_with_its_log(page: Page, tmp_path: Path) -> None:
    with GeneratedJob(tmp_path, ranks=3) as job, served(tmp_path) as url:
        job.advance(2)
        page.open(url)
        wait_for(page, "#state", "running")
        job.fail(1)
        wait_for(page, "#failure h2", "rank 1 failed: SIGKILL")
        wait_for(page, "#failure p", "rank 0: all_reduce_3 of step 120")
        wait_for(page, "#ranks-table td", "failed (SIGKILL)")
        wait_for(page, "#log-note", "workererror.1")
        wait_for(page, "#events-table td", "failure")


# --- the page ---------------------------------------------------------------------------------------------


def test_it_reconnects_to_a_server_that_comes_back(browser: Browser, tmp_path: Path) -> None:
    with GeneratedJob(tmp_path) as job, browser.page() as page:
        job.advance(5)
        with running(tmp_path) as (_, url):
            page.open(url)
            page.wait("dashboard.state.overview.step === 120")
        wait_for(page, "#connection", "disconnected")
        job.advance(5)
        with served(tmp_path, f"--port={urlsplit(url).port}"):
            page.wait("dashboard.state.overview.step === 240")
            wait_for(page, "#connection", "live")


def test_a_hidden_page_closes_its_stream(page: Page, generated: tuple[GeneratedJob, str]) -> None:
    _, url = generated
    page.open(url)
    wait_for(page, "#connection", "live")
    hide = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); "
    hide += "document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, True)
    wait_for(page, "#connection", "paused")
    page.evaluate(hide, False)
    wait_for(page, "#connection", "live")


def test_logs_are_searched_with_errors_first_and_followed(
    page: Page, generated: tuple[GeneratedJob, str]
) -> None:
    job, url = generated
    page.open(url)
    wait_for(page, "#log-lines div", "step 299")
    page.page.keyboard.press("/")
    page.page.keyboard.type("batch")
    page.page.keyboard.press("Enter")
    wait_for(page, "#log-note", "1 lines with")
    assert page.text("#log-lines .bad") == "workerlog.2:2ValueError: <b>bad</b> batch"
    page.page.click("#search-clear")
    wait_for(page, "#log-lines div", "step 299")
    job.log(0, "the newest line")
    wait_for(page, "#log-lines div:last-child", "the newest line")
    page.page.click("#errors")
    wait_for(page, "#log-note", "1 errors in all logs")


def test_changes_arrive_without_a_reload(page: Page, generated: tuple[GeneratedJob, str]) -> None:
    job, url = generated
    page.open(url)
    page.wait(f"dashboard.state.overview.step === {job.step}")
    job.event("straggler", "rank 3 is 18 % slower", role="worker", rank=3)
    job.advance(2)
    page.wait(f"dashboard.state.overview.step === {job.step}")
    wait_for(page, "#events-table td", "rank 3 is 18 % slower")
    length = page.evaluate("dashboard.state.series.loss.x.length")
    assert page.evaluate("new Set(dashboard.state.series.loss.x).size") == length


def test_it_is_used_by_keyboard_alone(page: Page, generated: tuple[GeneratedJob, str]) -> None:
    page.open(generated[1])
    wait_for(page, "#connection", "live")
    page.page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the charts"
    page.page.keyboard.press("2")
    assert page.evaluate("document.activeElement.id") == "steps"
    page.page.keyboard.press("?")
    page.wait("document.getElementById('shortcuts').open")
    page.page.keyboard.press("Escape")
    before = page.evaluate("charts.theme.current")
    page.page.keyboard.press("t")
    assert page.evaluate("charts.theme.current") != before


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_are_readable_in_both_themes_at_1024_pixels(
    browser: Browser, generated: tuple[GeneratedJob, str], theme: str
) -> None:
    """Contrast of at least 4.5 between texts and their background, and nothing wider than the page."""
    with browser.page(1024, 768, theme=theme) as page:
        page.open(generated[1])
        wait_for(page, "#program-tree li", "forward")
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert page.evaluate("document.documentElement.scrollWidth") <= 1024
        colors = page.evaluate(
            """() => [...document.querySelectorAll('h2, h3, dt, dd, label, td, th button, button, .badge, .quiet')]
            .filter(e => e.offsetWidth && e.textContent.trim() && !e.disabled).map(e => {
                let back = e;
                while (back && getComputedStyle(back).backgroundColor === 'rgba(0, 0, 0, 0)') back = back.parentElement;
                const style = getComputedStyle(back || document.body);
                return [e.textContent.slice(0, 30), getComputedStyle(e).color, style.backgroundColor];
            })"""
        )
        poor = [entry for entry in colors if contrast(entry[1], entry[2]) < 4.5]
        assert len(colors) > 50
        assert not poor
        assert not page.problems


def contrast(first: str, second: str) -> float:
    """The contrast of two colours, as WCAG defines it."""
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(color: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
