"""The description of all routes: the OpenAPI document at /openapi.json and the HTML page at /docs."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter

from heedful import __version__
from heedful.serve.api import schemas

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
ADDRESS = "SERVER-ADDRESS"  # in the examples of the page, until the address of a request replaces it
REQUEST_ERRORS = {
    400: "The body is not JSON, not a form or not UTF-8.",
    401: "A valid API key is required.",
    408: "The body arrived too slowly.",
    413: "The body, a text or the number of texts is too large.",
    415: "The body is neither JSON nor a form.",
    422: "A field is missing, has the wrong type or an unsupported value.",
    429: "This client address has too many requests in progress.",
    503: "The model's queue is full or the model is being loaded; try again after `Retry-After` seconds.",
}


@dataclass(frozen=True)
class Operation:
    """The description of one route."""

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
    upload: bool = False  # the body is a multipart form with a file


NO_SUCH_MODEL = {404: "There is no such model."}
OPERATIONS = (
    Operation(
        "post", "/translate", "Translate a text, or several.", schemas.TranslateResponse, "LibreTranslate",
        schemas.TranslateRequest, {"q": "The dog sleeps.", "source": "en", "target": "de"}, True, also=NO_SUCH_MODEL,
        name="translate",
    ),
    Operation(
        "post", "/detect", "Detect the language of a text among the source languages.", list[schemas.DetectedLanguage],
        "LibreTranslate", schemas.DetectRequest, {"q": "The dog sleeps."}, True, also=NO_SUCH_MODEL, name="detect",
    ),
    Operation(
        "post", "/translate_file", "Translate a file.", schemas.TranslatedFile, "LibreTranslate",
        schemas.TranslateFileRequest, {"file": "@app.po", "source": "en", "target": "de"}, upload=True,
        also=NO_SUCH_MODEL, name="translateFile",
    ),
    Operation("get", "/download_file/{name}", "Download a translated file.", bytes, "LibreTranslate",
              media="application/octet-stream", also={404: "There is no such file."}, parameters=("name",),
              name="downloadFile"),
    Operation("get", "/languages", "The language pairs served.", list[schemas.Language], "LibreTranslate",
              name="languages"),
    Operation("get", "/frontend/settings", "Settings for front ends.", schemas.FrontendSettings, "LibreTranslate",
              name="frontendSettings"),
    Operation(
        "post", "/v1/completions", "Continue a text; with `stream` as server-sent events.", schemas.Completion,
        "OpenAI", schemas.CompletionRequest, {"model": "gpt", "prompt": "To be, or", "max_tokens": 20},
        also=NO_SUCH_MODEL, name="complete",
    ),
    Operation(
        "post", "/v1/audio/transcriptions", "Transcribe a recording; with `stream` as server-sent events.",
        schemas.Transcription, "OpenAI", schemas.TranscriptionRequest, {"file": "@a.wav"}, also=NO_SUCH_MODEL,
        name="transcribe", upload=True,
    ),
    Operation("get", "/v1/models", "The GPTs and speech recognizers served.", schemas.ModelCards, "OpenAI",
              also={401: REQUEST_ERRORS[401]}, name="listModels"),
    Operation("get", "/v1/models/{name}", "One of them by name.", schemas.ModelCard, "OpenAI",
              also=NO_SUCH_MODEL | {401: REQUEST_ERRORS[401], 503: REQUEST_ERRORS[503]}, parameters=("name",),
              name="oneModel"),
    Operation(
        "post", "/v1/translations", "Translate with scores, n-best lists, alignments, attention or a forced prefix.",
        schemas.TranslationsResponse, "heedful", schemas.TranslationsRequest,
        {"text": "The dog sleeps.", "n_best": 2, "alignments": True}, also=NO_SUCH_MODEL, name="translations",
    ),
    Operation("post", "/v1/summaries", "Summarize a document, or several.", schemas.SummariesResponse, "heedful",
              schemas.SummariesRequest, {"text": "A long document.", "max_length": 20}, also=NO_SUCH_MODEL,
              name="summaries"),
    Operation("post", "/v1/fill", "Predict the masked words of a text.", schemas.FillMaskResponse, "heedful",
              schemas.FillMaskRequest, {"text": "The [MASK] sleeps.", "top": 3}, also=NO_SUCH_MODEL, name="fill"),
    Operation("post", "/inside", "An HTML page that shows how a model processes a text.", str, "heedful",
              schemas.ExplainRequest, {"text": "The dog sleeps."}, True, "text/html", NO_SUCH_MODEL, name="inside"),
    Operation("get", "/models", "All models served.", list[schemas.ServedModel], "heedful", name="models"),
    Operation("get", "/health", "Whether the server is running.", schemas.ServerStatus, "For operators", name="health"),
    Operation("get", "/ready", "Whether the models are loaded and the server is not draining.",
              schemas.ServerStatus, "For operators", also={503: "The server is loading or draining."}, name="ready"),
    Operation("get", "/metrics", "Metrics for Prometheus.", str, "For operators", media="text/plain", name="metrics"),
)  # fmt: skip


@cache
def openapi_document() -> dict[str, Any]:
    """The OpenAPI document."""
    components: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _describe_operation(operation, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "heedful",
            "version": __version__,
            "description": "Translators, summarizers, GPTs, BERTs and speech recognizers as a service. Errors under "
            "/v1 have OpenAI's form, other errors LibreTranslate's.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _describe_operation(operation: Operation, components: dict[str, Any]) -> dict[str, Any]:
    problem = schemas.OpenAIError if operation.path.startswith("/v1/") else schemas.LibreTranslateError
    responses: dict[str, Any] = {"200": _describe_response("Done.", operation.answer, components, operation.media)}
    if operation.name in ("complete", "transcribe"):
        responses["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    for status, why in sorted(((REQUEST_ERRORS if operation.body else {}) | operation.also).items()):
        form = schemas.ServerStatus if operation.name == "ready" else problem
        responses[str(status)] = _describe_response(why, form, components)
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
        json_body = {"schema": _add_schema(operation.body, components), "example": operation.example}
        content = {"application/json": json_body}
        if operation.upload:
            content = {MULTIPART: json_body}
        if operation.forms:
            content |= {FORM: json_body, MULTIPART: json_body}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _describe_response(
    why: str, answer: Any, components: dict[str, Any], media: str = "application/json"
) -> dict[str, Any]:
    return {"description": why, "content": {media: {"schema": _add_schema(answer, components)}}}


def _add_schema(kind: Any, components: dict[str, Any]) -> dict[str, Any]:
    schema = TypeAdapter(kind).json_schema(ref_template="#/components/schemas/{model}")
    components.update(schema.pop("$defs", {}))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        components[kind.__name__] = schema
        return {"$ref": f"#/components/schemas/{kind.__name__}"}
    return schema


def docs_page(address: str) -> str:
    """The HTML page of the API, without scripts; its examples call the server at `address`."""
    return _docs_template().replace(ADDRESS, html.escape(address))


@cache
def _docs_template() -> str:
    document = openapi_document()
    groups: dict[str, list[str]] = {}
    for operation in OPERATIONS:
        groups.setdefault(operation.group, []).append(_operation_html(operation, document["components"]["schemas"]))
    sections = "".join(f"<h2>{html.escape(name)}</h2>{''.join(parts)}" for name, parts in groups.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        'content="light dark"><title>The API · heedful</title><link rel="stylesheet" href="/page/style.css">'
        '<link rel="icon" href="/page/icon.svg"></head>'
        '<body class="docs"><header class="top"><div class="bar"><p class="mark"><span class="eye"></span> '
        '<a href="/">heedful</a> <span>the API</span></p></div></header><main>'
        f'<p class="lead">{html.escape(document["info"]["description"])} OpenAPI document: '
        '<a href="/openapi.json">/openapi.json</a>. If the server requires API keys, send one as '
        "<code>Authorization: Bearer KEY</code>.</p>"
        f"{sections}</main></body></html>"
    )


def _operation_html(operation: Operation, schemas: dict[str, Any]) -> str:
    parts = [
        f'<section class="route" id="{operation.name}"><h3><code><b>{operation.method.upper()}</b> '
        f"{html.escape(operation.path)}</code></h3><p>{_inline_html(operation.summary)}</p>"
    ]
    if operation.body:
        parts.append("<table><thead><tr><th>field</th><th>type</th><th>default</th><th></th></tr></thead><tbody>")
        fields = schemas[operation.body.__name__]
        for name, described in fields["properties"].items():
            default = "required" if name in fields.get("required", []) else json.dumps(described.get("default"))
            cells = (_describe_type(described), default, described.get("description", ""))
            parts.append(
                f"<tr><td><code>{name}</code></td>"
                + "".join(f"<td>{_inline_html(cell)}</td>" for cell in cells)
                + "</tr>"
            )
        parts.append(f"</tbody></table><pre>curl {_curl_body(operation)} \\\n  {ADDRESS}{operation.path}</pre>")
    answer = getattr(operation.answer, "__name__", "")
    if answer in schemas:
        properties = schemas[answer]["properties"].items()
        fields = ", ".join(f"{name}: {_describe_type(described)}" for name, described in properties)
        parts.append(f'<p class="small">Response: {html.escape("{" + fields + "}")}.</p>')
    return "".join(parts) + "</section>"


def _inline_html(text: str) -> str:
    """Text with code between backticks, as HTML."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _curl_body(operation: Operation) -> str:
    """The options of curl that send the example."""
    if operation.upload:
        return " ".join(f"-F {name}={value}" for name, value in (operation.example or {}).items())
    example = html.escape(json.dumps(operation.example, ensure_ascii=False), quote=False)
    return f"-H 'content-type: application/json' \\\n  -d '{example}'"


def _describe_type(described: dict[str, Any]) -> str:
    """The type of a JSON schema in a few words."""
    if "anyOf" in described:
        return " or ".join(dict.fromkeys(_describe_type(alternative) for alternative in described["anyOf"]))
    if "$ref" in described:
        return str(described["$ref"]).rpartition("/")[2]
    if "enum" in described:
        return " or ".join(map(json.dumps, described["enum"]))
    if "const" in described:
        return json.dumps(described["const"])
    if described.get("type") == "array":
        inner = described.get("items") or {}
        return f"list of {_describe_type(inner)}" if inner else "list"
    low, high = described.get("minimum"), described.get("maximum", described.get("exclusiveMaximum"))
    span = f" {low}…{high}" if low is not None and high is not None and abs(high) < 10**6 else ""
    return str(described.get("type", "anything")) + span
