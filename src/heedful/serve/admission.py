"""Checks of a request: its body, its API key, its texts, and the time that its response may take."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.types import Receive

from heedful.serve.problems import GoneError, ProblemError
from heedful.serve.server_settings import Limits

T = TypeVar("T")
B = TypeVar("B", bound=BaseModel)
JSON = "application/json"
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def _no_number(name: str) -> None:
    raise ValueError(name)


DECODER = json.JSONDecoder(parse_constant=_no_number)


def check_key(keys: Collection[str], given: str | None) -> None:
    """Compare with every key, in a time that tells nothing about any of them."""
    if not keys:
        return
    mine = hashlib.sha256((given or "").encode("utf-8", "surrogatepass")).digest()
    known = [hmac.compare_digest(mine, hashlib.sha256(key.encode()).digest()) for key in keys]
    if not any(known):
        what = "this API key is not known" if given else "an API key is needed"
        raise ProblemError(
            401,
            f"{what}; send one as `Authorization: Bearer KEY` or as api_key.",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )


def bearer(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


async def read(request: Request, schema: type[B], limits: Limits, keys: Collection[str] = ()) -> B:
    """The body of a request, JSON or a form, as what it should be; the key is looked for in it too."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON and kind not in FORMS:
        raise ProblemError(415, f"the content type is {kind or 'missing'}; send application/json or a form.")
    body = await request.body()
    values = _json(body) if kind == JSON else await _form(request, body, limits)
    own = values.get("api_key")
    check_key(keys, bearer(request) or (own if isinstance(own, str) else None))
    try:
        return schema.model_validate(values, strict=kind == JSON)
    except ValidationError as error:
        raise _explained(error) from None


def _json(data: bytes) -> dict[str, Any]:
    try:
        values = DECODER.decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ProblemError(400, f"the body is not UTF-8: byte {error.start + 1} does not fit.") from None
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError) else "it is nested too deeply or no number"
        raise ProblemError(400, f"the body is not JSON: {reason}.") from None
    if not isinstance(values, dict):
        raise ProblemError(422, "the body is JSON, but not an object; send {…}.")
    return values


async def _form(request: Request, body: bytes, limits: Limits) -> dict[str, Any]:
    """Fields by name; a list where one comes several times."""
    most = limits.texts + 32
    try:
        if request.headers.get("content-type", "").lower().startswith(FORMS[0]):
            pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=most)
        else:
            form = await request.form(max_files=0, max_fields=most, max_part_size=limits.body)
            pairs = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    except UnicodeDecodeError:
        raise ProblemError(400, "the form is not UTF-8.") from None
    except (ValueError, HTTPException, MultiPartException):
        raise ProblemError(400, f"the form cannot be read; send at most {most} fields, all of them text.") from None
    values: dict[str, Any] = {}
    for name, value in pairs:
        before = values.get(name, [])
        values[name] = [*([before] if isinstance(before, str) else before), value] if name in values else value
    return values


def _explained(error: ValidationError) -> ProblemError:
    """The first thing that is wrong, in one sentence."""
    first = error.errors(include_url=False, include_input=False)[0]
    names = [
        str(part) for part in first["loc"] if not str(part).startswith(("str", "list[", "function-", "constrained"))
    ]
    where = ".".join(names)
    said = first["msg"].removeprefix("Value error, ")
    message = f"{where}: {said[:1].lower()}{said[1:]}." if where else f"{said}."
    return ProblemError(422, message, param=names[0] if names else None)


def check_texts(texts: Sequence[str], limits: Limits, name: str) -> None:
    """Not too many, and not too long."""
    if len(texts) > limits.texts:
        raise ProblemError(413, f"{name} holds {len(texts)} texts; send {limits.texts} at most.", param=name)
    length = sum(map(len, texts))
    if length > limits.characters:
        raise ProblemError(413, f"{name} has {length:,} characters; send {limits.characters:,} at most.", param=name)
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        said = f"{name} holds half a character (a lone surrogate), which is not text."
        raise ProblemError(400, said, param=name) from None


async def unless_gone(work: Coroutine[Any, Any, T], receive: Receive, deadline: float, seconds: float) -> T:
    """The result of `work`, which is cancelled when the client closes the connection and at the deadline."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(receive))]
    try:
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return cast(T, tasks[0].result())
        if tasks[1].done():
            raise GoneError
        raise ProblemError(503, f"this took more than {seconds:g} s and was given up.", retry=5, reason="time")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)  # what the work holds is free before the response is out


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
