"""Translation of files, as LibreTranslate's clients send them: a form with a file is answered with a URL."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from heedful.formats.format_names import DOCUMENT_EXTENSIONS
from heedful.serve.api.schemas import TranslateFileRequest
from heedful.serve.http_errors import HttpError, JsonResponse
from heedful.serve.model_process import ModelProcess
from heedful.serve.request_checks import bearer_token, check_key, read_upload, validate
from heedful.serve.state import ServerState

TEXT = {".txt": "text"}
SUPPORTED = DOCUMENT_EXTENSIONS | TEXT


async def translate_file(state: ServerState, request: Request) -> Response:
    """POST /translate_file."""
    values, content, filename = await read_upload(request, state.settings.limits)
    check_key(state.keys, bearer_token(request) or values.get("api_key"))
    if content is None:
        raise HttpError(422, "file: the form has no file; send one with its name.", param="file")
    body = validate(TranslateFileRequest, values | {"file": b""}, strict=False)
    name = PurePosixPath(filename.replace("\\", "/")).name
    extension = PurePosixPath(name).suffix.lower()
    if extension not in SUPPORTED:
        raise HttpError(400, f"files of this kind are not translated; send {', '.join(SUPPORTED)}.", param="file")
    source = body.source if body.source != "auto" else None
    model = state.translator(source, body.target)
    arguments: dict[str, Any] = {"data": content, "name": name, "format": SUPPORTED[extension]}
    pair = model.served.pair
    arguments["languages"] = (pair.source.replace("_", "-") if pair else None, body.target.replace("_", "-"))
    data = await _translate(state, model, arguments, body.glossary)
    stored = state.files.add(f"{PurePosixPath(name).stem}.{body.target}{extension}", data)
    return JsonResponse({"translatedFileUrl": f"{request.base_url}download_file/{stored}"})


async def download_file(state: ServerState, request: Request) -> Response:
    """GET /download_file/…"""
    name = request.path_params["name"]
    data = state.files.get(name)
    if data is None:
        raise HttpError(404, "there is no such file; translated files are kept for ten minutes.")
    disposition = f'attachment; filename="{name.partition(".")[2]}"'
    headers = {"content-disposition": disposition, "cache-control": "no-store"}
    return Response(data, media_type="application/octet-stream", headers=headers)


async def _translate(
    state: ServerState, model: ModelProcess, arguments: dict[str, Any], glossary: dict[str, Any]
) -> bytes:
    """Parse, translate and write a file; a model process parses and writes it."""
    texts, tagged = await model.request({"read_file": arguments})
    length, limit = sum(map(len, texts)), state.settings.limits.max_characters
    if length > limit:
        raise HttpError(413, f"the file has {length:,} characters to translate; send {limit:,} at most.", param="file")
    aligns = tagged and model.info.get("aligns")
    calibrated = bool(model.info.get("calibrated"))
    fields = ("text", "alignment", "confidence")
    translations = await state.translate(
        model, texts, 1, fields, alignments=aligns, confidence=calibrated, glossary=glossary
    )
    written: bytes = await model.request({"write_file": arguments | {"translations": translations}})
    return written
