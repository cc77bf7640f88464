"""Checks of a request: its body, its API key, its texts, and its time limit."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.types import Receive

from heedful.config.requirements import requirement
from heedful.errors import quote
from heedful.serve.http_errors import ClientDisconnectedError, HttpError
from heedful.serve.server_settings import Limits

T = TypeVar("T")
B = TypeVar("B", bound=BaseModel)
UNION_MEMBER = re.compile(r"str$|list\[|function-|constrained")  # in pydantic's place of an error, not of the request
JSON = "application/json"
MAX_FIELDS, MAX_NAME = 32, 80  # of a form with a file; characters of the file's name
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def _refuse_nan(name: str) -> None:
    raise ValueError(name)


DECODER = json.JSONDecoder(parse_constant=_refuse_nan)


def check_key(keys: Collection[str], key: str | None) -> None:
    """Raise a 401 unless the key is valid; compares with all keys in constant time."""
    if not keys:
        return
    digest = hashlib.sha256((key or "").encode("utf-8", "surrogatepass")).digest()
    matches = [hmac.compare_digest(digest, hashlib.sha256(valid.encode()).digest()) for valid in keys]
    if not any(matches):
        problem = "this API key is not known" if key else "an API key is required"
        raise HttpError(
            401,
            f"{problem}; send one as `Authorization: Bearer KEY` or as api_key.",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )


def bearer_token(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


async def parse_request(request: Request, schema: type[B], limits: Limits, keys: Collection[str] = ()) -> B:
    """Parse and validate the body of a request, JSON or a form; the API key may be in a header or in the body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON and kind not in FORMS:
        raise HttpError(415, f"the content type is {kind or 'missing'}; send application/json or a form.")
    body = await request.body()
    values = _parse_json(body) if kind == JSON else await _parse_form(request, body, limits)
    body_key = values.get("api_key")
    check_key(keys, bearer_token(request) or (body_key if isinstance(body_key, str) else None))
    return validate(schema, values, strict=kind == JSON)


def validate(schema: type[B], values: dict[str, Any], strict: bool) -> B:
    """The values of a request as its schema; those of a form are converted from text."""
    try:
        return schema.model_validate(values, strict=strict)
    except ValidationError as error:
        raise _validation_error(error, schema) from None


def _parse_json(data: bytes) -> dict[str, Any]:
    try:
        values = DECODER.decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise HttpError(400, f"the body is not UTF-8: byte {error.start + 1} is invalid.") from None
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError) else "it is nested too deeply or contains NaN"
        raise HttpError(400, f"the body is not JSON: {reason}.") from None
    if not isinstance(values, dict):
        raise HttpError(422, "the body is JSON, but not an object; send {…}.")
    return values


async def _parse_form(request: Request, body: bytes, limits: Limits) -> dict[str, Any]:
    """Fields by name; a list for a field that occurs several times."""
    max_fields = limits.max_texts + 32
    try:
        if request.headers.get("content-type", "").lower().startswith(FORMS[0]):
            pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=max_fields)
        else:
            form = await request.form(max_files=0, max_fields=max_fields, max_part_size=limits.max_body)
            pairs = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    except UnicodeDecodeError:
        raise HttpError(400, "the form is not UTF-8.") from None
    except (ValueError, HTTPException, MultiPartException):
        raise HttpError(400, f"the form cannot be read; send at most {max_fields} fields, all of them text.") from None
    values: dict[str, Any] = {}
    for name, value in pairs:
        previous = values.get(name, [])
        values[name] = [*([previous] if isinstance(previous, str) else previous), value] if name in values else value
    return values


async def read_upload(request: Request, limits: Limits) -> tuple[dict[str, Any], bytes | None, str]:
    """The fields of a multipart form, the content of its file, and the name of that file; `name[]` is a list."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORMS[1]:
        raise HttpError(415, f"the content type is {kind or 'missing'}; send a multipart form with a file.")
    try:
        form = await request.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=limits.max_body)
        values: dict[str, Any] = {}
        content, name = None, "the file"
        for field, value in form.multi_items():
            if isinstance(value, UploadFile) and field == "file":
                content, name = await value.read(), (value.filename or name)[-MAX_NAME:]
            elif isinstance(value, str) and field.endswith("[]"):
                values.setdefault(field, []).append(value)
            elif isinstance(value, str):
                values[field] = value
        await form.close()
    except (HTTPException, MultiPartException, ValueError, UnicodeDecodeError):
        raise HttpError(400, f"the form cannot be read; send one file and at most {MAX_FIELDS} fields.") from None
    return values, content, name


def _validation_error(error: ValidationError, schema: type[BaseModel]) -> HttpError:
    """The first validation error, in one sentence."""
    first = error.errors(include_url=False, include_input=False)[0]
    names = [part for part in map(str, first["loc"]) if not UNION_MEMBER.match(part)]
    field = ".".join(names)
    message = f"{field}: {requirement(first)}." if field else f"{first['msg'].removeprefix('Value error, ')}."
    if first["type"] == "extra_forbidden":
        message = f"{quote(field)} is not a field of this request; it has {', '.join(schema.model_fields)}."
    return HttpError(422, message, param=names[0] if names else None)


def check_texts(texts: Sequence[str], limits: Limits, name: str) -> None:
    """Limit the number of texts and their total length, and refuse lone surrogates."""
    if len(texts) > limits.max_texts:
        raise HttpError(413, f"{name} has {len(texts)} texts; send {limits.max_texts} at most.", param=name)
    length = sum(map(len, texts))
    if length > limits.max_characters:
        raise HttpError(413, f"{name} has {length:,} characters; send {limits.max_characters:,} at most.", param=name)
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise HttpError(400, f"{name} contains a lone surrogate, which is not valid text.", param=name) from None


async def run_until_disconnect(work: Coroutine[Any, Any, T], receive: Receive, deadline: float, seconds: float) -> T:
    """The result of `work`, which is cancelled when the client closes the connection and at the deadline."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(_wait_for_disconnect(receive))]
    try:
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return cast(T, tasks[0].result())
        if tasks[1].done():
            raise ClientDisconnectedError
        raise HttpError(503, f"the request took more than {seconds:g} s and was canceled.", retry=5, reason="time")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)  # the work releases its place in the queue before the response is sent


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
