"""LibreTranslate's API; its clients work unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from heedful.serve.api.schemas import DetectRequest, TranslateRequest
from heedful.serve.api.translate_file import SUPPORTED
from heedful.serve.http_errors import JsonResponse
from heedful.serve.languages import language_name
from heedful.serve.model_process import ModelProcess
from heedful.serve.request_checks import check_texts
from heedful.serve.state import ServerState

TYPING_PAUSE_MS = 400  # a web page translates after this pause in typing


async def translate(state: ServerState, request: Request) -> Response:
    """POST /translate."""
    body = await state.read(request, TranslateRequest)
    texts = [body.q] if isinstance(body.q, str) else body.q
    check_texts(texts, state.settings.limits, "q")
    model, confidence = await _choose_translator(state, body, texts)
    n_best = body.alternatives + 1
    search = {"n_best": n_best} if body.alternatives else {}
    if body.format == "html":
        translations = await _translate_html(state, model, texts, search, body.glossary)
    else:
        translated = await state.translate(model, texts, n_best, search=search, glossary=body.glossary)
        translations = [[text.translation(rank) for rank in range(n_best)] for text in translated]
    response: dict[str, Any] = {"translatedText": [of_text[0] for of_text in translations]}
    if body.alternatives:
        response["alternatives"] = [list(dict.fromkeys(of_text[1:])) for of_text in translations]
    if confidence is not None and model.served.pair is not None:
        detected = {"language": model.served.pair.source, "confidence": confidence}
        response["detectedLanguage"] = [detected] * len(texts)
    if isinstance(body.q, str):
        response = {name: value[0] for name, value in response.items()}
    return JsonResponse(response)


async def _translate_html(
    state: ServerState, model: ModelProcess, texts: Sequence[str], search: dict[str, Any], glossary: dict[str, Any]
) -> list[list[str]]:
    """The n-best translations of each HTML text. The worker process parses and writes the HTML."""
    blocks, tagged = await model.request({"read_html": {"texts": texts}})
    translations = await state.translate(
        model,
        [block for of_text in blocks for block in of_text],
        search.get("n_best"),
        ("text", "alignment"),
        search=search,
        alignments=tagged and model.info.get("aligns"),
        glossary=glossary,
    )
    translated = iter(translations)
    arguments = {"texts": texts, "blocks": [[next(translated) for _ in of_text] for of_text in blocks]}
    arguments["n_best"] = search.get("n_best", 1)
    documents: list[list[str]] = await model.request({"write_html": arguments})
    return documents


async def _choose_translator(
    state: ServerState, body: TranslateRequest, texts: list[str]
) -> tuple[ModelProcess, float | None]:
    """The translator, and its confidence in percent if the source language is detected."""
    if body.source != "auto":
        return state.translator(body.source, body.target), None
    state.translator(None, body.target)
    model, confidence = (await state.detect("\n".join(texts), state.models.translators(None, body.target)))[0]
    return model, round(100 * confidence, 1)


async def detect(state: ServerState, request: Request) -> Response:
    """POST /detect."""
    body = await state.read(request, DetectRequest)
    check_texts([body.q], state.settings.limits, "q")
    state.translator(None, None)
    by_source = {str(model.served.pair and model.served.pair.source): model for model in state.models.translators()}
    candidates = await state.detect(body.q, list(by_source.values()))
    codes = {id(model): code for code, model in by_source.items()}
    return JsonResponse(
        [{"language": codes[id(model)], "confidence": round(100 * value, 1)} for model, value in candidates]
    )


async def languages(state: ServerState, request: Request) -> Response:
    """GET /languages."""
    targets: dict[str, list[str]] = {}
    for model in state.models.translators():
        if model.served.pair is not None:
            targets.setdefault(model.served.pair.source, []).append(model.served.pair.target)
    return JsonResponse(
        [
            {"code": code, "name": language_name(code), "targets": sorted(set(codes))}
            for code, codes in sorted(targets.items())
        ]
    )


async def frontend_settings(state: ServerState, request: Request) -> Response:
    """GET /frontend/settings."""
    limits, first = state.settings.limits, next(iter(state.models.translators()), None)
    pair = first.served.pair if first else None
    sides = {"source": pair.source, "target": pair.target} if pair else {}
    return JsonResponse(
        {
            "apiKeys": bool(state.keys),
            "keyRequired": bool(state.keys),
            "charLimit": limits.max_characters,
            "batchLimit": limits.max_texts,
            "frontendTimeout": TYPING_PAUSE_MS,
            "filesTranslation": True,
            "supportedFilesFormat": list(SUPPORTED),
            "suggestions": False,
            "language": {side: {"code": code, "name": language_name(code)} for side, code in sides.items()},
        }
    )
