"""Who may come in, with how much, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request

from heedful.errors import HeedfulError
from heedful.serve.alarms import Alarms
from heedful.serve.engine import RefusedError
from heedful.serve.exchange import Exchange
from heedful.serve.problems import ProblemError
from heedful.serve.settings import Limits

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
    scheme, _, key = _header(request, b"authorization").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def _header(request: Request, name: bytes) -> str:
    headers: dict[bytes, bytes] = request.scope["exchange"].headers
    return headers.get(name, b"").decode("latin-1")


async def read(request: Request, schema: type[B], limits: Limits, keys: Collection[str] = ()) -> B:
    """The body of a request, JSON or a form, as what it should be; the key is looked for in it too."""
    kind = _header(request, b"content-type").partition(";")[0].strip().lower()
    if kind != JSON and kind not in FORMS:
        raise ProblemError(415, f"the content type is {kind or 'missing'}; send application/json or a form.")
    body = await _received(request.scope["exchange"], limits)
    values = _json(body) if kind == JSON else await _form(request, body, limits)
    own = values.get("api_key")
    check_key(keys, bearer(request) or (own if isinstance(own, str) else None))
    try:
        return schema.model_validate(values, strict=kind == JSON)
    except ValidationError as error:
        raise _explained(error) from None


async def _received(exchange: Exchange, limits: Limits) -> bytes:
    """The body, if it comes before long."""
    if not exchange.heard:
        try:
            async with asyncio.timeout(limits.receiving):
                await exchange.whole()
        except TimeoutError:
            said = f"the request took more than {limits.receiving:g} s to come in."
            raise ProblemError(408, said, reason="slow", headers={"connection": "close"}) from None
    check_size(exchange)
    if exchange.gone:
        raise GoneError
    return exchange.body


def check_size(exchange: Exchange) -> None:
    """As far as it is known."""
    if exchange.large:
        said = f"the body has more than {exchange.most:,} bytes."
        raise ProblemError(413, said, reason="body", headers={"connection": "close"})


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
        if _header(request, b"content-type").lower().startswith(FORMS[0]):
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


class GoneError(Exception):
    """The client hung up: there is nobody to answer."""


async def unless_gone(request: Request, work: Coroutine[Any, Any, T], seconds: float, alarms: Alarms) -> T:
    """What comes out of it; it is given up when the client hangs up, or all that was to be done takes too long."""
    exchange, now = request.scope["exchange"], asyncio.get_running_loop().time()
    if exchange.gone:
        work.close()
        raise GoneError
    task = exchange.task
    exchange.leave = task.cancel
    exchange.due = exchange.due or now + seconds
    alarms.set(task, max(0.0, exchange.due - now), task.cancel)
    try:
        with explained():
            return await work
    except asyncio.CancelledError:
        if exchange.gone:
            raise GoneError from None
        if alarms.off(task):  # it is the server that ends
            raise
        said = f"this took more than {seconds:g} s and was given up."
        raise ProblemError(503, said, retry=5, reason="time") from None
    finally:
        exchange.leave = None
        alarms.off(task)


class explained(contextlib.AbstractContextManager[None]):  # noqa: N801
    """Errors of the models' side as answers."""

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, RefusedError):
            raise ProblemError(503, str(error), retry=error.seconds, reason=error.reason) from None
        if isinstance(error, HeedfulError):
            raise ProblemError(422, str(error)) from None
