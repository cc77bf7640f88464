"""OpenAI's completions API for GPTs; its clients work unchanged."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from heedful.serve.api.schemas import CompletionRequest
from heedful.serve.event_stream import event_response
from heedful.serve.http_errors import HttpError, JsonResponse
from heedful.serve.model_process import ModelProcess
from heedful.serve.request_checks import bearer_token, check_key, check_texts
from heedful.serve.state import ServerState, task_of

STARTED = int(time.time())
LISTED = ("write", "transcribe")  # tasks of the models that OpenAI's API serves
MAX_STOP_CHARACTERS = 1000  # characters


async def models(state: ServerState, request: Request) -> Response:
    """GET /v1/models."""
    check_key(state.keys, bearer_token(request))
    listed = [model for model in state.models.by_name.values() if task_of(model) in LISTED]
    return JsonResponse({"object": "list", "data": [_card(model) for model in listed]})


async def model(state: ServerState, request: Request) -> Response:
    """GET /v1/models/{name}."""
    check_key(state.keys, bearer_token(request))
    name = request.path_params["name"]
    named = state.models.by_name.get(name)
    task = task_of(named) if named is not None and task_of(named) in LISTED else LISTED[0]
    return JsonResponse(_card(state.model(name, task)))


def _card(model: ModelProcess) -> dict[str, Any]:
    return {"id": model.served.name, "object": "model", "created": STARTED, "owned_by": "heedful"}


async def completions(state: ServerState, request: Request) -> Response:
    """POST /v1/completions."""
    body = await state.read(request, CompletionRequest)
    prompts = [body.prompt or ""] if not isinstance(body.prompt, list) else body.prompt
    check_texts(prompts, state.settings.limits, "prompt")
    _check_supported(body, prompts)
    stream = CompletionStream(state.model(body.model, "write"), body, prompts)
    if body.stream:
        return event_response(stream.events(await stream.start(), request.scope["deadline"]))
    return JsonResponse(await stream.complete())


def _check_supported(request: CompletionRequest, prompts: list[str]) -> None:
    """Refuse values that would otherwise be ignored silently."""
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    wrong = {
        "prompt": (not prompts, "the list of prompts is empty; send a text, which may be empty"),
        "stop": (
            len(stop) > 4 or not all(stop) or sum(map(len, stop)) > MAX_STOP_CHARACTERS,
            f"send at most 4 texts with {MAX_STOP_CHARACTERS:,} characters together, none of them empty",
        ),
        "best_of": (request.best_of not in (None, request.n or 1), "it must equal n"),
        "suffix": (bool(request.suffix), "it is not supported"),
        "logit_bias": (bool(request.logit_bias), "it is not supported"),
        "presence_penalty": (bool(request.presence_penalty), "it is not supported; try repetition_penalty"),
        "frequency_penalty": (bool(request.frequency_penalty), "it is not supported; try repetition_penalty"),
        "logprobs": (
            bool(request.echo) and request.logprobs is not None,
            "the prompt has none; leave out echo",
        ),
    }
    for name, (bad, why) in wrong.items():
        if bad:
            raise HttpError(422, f"{name}: {why}.", param=name)


class CompletionStream:
    """The completions of one request: `n` of each prompt."""

    def __init__(self, model: ModelProcess, request: CompletionRequest, prompts: list[str]) -> None:
        self.model, self.request, self.prompts = model, request, prompts
        self.n = request.n or 1
        self.id, self.created = f"cmpl-{uuid.uuid4().hex}", int(time.time())
        self.tokens = {"prompt_tokens": 0, "completion_tokens": 0}
        seed = random.getrandbits(62) if request.seed is None else request.seed % 2**63
        self.options: dict[str, Any] = {
            "n": self.n,
            "max_tokens": request.max_tokens or 16,
            "temperature": 1.0 if request.temperature is None else request.temperature,
            "top_p": request.top_p or 1.0,
            "top_k": request.top_k,
            "min_p": request.min_p,
            "repetition_penalty": request.repetition_penalty,
            "stop": [request.stop] if isinstance(request.stop, str) else request.stop or [],
            "seed": seed,
            "best": request.logprobs or 0,
        }

    async def deltas(self) -> AsyncIterator[tuple[int, dict[str, Any]]]:
        """Text deltas with the index of their choice, prompt after prompt."""
        for number, prompt in enumerate(self.prompts):
            async for event in self.model.stream({"prompt": prompt} | self.options, self.n):
                if event.kind == "done":
                    for name, count in event.value.items():
                        self.tokens[name] += count
                else:
                    for delta in event.value:
                        yield number * self.n + delta["number"], delta

    async def complete(self) -> dict[str, Any]:
        """The whole response."""
        deltas_of: list[list[dict[str, Any]]] = [[] for _ in range(self.n * len(self.prompts))]
        async for index, delta in self.deltas():
            deltas_of[index].append(delta)
        choices = []
        for index, deltas in enumerate(deltas_of):
            prompt = self.prompts[index // self.n] if self.request.echo else ""
            text = "".join(delta["text"] for delta in deltas)
            choices.append(self._choice(index, prompt + text, deltas, len(prompt)))
        return self._response(choices) | {"usage": self.usage()}

    async def start(self) -> tuple[AsyncIterator[tuple[int, dict[str, Any]]], Any]:
        """The stream and its first delta, so that a request is refused before the response starts."""
        deltas = self.deltas()
        return deltas, await anext(deltas)

    async def events(self, started: Any, deadline: float) -> AsyncGenerator[dict[str, Any] | str, None]:
        """The events of the stream, the last one `[DONE]`."""
        deltas, first = started
        offsets: dict[int, int] = {}
        try:
            if self.request.echo:
                for index in range(self.n * len(self.prompts)):
                    yield self._response([self._choice(index, self.prompts[index // self.n], [], 0)])
            async with asyncio.timeout_at(deadline):
                item: Any = first
                while item is not None:
                    index, delta = item
                    if delta["text"] or delta["end"] or self.request.logprobs is not None:
                        yield self._response([self._choice(index, delta["text"], [delta], offsets.get(index, 0))])
                    offsets[index] = offsets.get(index, 0) + len(delta["text"])
                    item = await anext(deltas, None)
            if self.request.stream_options is not None and self.request.stream_options.include_usage:
                yield self._response([]) | {"usage": self.usage()}
            yield "[DONE]"
        finally:
            await deltas.aclose()

    def usage(self) -> dict[str, int]:
        return self.tokens | {"total_tokens": sum(self.tokens.values())}

    def _response(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model.served.name,
            "choices": choices,
        }

    def _choice(self, index: int, text: str, deltas: list[dict[str, Any]], offset: int) -> dict[str, Any]:
        end = deltas[-1]["end"] if deltas else ""
        return {
            "index": index,
            "text": text,
            "logprobs": None if self.request.logprobs is None else _logprobs(deltas, offset),
            "finish_reason": end or None,
        }


def _logprobs(deltas: list[dict[str, Any]], offset: int) -> dict[str, Any]:
    offsets = []
    for delta in deltas:
        offsets.append(offset)
        offset += len(delta["text"])
    return {
        "tokens": [delta["token"] for delta in deltas],
        "token_logprobs": [delta["log_prob"] for delta in deltas],
        "top_logprobs": [delta["best"] for delta in deltas],
        "text_offset": offsets,
    }
