"""Server-sent events: a response that is sent piece by piece, and whose last event may be an error."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

from starlette.responses import StreamingResponse

from heedful.serve.http_errors import HttpError, as_http_error, error_body


def event_response(events: AsyncGenerator[dict[str, Any] | str, None], **error_fields: str) -> StreamingResponse:
    """Each object, or text, as an event. `error_fields` are added to an error in OpenAI's form."""

    async def send() -> AsyncGenerator[str, None]:
        try:
            async for event in events:
                yield f"data: {event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)}\n\n"
        except Exception as error:  # the response has started, so the error becomes its last event
            yield f"data: {json.dumps(error_fields | error_body('/v1/', _http_error(error)))}\n\n"
        finally:
            await events.aclose()

    return StreamingResponse(send(), media_type="text/event-stream", headers={"cache-control": "no-store"})


def _http_error(error: Exception) -> HttpError:
    if isinstance(error, TimeoutError):
        return HttpError(503, "the request took too long and was canceled.")
    return as_http_error(error) or HttpError(500, "internal server error.")
