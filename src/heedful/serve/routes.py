"""The ASGI application: routes and the middleware around them."""

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

from heedful.serve.api import libretranslate, native_routes, openai, openapi, transcriptions, translate_file
from heedful.serve.http_errors import HttpError, JsonResponse, error_response
from heedful.serve.middleware import LimitsMiddleware, ResponseMiddleware
from heedful.serve.request_checks import run_until_disconnect
from heedful.serve.state import ServerState

NOT_FOUND = "this path does not exist; see /docs."
Handler = Callable[[ServerState, Request], Coroutine[Any, Any, Response]]


async def health(state: ServerState, request: Request) -> Response:
    """GET /health: the server process is running."""
    return JsonResponse({"status": "ok"})


async def ready(state: ServerState, request: Request) -> Response:
    """GET /ready: the models are loaded and the server is not draining."""
    status = "draining" if state.draining else "ready" if state.models.ready else "loading"
    return JsonResponse({"status": status}, 200 if status == "ready" else 503)


async def metrics(state: ServerState, request: Request) -> Response:
    """GET /metrics."""
    return Response(state.metrics.text(), media_type="text/plain; version=0.0.4")


async def index(state: ServerState, request: Request) -> Response:
    """GET /: the web page."""
    return HTMLResponse(_read_asset("index.html"), headers={"cache-control": "no-cache"})


async def asset(state: ServerState, request: Request) -> Response:
    """GET /page/…: scripts, styles and the icon of the web page."""
    name = request.path_params["name"]
    if name not in ASSETS:
        raise HttpError(404, NOT_FOUND)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(_read_asset(name), media_type=kind, headers={"cache-control": "no-cache"})


async def openapi_json(state: ServerState, request: Request) -> Response:
    """GET /openapi.json."""
    return JsonResponse(openapi.openapi_document())


async def docs(state: ServerState, request: Request) -> Response:
    """GET /docs."""
    return HTMLResponse(openapi.docs_page(str(request.base_url).rstrip("/")))


def _read_asset(name: str) -> bytes:
    return (files("heedful.serve") / "page" / name).read_bytes()


ASSETS = {path.name for path in (files("heedful.serve") / "page").iterdir()} - {"index.html"}
GET: dict[str, Handler] = {
    "/": index,
    "/page/{name}": asset,
    "/docs": docs,
    "/openapi.json": openapi_json,
    "/health": health,
    "/ready": ready,
    "/metrics": metrics,
    "/models": native_routes.models,
    "/languages": libretranslate.languages,
    "/frontend/settings": libretranslate.frontend_settings,
    "/download_file/{name}": translate_file.download_file,
    "/v1/models": openai.models,
    "/v1/models/{name}": openai.model,
}
POST: dict[str, Handler] = {
    "/translate": libretranslate.translate,
    "/detect": libretranslate.detect,
    "/translate_file": translate_file.translate_file,
    "/v1/completions": openai.completions,
    transcriptions.PATH: transcriptions.transcriptions,
    "/v1/translations": native_routes.translations,
    "/v1/summaries": native_routes.summaries,
    "/v1/fill": native_routes.fill_mask,
    "/inside": native_routes.explain,
}
ALLOWED = dict.fromkeys(GET, ("GET", "HEAD")) | dict.fromkeys(POST, ("POST",))


def build_app(state: ServerState) -> ASGIApp:
    """The application with its middleware."""
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
    """Calls the handler of a route and sends its response, or the response to its error."""

    def __init__(self, state: ServerState) -> None:
        self.state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._respond(scope, receive)
        except (Exception, asyncio.CancelledError) as error:
            response = error_response(self.state, scope, error)
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        handler, request = self._handler(scope), Request(scope, receive)
        if scope["method"] != "POST":
            return await handler(self.state, request)
        if self.state.models.full:
            raise self.state.models.unavailable_error()
        await request.body()  # cached by the request, so `receive` now waits for the disconnect
        response = handler(self.state, request)
        return await run_until_disconnect(response, receive, scope["deadline"], self.state.settings.limits.max_time)

    def _handler(self, scope: Scope) -> Handler:
        """The handler of the exact path, or of `parent/{name}`."""
        route, method = scope["path"], scope["method"]
        if route not in ALLOWED or "{" in route:
            parent, _, name = route.rpartition("/")
            route, scope["path_params"] = f"{parent}/{{name}}", {"name": name}
        allowed = ALLOWED.get(route)
        if allowed is None:
            raise HttpError(404, NOT_FOUND)
        scope["route"] = route
        if method in allowed:
            return (POST if method == "POST" else GET)[route]
        methods = ", ".join(allowed)
        raise HttpError(405, f"this path accepts {methods}, not {method}.", headers={"allow": methods})
