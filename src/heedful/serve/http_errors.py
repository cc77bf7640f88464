"""JSON responses and HTTP errors: under /v1 in OpenAI's form, elsewhere in LibreTranslate's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Scope

from heedful.errors import HeedfulError
from heedful.serve import logs
from heedful.serve.model_process import UnavailableError

if TYPE_CHECKING:
    from heedful.serve.state import ServerState

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class JsonResponse(Response):
    """A JSON response, serialized by pydantic."""

    background = None

    def __init__(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status_code, self.body = status, to_json(content, inf_nan_mode="null")
        self.raw_headers = [(b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json")]
        if headers:
            self.raw_headers += [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]


class HttpError(Exception):
    """An error with its HTTP status; `reason` is counted as a rejection if the request may succeed later."""

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

    def response(self, path: str) -> Response:
        return JsonResponse(error_body(path, self), self.status, self.headers)


def error_body(path: str, error: HttpError) -> dict[str, Any]:
    """The JSON body: under /v1 in OpenAI's form, elsewhere in LibreTranslate's."""
    if not path.startswith("/v1/"):
        return {"error": error.message}
    kind = ERROR_TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


class ClientDisconnectedError(Exception):
    """The client closed the connection before the response was sent."""


def as_http_error(error: BaseException) -> HttpError | None:
    """The HTTP error for an invalid request or an unavailable model; None for an internal error."""
    if isinstance(error, UnavailableError):
        return HttpError(503, str(error), retry=error.seconds, reason=error.reason)
    if isinstance(error, HeedfulError):
        return HttpError(422, str(error))
    return error if isinstance(error, HttpError) else None


def error_response(state: ServerState, scope: Scope, error: BaseException) -> Response:
    """The response to a request that ended with an error."""
    if isinstance(error, ClientDisconnectedError):
        return Response(status_code=499)  # not sent, but logged
    http_error = as_http_error(error)
    if http_error is None and isinstance(error, asyncio.CancelledError):  # the time for draining is over
        message = "the server stopped before the request was finished."
        http_error = HttpError(503, message, retry=5, headers={"connection": "close"})
    if http_error is None:
        logs.log_event("request failed", "error", error, request=scope["request_id"])
        http_error = HttpError(500, f"internal server error; the log has details under {scope['request_id']}.")
    if http_error.reason:
        state.metrics.count_rejection(http_error.reason).inc()
        scope["rejected"] = http_error.reason
    return http_error.response(scope["path"])
