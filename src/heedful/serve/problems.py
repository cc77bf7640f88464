"""Answers in JSON: what was asked for, or what went wrong, in the form of the API that was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Scope

from heedful.errors import HeedfulError
from heedful.serve import logs
from heedful.serve.model_process import RefusedError

if TYPE_CHECKING:
    from heedful.serve.state import ServerState

TYPES = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 503: "overloaded_error"}


class Json(Response):
    """An answer in JSON."""

    background = None

    def __init__(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status_code, self.body = status, to_json(content, inf_nan_mode="null")
        self.raw_headers = [(b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json")]
        if headers:
            self.raw_headers += [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]


class ProblemError(Exception):
    """A request that gets no answer but this one; `reason` is counted if we could have taken it at another time."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry: int | None = None,
        reason: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.reason = status, message, param, code, reason
        self.headers = (headers or {}) | ({"retry-after": str(retry)} if retry is not None else {})

    def answer(self, path: str) -> Response:
        """Under /v1 as OpenAI says it, elsewhere as LibreTranslate does."""
        return Json(body(path, self), self.status, self.headers)


def body(path: str, problem: ProblemError) -> dict[str, Any]:
    if not path.startswith("/v1/"):
        return {"error": problem.message}
    kind = TYPES.get(problem.status, "server_error" if problem.status >= 500 else "invalid_request_error")
    return {"error": {"message": problem.message, "type": kind, "param": problem.param, "code": problem.code}}


class GoneError(Exception):
    """The client closed the connection before it had its response."""


def as_problem(error: BaseException) -> ProblemError | None:
    """Errors that have a response of their own: those of a request, of a model, and of a model that takes no more."""
    if isinstance(error, RefusedError):
        return ProblemError(503, str(error), retry=error.seconds, reason=error.reason)
    if isinstance(error, HeedfulError):
        return ProblemError(422, str(error))
    return error if isinstance(error, ProblemError) else None


def error_response(state: ServerState, scope: Scope, error: BaseException) -> Response:
    """The response to a request that ended with an error."""
    if isinstance(error, GoneError):
        return Response(status_code=499)  # it is not sent, but logged
    problem = as_problem(error)
    if problem is None and isinstance(error, asyncio.CancelledError):  # the time for draining is over
        problem = ProblemError(503, "the server ended before this was done.", retry=5, headers={"connection": "close"})
    if problem is None:
        logs.say("a request failed", "error", error, request=scope["request_id"])
        problem = ProblemError(500, f"something went wrong here; the log knows it as {scope['request_id']}.")
    if problem.reason:
        state.metrics.rejected(problem.reason).inc()
        scope["rejected"] = problem.reason
    return problem.answer(scope["path"])
