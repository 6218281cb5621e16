"""The server of the page: routes, and one event stream per page.

The stream has the state of the job once, then changes. A page that reconnects names the last event it has: it gets
what it missed, or the state again if that is too long ago.
"""

# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import json
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from argosy.charts import script, stylesheet
from argosy.dashboard import log_files, timelines
from argosy.dashboard.live_job import Change, LiveJob
from argosy.dashboard.security import STANDALONE_POLICY, Access, Guard
from argosy.engine.errors import ConfigError
from argosy.engine.metrics.job_directory import read_json

POLL_S = 1.0
IDLE_POLL_S = 2.0
"""Without pages."""
KEEP_ALIVE_S = 10.0
MAX_CHANGES = 120
MAX_STREAMS = 64
_JAVASCRIPT, _CSS = "text/javascript; charset=utf-8", "text/css; charset=utf-8"

logger = logging.getLogger(__name__)


@dataclass
class Changes:
    """The last changes of the job, for the streams of all pages."""

    live: LiveJob
    csrf: str
    epoch: str = field(default_factory=lambda: secrets.token_hex(4))
    """Tells the events of this server from those of one that ran before."""
    version: int = 0
    num_streams: int = 0
    _recent: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=MAX_CHANGES))
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def poll_forever(self) -> None:
        """Poll the job directory until it is cancelled; a failure is logged, and the next poll tries again."""
        reported = ""
        while True:
            try:
                await self._publish(await asyncio.to_thread(self.live.poll))
                reported = ""
            except Exception as e:
                if repr(e) != reported:  # once, not twice per second
                    reported = repr(e)
                    logger.exception("cannot read the job in %s", self.live.path)
            await self._sleep()

    async def _sleep(self) -> None:
        if self.num_streams or self.live.is_reading:
            await asyncio.sleep(0 if self.live.is_reading else POLL_S)
            return
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), IDLE_POLL_S)  # a page that opens wakes it

    async def _publish(self, change: Change) -> None:
        if not change:
            return
        async with self._changed:
            self.version += 1
            self._recent.append((self.version, self._event(change, self.version)))
            self._changed.notify_all()

    def _event(self, change: Change, version: int) -> str:
        if change.get("reset"):
            change = change | {"csrf": self.csrf}
        data = json.dumps(change, allow_nan=False, separators=(",", ":"))
        return f"id: {self.epoch}.{version}\ndata: {data}\n\n"

    async def stream(self, last_event_id: str) -> AsyncIterator[str]:
        """The events of a page."""
        self.num_streams += 1
        try:
            async with self._changed:
                self._changed.notify_all()
            yield "retry: 2000\n\n"
            version = self._known(last_event_id)
            while True:
                missed = [event for number, event in self._recent if version is not None and number > version]
                if version is None or len(missed) < self.version - version:
                    version = self.version  # before the snapshot: a change that is in both does no harm
                    yield self._event(await asyncio.to_thread(self.live.snapshot), version)
                    continue
                for event in missed:
                    yield event
                version = self.version if missed else version
                async with self._changed:
                    if self.version != version:
                        continue
                    try:
                        await asyncio.wait_for(self._changed.wait(), KEEP_ALIVE_S)
                        continue
                    except TimeoutError:
                        pass
                yield ": keep-alive\n\n"
        finally:
            self.num_streams -= 1

    def _known(self, last_event_id: str) -> int | None:
        epoch, _, number = last_event_id.partition(".")
        if epoch != self.epoch or not number.isdecimal() or len(number) > 12 or int(number) > self.version:
            return None
        return int(number)


def create_app(live: LiveJob, access: Access) -> Guard:
    """The application for a job directory."""
    changes = Changes(live, access.csrf)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        polling = asyncio.create_task(changes.poll_forever())
        yield
        polling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await polling

    routes = [
        Route("/", partial(_asset, "index.html")),
        Route("/login", partial(_login, access)),
        *(Route(f"/{name}", partial(_asset, name)) for name in ASSETS if name != "index.html"),
        Route("/events", partial(_events, changes)),
        Route("/profile", partial(_profile, live)),
        Route("/log", partial(_log, live)),
        Route("/search", partial(_search, live)),
        Route("/timeline", partial(_record_timeline, live), methods=["POST"]),
        Route("/timeline/{id}/merged.json", partial(_merged_timeline, live)),
        Route("/timeline/{id}/view", partial(_timeline_page, live)),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan), access)


