"""Native routes, for what the other APIs do not have: scores, n-best, alignments, attention, prefixes, blanks."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from heedful.serve.admission import check_texts
from heedful.serve.api.bodies import FillBody, LookBody, TranslationsBody
from heedful.serve.problems import Json, ProblemError
from heedful.serve.state import TASKS, ServerState

FIELDS = ("text", "score", "log_prob", "tokens", "token_log_probs", "alignment")  # of a translation
LONGEST_LOOK = 2000  # characters; a page of more could not be read
LOOK_COST = 8  # sentences that take as long
MOST_FILLED = 4_000_000  # characters of texts with their blanks filled in


async def translations(state: ServerState, request: Request) -> Response:
    """POST /v1/translations."""
    body = await state.read(request, TranslationsBody)
    texts = [body.text] if isinstance(body.text, str) else body.text
    check_texts([*texts, body.prefix], state.settings.limits, "text")
    if body.model is not None:
        engine = state.model(body.model, "translate")
    else:
        engine = state.translator(body.source, body.target)
    asked = {"beam": body.beam, "length_penalty": body.length_penalty, "max_length": body.max_length}
    search: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    search["n_best"] = body.n_best
    found = await state.translate(
        engine,
        texts,
        max(body.beam or 1, body.n_best),
        fields=FIELDS,
        search=search,
        prefix=body.prefix,
        alignments=body.alignments,
        attention=body.attention,
    )
    pair = engine.served.pair
    return Json(
        {
            "model": engine.served.name,
            "source": pair.source if pair else "",
            "target": pair.target if pair else "",
            "translations": [
                {
                    "text": text.whole(),
                    "sentences": [
                        {"source": part.text, "start": part.start, "end": part.end, "translations": ways}
                        for part, ways in zip(text.sentences, text.ways, strict=True)
                    ],
                }
                for text in found
            ],
        }
    )


async def fill(state: ServerState, request: Request) -> Response:
    """POST /v1/fill."""
    body = await state.read(request, FillBody)
    check_texts([body.text], state.settings.limits, "text")
    engine = state.model(body.model, "fill")
    blanks = sum(body.text.count(blank) for blank in ("[MASK]", "<mask>"))
    if blanks * body.top * len(body.text) > MOST_FILLED:
        said = f"text has {blanks} blanks; with {body.top} candidates for each of so many the answer would be too long."
        raise ProblemError(413, said, param="text")
    found = await engine.ask({"text": body.text, "top": body.top})
    return Json({"model": engine.served.name, "blanks": found})


async def inside(state: ServerState, request: Request) -> Response:
    """POST /inside: the page that shows a model at work on a text. It has a policy of its own in its head."""
    body = await state.read(request, LookBody)
    check_texts([body.text, body.target or ""], state.settings.limits, "text")
    if len(body.text) > LONGEST_LOOK:
        raise ProblemError(413, f"text has {len(body.text):,} characters; a look inside takes {LONGEST_LOOK:,}.")
    engines = state.engines.by_name
    name = body.model if body.model is not None else next(iter(engines))
    if name not in engines:
        raise ProblemError(404, f"there is no model {name[:64]!r}; there are: {', '.join(engines)}.", param="model")
    target = body.target or None
    if engines[name].card.get("family") == "encoder" and target is not None:
        raise ProblemError(422, "an encoder reads and does not write; leave out the target.", param="target")
    page = await engines[name].ask({"look": {"text": body.text, "target": target}}, LOOK_COST)
    return HTMLResponse(
        page, headers={"content-security-policy": "frame-ancestors 'none'", "cache-control": "no-store"}
    )


async def models(state: ServerState, request: Request) -> Response:
    """GET /models."""
    return Json(
        [
            {
                "name": name,
                "task": TASKS.get(engine.card.get("family", ""), "loading"),
                "source": engine.served.pair.source if engine.served.pair and engine in translators else None,
                "target": engine.served.pair.target if engine.served.pair and engine in translators else None,
                "parameters": engine.card.get("parameters"),
            }
            for translators in [state.engines.translators()]
            for name, engine in state.engines.by_name.items()
        ]
    )
