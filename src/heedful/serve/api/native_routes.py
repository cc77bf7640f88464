"""Native routes for what the other APIs lack: scores, n-best lists, alignments, attention, prefixes, fill-mask."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from heedful.serve.api.schemas import ExplainRequest, FillMaskRequest, SummariesRequest, TranslationsRequest
from heedful.serve.http_errors import HttpError, JsonResponse
from heedful.serve.request_checks import check_texts
from heedful.serve.state import ServerState, task_of

TRANSLATION_FIELDS = (
    "text",
    "score",
    "log_prob",
    "tokens",
    "token_log_probs",
    "alignment",
    "warnings",
    "confidence",
    "word_confidence",
)  # of a translation
MAX_EXPLAIN_CHARACTERS = 2000  # a longer page could not be read
EXPLAIN_COST = 8  # sentences that take as much time
MAX_FILLED_CHARACTERS = 4_000_000  # of a response: every candidate comes with the whole text


async def translations(state: ServerState, request: Request) -> Response:
    """POST /v1/translations."""
    body = await state.read(request, TranslationsRequest)
    texts = [body.text] if isinstance(body.text, str) else body.text
    check_texts([*texts, body.prefix], state.settings.limits, "text")
    if body.model is not None:
        model = state.model(body.model, "translate")
    else:
        model = state.translator(body.source, body.target)
    options = {"beam": body.beam, "length_penalty": body.length_penalty, "max_length": body.max_length}
    search: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    search["n_best"] = body.n_best
    translated = await state.translate(
        model,
        texts,
        max(body.beam or 1, body.n_best),
        fields=TRANSLATION_FIELDS,
        search=search,
        prefix=body.prefix,
        alignments=body.alignments,
        attention=body.attention,
        glossary=body.glossary,
        confidence=body.confidence and bool(model.info.get("calibrated")),
    )
    pair = model.served.pair
    return JsonResponse(
        {
            "model": model.served.name,
            "source": pair.source if pair else "",
            "target": pair.target if pair else "",
            "translations": [
                {
                    "text": text.translation(),
                    "sentences": [
                        {"source": span.text, "start": span.start, "end": span.end, "translations": n_best}
                        for span, n_best in zip(text.sentences, text.n_best, strict=True)
                    ],
                }
                for text in translated
            ],
        }
    )


async def summaries(state: ServerState, request: Request) -> Response:
    """POST /v1/summaries."""
    body = await state.read(request, SummariesRequest)
    texts = [body.text] if isinstance(body.text, str) else body.text
    check_texts(texts, state.settings.limits, "text")
    model = state.model(body.model, "summarize")
    names = ("beam", "length_penalty", "min_length", "max_length", "no_repeat_ngram")
    search = {name: value for name in names if (value := getattr(body, name)) is not None}
    results = await model.request({"texts": texts, "fields": ("text", "warnings"), "search": search}, len(texts))
    summaries = [n_best[0]["text"] if n_best else "" for n_best in results]
    warnings = [n_best[0]["warnings"] if n_best else [] for n_best in results]
    return JsonResponse({"model": model.served.name, "summaries": summaries, "warnings": warnings})


async def fill_mask(state: ServerState, request: Request) -> Response:
    """POST /v1/fill."""
    body = await state.read(request, FillMaskRequest)
    check_texts([body.text], state.settings.limits, "text")
    model = state.model(body.model, "fill")
    masks = sum(body.text.count(mask) for mask in ("[MASK]", "<mask>"))
    if masks * body.top * len(body.text) > MAX_FILLED_CHARACTERS:
        message = f"text has {masks} masks; with {body.top} candidates per mask the response would be too long."
        raise HttpError(413, message, param="text")
    candidates = await model.request({"text": body.text, "top": body.top})
    return JsonResponse({"model": model.served.name, "blanks": candidates})


async def explain(state: ServerState, request: Request) -> Response:
    """POST /inside: the explain page of a text. Its content security policy is in its <head>."""
    body = await state.read(request, ExplainRequest)
    check_texts([body.text, body.target or ""], state.settings.limits, "text")
    if len(body.text) > MAX_EXPLAIN_CHARACTERS:
        raise HttpError(413, f"text has {len(body.text):,} characters; send {MAX_EXPLAIN_CHARACTERS:,} at most.")
    models = state.models.by_name
    name = body.model if body.model is not None else next(iter(models))
    if name not in models:
        raise HttpError(404, f"there is no model {name[:64]!r}; available: {', '.join(models)}.", param="model")
    target = body.target or None
    if task_of(models[name]) in ("fill", "inspect") and target is not None:
        raise HttpError(422, "an encoder generates no text; leave out the target.", param="target")
    page = await models[name].request({"explain": {"text": body.text, "target": target}}, EXPLAIN_COST)
    return HTMLResponse(
        page, headers={"content-security-policy": "frame-ancestors 'none'", "cache-control": "no-store"}
    )


async def models(state: ServerState, request: Request) -> Response:
    """GET /models."""
    return JsonResponse(
        [
            {
                "name": name,
                "task": task_of(model) or "loading",
                "source": model.served.pair.source if model.served.pair and model in translators else None,
                "target": model.served.pair.target if model.served.pair and model in translators else None,
                "parameters": model.info.get("parameters"),
                "beam": model.info.get("beam"),
            }
            for translators in [state.models.translators()]
            for name, model in state.models.by_name.items()
        ]
    )
