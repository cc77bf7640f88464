"""The routes, and what every answer has in common: headers, limits, numbers, a line in the log."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import time
import uuid
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serve import libretranslate, openai, openapi, own
from heedful.serve.admission import GoneError
from heedful.serve.problems import ProblemError, answer
from heedful.serve.state import State

log = logging.getLogger("heedful.serve")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
PHRASES = {404: "there is nothing at this address; see /docs", 405: "this address takes {allow}, not {method}"}
WRITING = 60.0  # seconds that a client may take to read one piece of an answer


async def health(request: Request) -> Response:
    """GET /health: the process lives and answers."""
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> Response:
    """GET /ready: requests are welcome."""
    state: State = request.app.state.server
    status = "draining" if state.draining else "ready" if state.engines.ready else "loading"
    return JSONResponse({"status": status}, 200 if status == "ready" else 503)


async def metrics(request: Request) -> Response:
    """GET /metrics."""
    return Response(request.app.state.server.metrics.text(), media_type="text/plain; version=0.0.4")


async def index(request: Request) -> Response:
    """GET /: the page."""
    return HTMLResponse(_file("index.html"), headers={"cache-control": "no-cache"})


async def asset(request: Request) -> Response:
    """GET /page/…: its parts."""
    name = request.path_params["name"]
    if name not in ASSETS:
        raise HTTPException(404)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(_file(name), media_type=kind, headers={"cache-control": "no-cache"})


async def document(request: Request) -> Response:
    """GET /openapi.json."""
    return JSONResponse(openapi.describe())


async def docs(request: Request) -> Response:
    """GET /docs."""
    return HTMLResponse(openapi.page())


def _file(name: str) -> bytes:
    return (files("heedful.serve") / "page" / name).read_bytes()


ASSETS = {each.name for each in (files("heedful.serve") / "page").iterdir()} - {"index.html"}
ROUTES = [
    Route("/", index),
    Route("/page/{name}", asset),
    Route("/docs", docs),
    Route("/openapi.json", document),
    Route("/health", health),
    Route("/ready", ready),
    Route("/metrics", metrics),
    Route("/models", own.models),
    Route("/translate", libretranslate.translate, methods=["POST"]),
    Route("/detect", libretranslate.detect, methods=["POST"]),
    Route("/languages", libretranslate.languages),
    Route("/frontend/settings", libretranslate.frontend_settings),
    Route("/v1/completions", openai.completions, methods=["POST"]),
    Route("/v1/models", openai.models),
    Route("/v1/models/{name}", openai.model),
    Route("/v1/translations", own.translations, methods=["POST"]),
    Route("/v1/fill", own.fill, methods=["POST"]),
    Route("/inside", own.inside, methods=["POST"]),
]
KNOWN = {route.path for route in ROUTES}


def build(state: State) -> ASGIApp:
    """The application."""
    middleware = []
    if state.settings.cors:
        methods, headers = ["GET", "POST"], ["authorization", "content-type"]
        origins = list(state.settings.cors)
        middleware = [Middleware(CORSMiddleware, allow_origins=origins, allow_methods=methods, allow_headers=headers)]
    handlers: Any = {ProblemError: _problem, HTTPException: _http, GoneError: _gone, Exception: _failed}
    app = Starlette(routes=ROUTES, middleware=middleware, exception_handlers=handlers)
    app.state.server = state
    return Doorman(app, state)


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    if error.reason:
        request.app.state.server.metrics.rejections.labels(error.reason).inc()
        request.scope["rejected"] = error.reason
    return answer(request.url.path, error)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    said = PHRASES.get(error.status_code, "the request cannot be answered")
    message = said.format(allow=headers.get("allow", "another method"), method=request.method) + "."
    return answer(request.url.path, ProblemError(error.status_code, message, headers=headers))


async def _failed(request: Request, error: Exception) -> Response:
    """Starlette raises the error again behind this answer: the log gets it from there."""
    number = request.scope["number"]
    return answer(request.url.path, ProblemError(500, f"something went wrong here; the log knows it as {number}."))


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it; the log does


class Doorman:
    """Sees every request come and every answer go."""

    def __init__(self, app: ASGIApp, state: State) -> None:
        self.app, self.state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began, number, seen = time.perf_counter(), uuid.uuid4().hex[:16], {"status": 0}
        scope["number"] = number

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                self._dress(message, number)
            async with asyncio.timeout(WRITING):
                await send(message)

        try:
            limited = self._limited(scope, receive)
            await self.app(scope, limited, reply)
        except ProblemError as problem:  # of the body, wherever it was read
            if not seen["status"]:
                await answer(scope["path"], problem)(scope, receive, reply)
        except Exception as error:
            log.error("a request failed", exc_info=error, extra={"request": number})
        finally:
            self._note(scope, number, seen["status"], time.perf_counter() - began)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """The body, as long as it is not too large."""
        most, taken = self.state.settings.limits.body, 0
        too_large = ProblemError(
            413, f"the body has more than {most:,} bytes.", reason="body", headers={"connection": "close"}
        )
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > most:
            self.state.metrics.rejections.labels("body").inc()
            raise too_large

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                raise too_large
            return message

        return limited

    def _dress(self, message: Message, number: str) -> None:
        given = {name.lower() for name, _ in message["headers"]}
        own = HEADERS | {"x-request-id": number} | ({"connection": "close"} if self.state.draining else {})
        message["headers"] = [
            *message["headers"],
            *((name.encode(), value.encode()) for name, value in own.items() if name.encode() not in given),
        ]

    def _note(self, scope: Scope, number: str, status: int, seconds: float) -> None:
        route = scope["path"] if scope["path"] in KNOWN else "other"
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
        self.state.metrics.requests.labels(route, method, str(status)).inc()
        self.state.metrics.seconds.labels(route).observe(seconds)
        client = scope["client"][0] if scope.get("client") else None
        fields = {"request": number, "method": method, "route": route, "status": status, "client": client}
        fields |= {"ms": round(1000 * seconds, 1)} | ({"reason": scope["rejected"]} if "rejected" in scope else {})
        log.info("request", extra=fields)
