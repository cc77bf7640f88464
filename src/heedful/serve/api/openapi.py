"""The description of all routes: for programs at /openapi.json, for people at /docs."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter

from heedful import __version__
from heedful.serve.api import bodies

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
BEHIND_A_KEY = {
    400: "The body is not JSON, not a form or not UTF-8.",
    401: "An API key is needed.",
    408: "The body came in too slowly.",
    413: "The body, a text or their number is too large.",
    415: "The body is neither JSON nor a form.",
    422: "A field is missing, has the wrong type or cannot be served.",
    429: "This address has too many requests in progress.",
    503: "The model has too much to do or is being loaded; try again after `Retry-After` seconds.",
}


@dataclass(frozen=True)
class Operation:
    """One route as it is described."""

    method: str
    path: str
    summary: str
    answer: Any
    group: str
    body: type[BaseModel] | None = None
    example: dict[str, Any] | None = None
    forms: bool = False
    media: str = "application/json"
    also: dict[int, str] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    name: str = ""


MISSING = {404: "There is no such model."}
OPERATIONS = (
    Operation(
        "post", "/translate", "Translate a text, or several.", bodies.TranslateAnswer, "LibreTranslate",
        bodies.TranslateBody, {"q": "The dog sleeps.", "source": "en", "target": "de"}, True, also=MISSING,
        name="translate",
    ),
    Operation(
        "post", "/detect", "Find the language of a text among those translated from.", list[bodies.Detected],
        "LibreTranslate", bodies.DetectBody, {"q": "The dog sleeps."}, True, also=MISSING, name="detect",
    ),
    Operation("get", "/languages", "What is translated into what.", list[bodies.Language], "LibreTranslate",
              name="languages"),
    Operation("get", "/frontend/settings", "What a front end may do.", bodies.FrontendSettings, "LibreTranslate",
              name="frontendSettings"),
    Operation(
        "post", "/v1/completions", "Go on from a text; with `stream` as server-sent events.", bodies.Completion,
        "OpenAI", bodies.CompletionBody, {"model": "gpt", "prompt": "To be, or", "max_tokens": 20}, also=MISSING,
        name="complete",
    ),
    Operation("get", "/v1/models", "The GPTs that are served.", bodies.ModelCards, "OpenAI",
              also={401: BEHIND_A_KEY[401]}, name="listModels"),
    Operation("get", "/v1/models/{name}", "One of them.", bodies.ModelCard, "OpenAI",
              also=MISSING | {401: BEHIND_A_KEY[401], 503: BEHIND_A_KEY[503]}, parameters=("name",), name="oneModel"),
    Operation(
        "post", "/v1/translations", "Translate with scores, n-best lists, alignments, attention or a forced prefix.",
        bodies.TranslationsAnswer, "heedful", bodies.TranslationsBody,
        {"text": "The dog sleeps.", "n_best": 2, "alignments": True}, also=MISSING, name="translations",
    ),
    Operation("post", "/v1/fill", "Fill in the blanks of a text.", bodies.FillAnswer, "heedful", bodies.FillBody,
              {"text": "The [MASK] sleeps.", "top": 3}, also=MISSING, name="fill"),
    Operation("post", "/inside", "A page that shows a model at work on a text.", str, "heedful", bodies.LookBody,
              {"text": "The dog sleeps."}, True, "text/html", MISSING, name="inside"),
    Operation("get", "/models", "All models that are served.", list[bodies.ServedModel], "heedful", name="models"),
    Operation("get", "/health", "Whether the server lives.", bodies.Status, "For operators", name="health"),
    Operation("get", "/ready", "Whether it takes requests: not while models load, and not before it ends.",
              bodies.Status, "For operators", also={503: "It does not."}, name="ready"),
    Operation("get", "/metrics", "Numbers for Prometheus.", str, "For operators", media="text/plain", name="metrics"),
)  # fmt: skip


@cache
def describe() -> dict[str, Any]:
    """The OpenAPI document."""
    components: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "heedful",
            "version": __version__,
            "description": "Translators, GPTs and BERTs of your own, served. Errors under /v1 have OpenAI's form, "
            "elsewhere LibreTranslate's.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(operation: Operation, components: dict[str, Any]) -> dict[str, Any]:
    problem = bodies.Problem if operation.path.startswith("/v1/") else bodies.TextProblem
    responses: dict[str, Any] = {"200": _response("Done.", operation.answer, components, operation.media)}
    if operation.name == "complete":
        responses["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    for status, why in sorted(((BEHIND_A_KEY if operation.body else {}) | operation.also).items()):
        form = bodies.Status if operation.name == "ready" else problem
        responses[str(status)] = _response(why, form, components)
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.group],
        "responses": responses,
    }
    if operation.parameters:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in operation.parameters
        ]
    if operation.body:
        json_body = {"schema": _schema(operation.body, components), "example": operation.example}
        content = {"application/json": json_body}
        if operation.forms:
            content |= {FORM: json_body, MULTIPART: json_body}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _response(why: str, answer: Any, components: dict[str, Any], media: str = "application/json") -> dict[str, Any]:
    return {"description": why, "content": {media: {"schema": _schema(answer, components)}}}


def _schema(kind: Any, components: dict[str, Any]) -> dict[str, Any]:
    found = TypeAdapter(kind).json_schema(ref_template="#/components/schemas/{model}")
    components.update(found.pop("$defs", {}))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        components[kind.__name__] = found
        return {"$ref": f"#/components/schemas/{kind.__name__}"}
    return found


@cache
def page() -> str:
    """The same for people: one page without any script."""
    document = describe()
    groups: dict[str, list[str]] = {}
    for operation in OPERATIONS:
        groups.setdefault(operation.group, []).append(_section(operation, document["components"]["schemas"]))
    sections = "".join(f"<h2>{html.escape(name)}</h2>{''.join(parts)}" for name, parts in groups.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        'content="light dark"><title>The API · heedful</title><link rel="stylesheet" href="/page/style.css">'
        '<link rel="icon" href="/page/icon.svg"></head>'
        '<body class="docs"><header class="top"><div class="bar"><p class="mark"><span class="eye"></span> '
        '<a href="/">heedful</a> <span>the API</span></p></div></header><main>'
        f'<p class="lead">{html.escape(document["info"]["description"])} For programs: '
        '<a href="/openapi.json">/openapi.json</a>. If keys are needed, send one as '
        "<code>Authorization: Bearer KEY</code>.</p>"
        f"{sections}</main></body></html>"
    )


def _section(operation: Operation, schemas: dict[str, Any]) -> str:
    parts = [
        f'<section class="route" id="{operation.name}"><h3><code><b>{operation.method.upper()}</b> '
        f"{html.escape(operation.path)}</code></h3><p>{html.escape(operation.summary)}</p>"
    ]
    if operation.body:
        parts.append("<table><thead><tr><th>field</th><th>type</th><th>default</th><th></th></tr></thead><tbody>")
        fields = schemas[operation.body.__name__]
        for name, described in fields["properties"].items():
            default = "required" if name in fields.get("required", []) else json.dumps(described.get("default"))
            cells = (_type(described), default, described.get("description", ""))
            parts.append(
                f"<tr><td><code>{name}</code></td>"
                + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
                + "</tr>"
            )
        example = json.dumps(operation.example, ensure_ascii=False)
        parts.append(
            "</tbody></table><pre>curl -H 'content-type: application/json' \\\n"
            f"  -d '{html.escape(example, quote=False)}' \\\n  http://127.0.0.1:5000{operation.path}</pre>"
        )
    answer = getattr(operation.answer, "__name__", "")
    if answer in schemas:
        given = ", ".join(f"{name}: {_type(each)}" for name, each in schemas[answer]["properties"].items())
        parts.append(f'<p class="small">Answers {html.escape("{" + given + "}")}.</p>')
    return "".join(parts) + "</section>"


def _type(described: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "anyOf" in described:
        return " or ".join(dict.fromkeys(_type(each) for each in described["anyOf"]))
    if "$ref" in described:
        return str(described["$ref"]).rpartition("/")[2]
    if "enum" in described:
        return " or ".join(map(json.dumps, described["enum"]))
    if "const" in described:
        return json.dumps(described["const"])
    if described.get("type") == "array":
        inner = described.get("items") or {}
        return f"list of {_type(inner)}" if inner else "list"
    low, high = described.get("minimum"), described.get("maximum", described.get("exclusiveMaximum"))
    span = f" {low}…{high}" if low is not None and high is not None and abs(high) < 10**6 else ""
    return str(described.get("type", "anything")) + span
