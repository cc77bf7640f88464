"""The routes, and what every answer has in common: headers, limits, numbers, a line in the log."""

from __future__ import annotations

import asyncio
import mimetypes
import random
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from importlib.resources import files

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from heedful.serve import libretranslate, logs, openai, openapi, own
from heedful.serve.admission import GoneError, check_size
from heedful.serve.problems import Json, ProblemError
from heedful.serve.state import State

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
SHOWN = [  # with what a browser shows
    (b"content-security-policy", POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
NO_SNIFFING = (b"x-content-type-options", b"nosniff")
NOTHING = "there is nothing at this address; see /docs."
Handler = Callable[[State, Request], Awaitable[Response]]


async def health(state: State, request: Request) -> Response:
    """GET /health: the process lives and answers."""
    return Json({"status": "ok"})


async def ready(state: State, request: Request) -> Response:
    """GET /ready: requests are welcome."""
    status = "draining" if state.draining else "ready" if state.engines.ready else "loading"
    return Json({"status": status}, 200 if status == "ready" else 503)


async def metrics(state: State, request: Request) -> Response:
    """GET /metrics."""
    return Response(state.metrics.text(), media_type="text/plain; version=0.0.4")


async def index(state: State, request: Request) -> Response:
    """GET /: the page."""
    return HTMLResponse(_file("index.html"), headers={"cache-control": "no-cache"})


async def asset(state: State, request: Request) -> Response:
    """GET /page/…: its parts."""
    name = request.path_params["name"]
    if name not in ASSETS:
        raise ProblemError(404, NOTHING)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(_file(name), media_type=kind, headers={"cache-control": "no-cache"})


async def document(state: State, request: Request) -> Response:
    """GET /openapi.json."""
    return Json(openapi.describe())


async def docs(state: State, request: Request) -> Response:
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
    "/models": own.models,
    "/languages": libretranslate.languages,
    "/frontend/settings": libretranslate.frontend_settings,
    "/v1/models": openai.models,
    "/v1/models/{name}": openai.model,
}
POST: dict[str, Handler] = {
    "/translate": libretranslate.translate,
    "/detect": libretranslate.detect,
    "/v1/completions": openai.completions,
    "/v1/translations": own.translations,
    "/v1/fill": own.fill,
    "/inside": own.inside,
}
METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS"})
ALLOWED = dict.fromkeys(GET, ("GET", "HEAD")) | dict.fromkeys(POST, ("POST",))


def build(state: State) -> ASGIApp:
    """The application."""
    app: ASGIApp = Routes(state)
    if state.settings.cors:
        methods, headers = ["GET", "POST"], ["authorization", "content-type"]
        origins = list(state.settings.cors)
        seen = ["retry-after"]
        app = CORSMiddleware(
            app, allow_origins=origins, allow_methods=methods, allow_headers=headers, expose_headers=seen
        )
    return Doorman(app, state)


class Refusals:
    """What a POST hears at once while no model can take more: it is not read, and the log sums up how often."""

    def __init__(self, state: State) -> None:
        self.state, self.count = state, 0

    def __call__(self, url: bytes) -> bytes | None:
        """The whole answer, if there is one."""
        path = url.decode("latin-1")
        if self.state.draining or self.state.settings.cors or path not in POST or not self.state.engines.full:
            return None
        self.state.metrics.answered(path, "POST", "503").inc()
        self.state.metrics.rejected("queue").inc()
        if not self.count:
            asyncio.get_running_loop().call_later(1, self._note)
        self.count += 1
        refused = self.state.engines.refusal()
        return _refusal(path, str(refused), refused.seconds)

    def _note(self) -> None:
        logs.say("refused", "warning", requests=self.count, seconds=1, reason="queue")
        self.count = 0


@lru_cache(1024)
def _refusal(path: str, message: str, seconds: int) -> bytes:
    """The bytes of an answer."""
    answer = ProblemError(503, message, retry=seconds).answer(path)
    head = b"".join(b"%b: %b\r\n" % each for each in [*answer.raw_headers, NO_SNIFFING])
    return b"HTTP/1.1 503 Service Unavailable\r\n%b\r\n%b" % (head, bytes(answer.body))


class Routes:
    """An answer to every request: what its route makes of it, or what is wrong."""

    def __init__(self, state: State) -> None:
        self.state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            handler = self._handler(scope)
            check_size(scope["exchange"])
            answer = await handler(self.state, Request(scope, receive))
        except ProblemError as problem:
            if problem.reason:
                self.state.metrics.rejected(problem.reason).inc()
                scope["rejected"] = problem.reason
            answer = problem.answer(scope["path"])
        except GoneError:
            answer = Response(status_code=499)  # nobody reads it; the log does
        except Exception as error:
            logs.say("a request failed", "error", error, request=scope["number"])
            said = f"something went wrong here; the log knows it as {scope['number']}."
            answer = ProblemError(500, said).answer(scope["path"])
        await answer(scope, receive, send)

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


class Doorman:
    """Sees every request come and every answer go."""

    def __init__(self, app: ASGIApp, state: State) -> None:
        self.app, self.state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began, exchange = time.perf_counter(), scope["exchange"]
        scope["number"] = number = f"{random.getrandbits(64):016x}"
        exchange.dress = self._dress
        try:
            await self.app(scope, receive, send)
        except Exception as error:
            logs.say("an answer failed", "error", error, request=number)
        finally:
            self._note(scope, number, exchange.status, time.perf_counter() - began)

    def _dress(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """What an answer has beside its own headers, which come first."""
        if headers.get(b"content-type", b"").startswith(b"text/html"):
            for name, value in SHOWN:
                headers.setdefault(name, value)
        headers.setdefault(*NO_SNIFFING)
        headers[b"x-request-id"] = scope["number"].encode()
        if self.state.draining:
            headers[b"connection"] = b"close"

    def _note(self, scope: Scope, number: str, status: int, seconds: float) -> None:
        route, client = scope.get("route", "other"), scope["client"]
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.state.metrics.answered(route, method, str(status)).inc()
        self.state.metrics.took(route).observe(seconds)
        reason = {"reason": scope["rejected"]} if "rejected" in scope else {}
        logs.say(
            "request", request=number, method=method, route=route, status=status,
            client=client[0] if client else None, ms=round(1000 * seconds, 1), **reason,
        )  # fmt: skip