ASSETS = {
    "index.html": "text/html; charset=utf-8",
    "dashboard.js": _JAVASCRIPT,
    "dashboard.css": _CSS,
    "charts.js": _JAVASCRIPT,
    "charts.css": _CSS,
}


async def _asset(name: str, request: Request) -> Response:
    match name:
        case "charts.js":
            text = script()
        case "charts.css":
            text = stylesheet()
        case _:
            text = (files("argosy.dashboard") / "page" / name).read_text()
    return Response(text, media_type=ASSETS[name])


async def _login(access: Access, request: Request) -> Response:
    if access.needs_login:
        if not access.is_token(request.query_params.get("token", "")):
            return _problem(401, "the token is wrong; open the URL that fleetrun printed")
        response = RedirectResponse("/", 303)
        response.set_cookie(access.cookie_name, access.session, httponly=True, samesite="strict", path="/")
        return response
    return RedirectResponse("/", 303)


async def _events(changes: Changes, request: Request) -> Response:
    if changes.num_streams >= MAX_STREAMS:
        return _problem(503, f"{MAX_STREAMS} pages are open already; close one")
    last = request.headers.get("last-event-id") or request.query_params.get("last", "")
    return StreamingResponse(
        changes.stream(last), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


async def _profile(live: LiveJob, request: Request) -> Response:
    rank = request.query_params.get("rank", "")
    if not rank.isdecimal() or len(rank) > 6:
        return _problem(400, f"rank {rank[:20]!r} is not a number")
    path = live.log_dir / "metrics" / f"rank{int(rank)}.profile.json"
    content = await asyncio.to_thread(read_json, path)
    if content is None:
        return _problem(404, f"rank {rank} has no profile yet: it is written after a sampled step")
    try:
        return JSONResponse(content)
    except ValueError:  # NaN
        return _problem(500, f"the profile of rank {rank} has a number that JSON cannot have")


async def _log(live: LiveJob, request: Request) -> Response:
    name = request.query_params.get("name", "")
    if not log_files.is_log_name(name):
        return _problem(404, f"{name[:60]!r} is not a log of a job")
    positions = {}
    for key in ("after", "before"):
        text = request.query_params.get(key)
        if text is not None and (not text.isdecimal() or len(text) > 18):
            return _problem(400, f"{key}={text[:20]!r} is not a position")
        positions[key] = None if text is None else int(text)
    try:
        return JSONResponse(await asyncio.to_thread(log_files.tail, live.log_dir / name, **positions))
    except OSError as e:
        return _problem(404, f"cannot read {name}: {e.strerror}")


async def _search(live: LiveJob, request: Request) -> Response:
    text, name = request.query_params.get("text", ""), request.query_params.get("name", "")
    errors_only = request.query_params.get("errors") == "1"
    if len(text) > 500 or "\n" in text or not (text or errors_only):
        return _problem(400, "search for a text of 1 to 500 characters, in one line")
    if name and not log_files.is_log_name(name):
        return _problem(404, f"{name[:60]!r} is not a log of a job")
    names = [name] if name else log_files.order(list(log_files.sizes(live.log_dir)), set())
    return JSONResponse(await asyncio.to_thread(log_files.search, live.log_dir, names, text, errors_only))


async def _record_timeline(live: LiveJob, request: Request) -> Response:
    try:
        return JSONResponse(await asyncio.to_thread(live.record_timeline))
    except ConfigError as e:
        return _problem(409, str(e))
    except OSError as e:
        return _problem(500, f"cannot write the request: {e}")


async def _merged_timeline(live: LiveJob, request: Request) -> Response:
    directory = timelines.find(live.log_dir, request.path_params["id"])
    if directory is None:
        return _problem(404, "no such timeline")
    try:
        path = await asyncio.to_thread(timelines.merged, directory)
    except (ConfigError, OSError) as e:
        return _problem(409, str(e))
    return FileResponse(path, media_type="application/json", filename=f"{directory.name}.json")


async def _timeline_page(live: LiveJob, request: Request) -> Response:
    directory = timelines.find(live.log_dir, request.path_params["id"])
    if directory is None:
        return _problem(404, "no such timeline")
    try:
        text = await asyncio.to_thread(timelines.html, directory)
    except (ConfigError, OSError) as e:
        return _problem(409, str(e))
    return HTMLResponse(text, headers={"Content-Security-Policy": STANDALONE_POLICY})


def _problem(status: int, text: str) -> JSONResponse:
    body: dict[str, Any] = {"error": text}
    return JSONResponse(body, status)
