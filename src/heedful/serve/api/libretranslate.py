"""LibreTranslate's API: its clients work with us as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from heedful.serve.admission import check_texts
from heedful.serve.api.bodies import DetectBody, TranslateBody
from heedful.serve.languages import language_name
from heedful.serve.model_process import ModelProcess
from heedful.serve.problems import Json
from heedful.serve.state import ServerState

TYPING = 400  # milliseconds without a key after which a page asks


async def translate(state: ServerState, request: Request) -> Response:
    """POST /translate."""
    body = await state.read(request, TranslateBody)
    texts = [body.q] if isinstance(body.q, str) else body.q
    check_texts(texts, state.settings.limits, "q")
    engine, sure = await _engine(state, body, texts)
    n_best = body.alternatives + 1
    search = {"n_best": n_best} if body.alternatives else {}
    if body.format == "html":
        whole = await _html(state, engine, texts, search)
    else:
        translated = await state.translate(engine, texts, n_best, search=search)
        whole = [[each.whole(rank) for rank in range(n_best)] for each in translated]
    answer: dict[str, Any] = {"translatedText": [each[0] for each in whole]}
    if body.alternatives:
        answer["alternatives"] = [list(dict.fromkeys(each[1:])) for each in whole]
    if sure is not None and engine.served.pair is not None:
        answer["detectedLanguage"] = [{"language": engine.served.pair.source, "confidence": sure}] * len(texts)
    if isinstance(body.q, str):
        answer = {name: value[0] for name, value in answer.items()}
    return Json(answer)


async def _html(
    state: ServerState, engine: ModelProcess, texts: Sequence[str], search: dict[str, Any]
) -> list[list[str]]:
    """Each text and its alternatives, best first. The model's process reads and writes the HTML."""
    blocks, tagged = await engine.ask({"read_html": {"texts": texts}})
    found = await state.translate(
        engine,
        [block for each in blocks for block in each],
        search.get("n_best"),
        ("text", "alignment"),
        search=search,
        alignments=tagged and engine.card.get("aligns"),
    )
    translated = iter(found)
    asked = {"texts": texts, "found": [[next(translated) for _ in each] for each in blocks]}
    whole: list[list[str]] = await engine.ask({"write_html": asked | {"n_best": search.get("n_best", 1)}})
    return whole


async def _engine(state: ServerState, body: TranslateBody, texts: list[str]) -> tuple[ModelProcess, float | None]:
    """The translator, and how sure it is in percent if it was to be found by the text."""
    if body.source != "auto":
        return state.translator(body.source, body.target), None
    state.translator(None, body.target)
    found = await state.detect("\n".join(texts), state.engines.translators(None, body.target))
    return found[0][0], round(100 * found[0][1], 1)


async def detect(state: ServerState, request: Request) -> Response:
    """POST /detect."""
    body = await state.read(request, DetectBody)
    check_texts([body.q], state.settings.limits, "q")
    state.translator(None, None)
    by_source = {str(each.served.pair and each.served.pair.source): each for each in state.engines.translators()}
    found = await state.detect(body.q, list(by_source.values()))
    codes = {id(engine): code for code, engine in by_source.items()}
    return Json([{"language": codes[id(engine)], "confidence": round(100 * sure, 1)} for engine, sure in found])


async def languages(state: ServerState, request: Request) -> Response:
    """GET /languages."""
    targets: dict[str, list[str]] = {}
    for engine in state.engines.translators():
        if engine.served.pair is not None:
            targets.setdefault(engine.served.pair.source, []).append(engine.served.pair.target)
    return Json(
        [
            {"code": code, "name": language_name(code), "targets": sorted(set(into))}
            for code, into in sorted(targets.items())
        ]
    )


async def frontend_settings(state: ServerState, request: Request) -> Response:
    """GET /frontend/settings."""
    limits, first = state.settings.limits, next(iter(state.engines.translators()), None)
    pair = first.served.pair if first else None
    ends = {"source": pair.source, "target": pair.target} if pair else {}
    return Json(
        {
            "apiKeys": bool(state.keys),
            "keyRequired": bool(state.keys),
            "charLimit": limits.characters,
            "batchLimit": limits.texts,
            "frontendTimeout": TYPING,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "suggestions": False,
            "language": {end: {"code": code, "name": language_name(code)} for end, code in ends.items()},
        }
    )
