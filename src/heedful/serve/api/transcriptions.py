"""OpenAI's audio transcriptions API; its clients work unchanged."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from heedful.serve.api.schemas import TranscriptionRequest
from heedful.serve.event_stream import event_response
from heedful.serve.http_errors import HttpError, JsonResponse
from heedful.serve.languages import language_name
from heedful.serve.model_process import ModelProcess
from heedful.serve.request_checks import bearer_token, check_key, read_upload, validate
from heedful.serve.state import ServerState

TRANSCRIPTION_COST = 16  # sentences that take as much time; times take as much again
PATH = "/v1/audio/transcriptions"
SEGMENT_FIELDS = ("seek", "start", "end", "text", "tokens", "avg_logprob", "compression_ratio")
FIXED_FIELDS = {"temperature": 0.0, "no_speech_prob": 0.0}  # searches are not random; silent windows have no segments


async def transcriptions(state: ServerState, request: Request) -> Response:
    """POST /v1/audio/transcriptions."""
    values, audio, name = await read_upload(request, state.settings.limits)
    check_key(state.keys, bearer_token(request) or values.get("api_key"))
    body = validate(TranscriptionRequest, values, strict=False)
    if audio is None:
        raise HttpError(422, "file: the form has no file; send a recording.", param="file")
    timed, words = body.response_format in ("srt", "vtt", "verbose_json"), "word" in body.timestamp_granularities
    if timed and body.stream:
        message = f"response_format: a stream has text only, and no times; leave out stream or {body.response_format}."
        raise HttpError(422, message, param="response_format")
    if words and body.response_format != "verbose_json":
        message = "timestamp_granularities[]: times of words need response_format=verbose_json."
        raise HttpError(422, message, param="timestamp_granularities[]")
    payload: dict[str, Any] = {"audio": audio, "name": name, "timestamps": timed, "word_timestamps": words}
    payload |= {"max_seconds": state.settings.limits.max_seconds}
    payload |= {"language": body.language} if body.language else {}
    model = state.model(body.model, "transcribe")
    if body.stream:
        return await _stream(model, payload)
    return _response(body, await model.request(payload, TRANSCRIPTION_COST * (1 + timed)))


def _response(body: TranscriptionRequest, result: dict[str, Any]) -> Response:
    from heedful.inference.transcript_formats import SpeechSegment, subrip, webvtt

    segments = [SpeechSegment(segment["start"], segment["end"], segment["text"]) for segment in result["segments"]]
    match body.response_format:
        case "text":
            return PlainTextResponse(f"{result['text']}\n")
        case "srt":
            return PlainTextResponse(subrip(segments))
        case "vtt":
            return PlainTextResponse(webvtt(segments))
        case "verbose_json":
            numbered = [
                {"id": number, **{name: segment[name] for name in SEGMENT_FIELDS}, **FIXED_FIELDS}
                for number, segment in enumerate(result["segments"])
            ]
            code = result["language"] or body.language
            language = language_name(code).lower() if code else "unknown"
            answer = {"task": "transcribe", "language": language, "duration": result["seconds"], "text": result["text"]}
            granularities = body.timestamp_granularities or ["segment"]
            if "segment" in granularities:
                answer["segments"] = numbered
            if "word" in granularities:
                answer["words"] = [
                    {"word": word["word"], "start": word["start"], "end": word["end"]}
                    for segment in result["segments"]
                    for word in segment.get("words", ())
                ]
            return JsonResponse(answer)
    return JsonResponse({"text": result["text"]})


async def _stream(model: ModelProcess, payload: dict[str, Any]) -> Response:
    """Server-sent events: the text of each window as it is finished, then the whole text."""
    from heedful.inference.transcript_formats import join_texts

    events = model.stream(payload, TRANSCRIPTION_COST)
    first = await anext(events)  # so that a bad recording is refused before the response starts

    async def send() -> AsyncGenerator[dict[str, Any] | str, None]:
        event, sent = first, ""
        try:
            while event.kind == "delta":
                text = join_texts([sent, event.value])
                yield {"type": "transcript.text.delta", "delta": text[len(sent) :]}
                sent = text
                event = await anext(events)
            yield {"type": "transcript.text.done", "text": event.value["text"]}
        finally:
            await events.aclose()

    return event_response(send(), type="error")
