"""The application: its routes, and the middleware around them."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import Callable, Coroutine
from importlib.resources import files
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from heedful.serve.admission import unless_gone
from heedful.serve.api import libretranslate, native_routes, openai, openapi
from heedful.serve.middleware import LimitsMiddleware, ResponseMiddleware
from heedful.serve.problems import Json, ProblemError, error_response
from heedful.serve.state import ServerState

NOTHING = "there is nothing at this address; see /docs."
Handler = Callable[[ServerState, Request], Coroutine[Any, Any, Response]]


async def health(state: ServerState, request: Request) -> Response:
    """GET /health: the process lives and answers."""
    return Json({"status": "ok"})


async def ready(state: ServerState, request: Request) -> Response:
    """GET /ready: requests are welcome."""
    status = "draining" if state.draining else "ready" if state.engines.ready else "loading"
    return Json({"status": status}, 200 if status == "ready" else 503)


async def metrics(state: ServerState, request: Request) -> Response:
    """GET /metrics."""
    return Response(state.metrics.text(), media_type="text/plain; version=0.0.4")


async def index(state: ServerState, request: Request) -> Response:
    """GET /: the page."""
    return HTMLResponse(_file("index.html"), headers={"cache-control": "no-cache"})


async def asset(state: ServerState, request: Request) -> Response:
    """GET /page/…: its parts."""
    name = request.path_params["name"]
    if name not in ASSETS:
        raise ProblemError(404, NOTHING)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(_file(name), media_type=kind, headers={"cache-control": "no-cache"})


async def document(state: ServerState, request: Request) -> Response:
    """GET /openapi.json."""
    return Json(openapi.describe())


async def docs(state: ServerState, request: Request) -> Response:
    """GET /docs."""
    return HTMLResponse(openapi.page())


def _file(name: str) -> bytes:
    return (files("heedful.serve") / "page" / name).read_bytes()


ASSETS = {each.name for each in (files("heedful.serve") / "page").iterdir()} - {"index.html"}
GET: dict[str, Handler] = {
    "/": index,
    "/page/{name}": asset,
    "/docs": docs,
    "/openapi.json": document,
    "/health": health,
    "/ready": ready,
    "/metrics": metrics,
    "/models": native_routes.models,
    "/languages": libretranslate.languages,
    "/frontend/settings": libretranslate.frontend_settings,
    "/v1/models": openai.models,
    "/v1/models/{name}": openai.model,
}
POST: dict[str, Handler] = {
    "/translate": libretranslate.translate,
    "/detect": libretranslate.detect,
    "/v1/completions": openai.completions,
    "/v1/translations": native_routes.translations,
    "/v1/fill": native_routes.fill,
    "/inside": native_routes.inside,
}
ALLOWED = dict.fromkeys(GET, ("GET", "HEAD")) | dict.fromkeys(POST, ("POST",))


def build(state: ServerState) -> ASGIApp:
    """The application."""
    app: ASGIApp = LimitsMiddleware(Routes(state), state)
    if state.settings.cors:
        app = CORSMiddleware(
            app,
            allow_origins=list(state.settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
            expose_headers=["retry-after"],
        )
    return ResponseMiddleware(app, state)


class Routes:
    """Calls the handler of the route and sends its response, or that of the error it ended with."""

    def __init__(self, state: ServerState) -> None:
        self.state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except (Exception, asyncio.CancelledError) as error:
            answer = error_response(self.state, scope, error)
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        handler, request = self._handler(scope), Request(scope, receive)
        if scope["method"] != "POST":
            return await handler(self.state, request)
        if self.state.engines.full:
            raise self.state.engines.refusal()
        await request.body()  # which is kept there: from now on `receive` waits for the end of the connection
        work = handler(self.state, request)
        return await unless_gone(work, receive, scope["deadline"], self.state.settings.limits.seconds)

    def _handler(self, scope: Scope) -> Handler:
        """Of the path itself, or of the names under a path."""
        route, method = scope["path"], scope["method"]
        if route not in ALLOWED or "{" in route:
            above, _, name = route.rpartition("/")
            route, scope["path_params"] = f"{above}/{{name}}", {"name": name}
        allowed = ALLOWED.get(route)
        if allowed is None:
            raise ProblemError(404, NOTHING)
        scope["route"] = route
        if method in allowed:
            return (POST if method == "POST" else GET)[route]
        takes = ", ".join(allowed)
        raise ProblemError(405, f"this address takes {takes}, not {method}.", headers={"allow": takes})
