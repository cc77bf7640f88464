"""OpenAI's completions for GPTs: its clients work with us as they are."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from heedful.serve.admission import bearer, check_key, check_texts
from heedful.serve.api.bodies import CompletionBody
from heedful.serve.model_process import ModelProcess
from heedful.serve.problems import Json, ProblemError, as_problem, body
from heedful.serve.state import ServerState

STARTED = int(time.time())
LONGEST_STOP = 1000  # characters


async def models(state: ServerState, request: Request) -> Response:
    """GET /v1/models."""
    check_key(state.keys, bearer(request))
    return Json({"object": "list", "data": [_card(each) for each in state.engines.of("decoder")]})


async def model(state: ServerState, request: Request) -> Response:
    """GET /v1/models/{name}."""
    check_key(state.keys, bearer(request))
    return Json(_card(state.model(request.path_params["name"], "write")))


def _card(engine: ModelProcess) -> dict[str, Any]:
    return {"id": engine.served.name, "object": "model", "created": STARTED, "owned_by": "heedful"}


async def completions(state: ServerState, request: Request) -> Response:
    """POST /v1/completions."""
    asked = await state.read(request, CompletionBody)
    prompts = [asked.prompt or ""] if not isinstance(asked.prompt, list) else asked.prompt
    check_texts(prompts, state.settings.limits, "prompt")
    _check(asked, prompts)
    writing = CompletionStream(state.model(asked.model, "write"), asked, prompts)
    if asked.stream:
        events = writing.events(await writing.begin(), request.scope["deadline"])
        return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-store"})
    return Json(await writing.whole())


def _check(asked: CompletionBody, prompts: list[str]) -> None:
    """Say no to what would otherwise be passed over in silence."""
    stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
    wrong = {
        "prompt": (not prompts, "there is no prompt; send a text, which may be empty"),
        "stop": (
            len(stop) > 4 or not all(stop) or sum(map(len, stop)) > LONGEST_STOP,
            f"give at most 4 texts of {LONGEST_STOP:,} characters together, none of them empty",
        ),
        "best_of": (asked.best_of not in (None, asked.n or 1), "only as many as n are written"),
        "suffix": (bool(asked.suffix), "text between two others is not written here"),
        "logit_bias": (bool(asked.logit_bias), "it is not supported"),
        "presence_penalty": (bool(asked.presence_penalty), "it is not supported; try repetition_penalty"),
        "frequency_penalty": (bool(asked.frequency_penalty), "it is not supported; try repetition_penalty"),
        "logprobs": (bool(asked.echo) and asked.logprobs is not None, "there are none for the prompt; leave out echo"),
    }
    for name, (bad, why) in wrong.items():
        if bad:
            raise ProblemError(422, f"{name}: {why}.", param=name)


class CompletionStream:
    """The texts of one request: `n` that follow each prompt."""

    def __init__(self, engine: ModelProcess, asked: CompletionBody, prompts: list[str]) -> None:
        self.engine, self.asked, self.prompts = engine, asked, prompts
        self.n = asked.n or 1
        self.id, self.created = f"cmpl-{uuid.uuid4().hex}", int(time.time())
        self.tokens = {"prompt_tokens": 0, "completion_tokens": 0}
        seed = random.getrandbits(62) if asked.seed is None else asked.seed % 2**63
        self.options: dict[str, Any] = {
            "n": self.n,
            "max_tokens": asked.max_tokens or 16,
            "temperature": 1.0 if asked.temperature is None else asked.temperature,
            "top_p": asked.top_p or 1.0,
            "top_k": asked.top_k,
            "min_p": asked.min_p,
            "repetition_penalty": asked.repetition_penalty,
            "stop": [asked.stop] if isinstance(asked.stop, str) else asked.stop or [],
            "seed": seed,
            "best": asked.logprobs or 0,
        }

    async def pieces(self) -> AsyncIterator[tuple[int, dict[str, Any]]]:
        """Pieces with the index of their choice, prompt after prompt."""
        for number, prompt in enumerate(self.prompts):
            async for event in self.engine.stream({"prompt": prompt} | self.options, self.n):
                if event.kind == "done":
                    for name, count in event.value.items():
                        self.tokens[name] += count
                else:
                    for piece in event.value:
                        yield number * self.n + piece["number"], piece

    async def whole(self) -> dict[str, Any]:
        """All of it in one answer."""
        found: list[list[dict[str, Any]]] = [[] for _ in range(self.n * len(self.prompts))]
        async for index, piece in self.pieces():
            found[index].append(piece)
        choices = []
        for index, pieces in enumerate(found):
            before = self.prompts[index // self.n] if self.asked.echo else ""
            text = "".join(piece["text"] for piece in pieces)
            choices.append(self._choice(index, before + text, pieces, len(before)))
        return self._answer(choices) | {"usage": self.usage()}

    async def begin(self) -> tuple[AsyncIterator[tuple[int, dict[str, Any]]], Any]:
        """The stream and its first piece, so that what is refused is refused before the answer begins."""
        pieces = self.pieces()
        return pieces, await anext(pieces)

    async def events(self, begun: Any, deadline: float) -> AsyncIterator[str]:
        """Server-sent events, the last of which says that it is the last."""
        pieces, first = begun
        offsets: dict[int, int] = {}
        try:
            if self.asked.echo:
                for index in range(self.n * len(self.prompts)):
                    yield self._event([self._choice(index, self.prompts[index // self.n], [], 0)])
            async with asyncio.timeout_at(deadline):
                following: Any = first
                while following is not None:
                    index, piece = following
                    if piece["text"] or piece["end"] or self.asked.logprobs is not None:
                        yield self._event([self._choice(index, piece["text"], [piece], offsets.get(index, 0))])
                    offsets[index] = offsets.get(index, 0) + len(piece["text"])
                    following = await anext(pieces, None)
            if self.asked.stream_options is not None and self.asked.stream_options.include_usage:
                yield f"data: {json.dumps(self._answer([]) | {'usage': self.usage()})}\n\n"
            yield "data: [DONE]\n\n"
        except Exception as error:  # the answer has begun: its rest can only say what happened
            yield f"data: {json.dumps(body('/v1/', _problem(error)))}\n\n"
        finally:
            await pieces.aclose()

    def usage(self) -> dict[str, int]:
        return self.tokens | {"total_tokens": sum(self.tokens.values())}

    def _event(self, choices: list[dict[str, Any]]) -> str:
        return f"data: {json.dumps(self._answer(choices), ensure_ascii=False)}\n\n"

    def _answer(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.engine.served.name,
            "choices": choices,
        }

    def _choice(self, index: int, text: str, pieces: list[dict[str, Any]], offset: int) -> dict[str, Any]:
        end = pieces[-1]["end"] if pieces else ""
        return {
            "index": index,
            "text": text,
            "logprobs": None if self.asked.logprobs is None else _logprobs(pieces, offset),
            "finish_reason": end or None,
        }


def _logprobs(pieces: list[dict[str, Any]], offset: int) -> dict[str, Any]:
    offsets = []
    for piece in pieces:
        offsets.append(offset)
        offset += len(piece["text"])
    return {
        "tokens": [piece["token"] for piece in pieces],
        "token_logprobs": [piece["log_prob"] for piece in pieces],
        "top_logprobs": [piece["best"] for piece in pieces],
        "text_offset": offsets,
    }


def _problem(error: Exception) -> ProblemError:
    if isinstance(error, TimeoutError):
        return ProblemError(503, "this took too long and was given up.")
    return as_problem(error) or ProblemError(500, "something went wrong here.")
