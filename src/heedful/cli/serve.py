"""`heedful serve`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import read_glossary
from heedful.cli.options import Glossary, Precision, Shortlist


@dataclass(frozen=True)
class LimitGroup:
    """Limits of a request, of a client address and of a model's queue."""

    queue: Annotated[int, typer.Option(help="Sentences that may wait for each model.")] = 512
    max_characters: Annotated[int, typer.Option(help="Maximum characters of a request.")] = 20_000
    max_texts: Annotated[int, typer.Option(help="Maximum texts of a request.")] = 128
    max_body: Annotated[int, typer.Option(help="Maximum bytes of a request body.")] = 1 << 20
    max_headers: Annotated[int, typer.Option(help="Maximum bytes of the request headers.")] = 16 << 10
    max_time: Annotated[float, typer.Option(help="Maximum seconds until a request is answered.")] = 60.0
    max_receive: Annotated[float, typer.Option(help="Maximum seconds to receive a request body.")] = 20.0
    max_connections: Annotated[
        int, typer.Option(help="Maximum concurrent requests per client address; 0 for no limit.")
    ] = 128
    max_audio: Annotated[int, typer.Option(help="Maximum bytes of a request with a recording.")] = 25 << 20
    max_seconds: Annotated[float, typer.Option(help="Maximum seconds of a recording.")] = 600.0
    drain: Annotated[float, typer.Option(help="Maximum seconds to finish running requests after SIGTERM.")] = 30.0


def serve(
    models: Annotated[list[str], typer.Argument(help="Model folders, optionally named: en-de=runs/x.")],
    limits: LimitGroup,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 accepts requests from other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")] = 5000,
    keys: Annotated[
        Path | None, typer.Option(help="File with one API key per line; keys in HEEDFUL_API_KEYS are added.")
    ] = None,
    cors: Annotated[list[str] | None, typer.Option(help="Origin allowed by CORS; repeatable.")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads of each model; 0 for all cores.")] = 0,
    precision: Precision = "auto",
    shortlist: Shortlist = False,
    glossary: Glossary = None,
) -> None:
    """Serve models as a web page and an HTTP API. One or more translators, summarizers, GPTs, BERTs or
    speech recognizers.

    For example: heedful serve runs/x; heedful serve en-de=runs/x de-en=runs/y --port 8080

    The API follows LibreTranslate and OpenAI; see /docs. SIGTERM shuts down gracefully, SIGHUP reloads the models.
    """
    from heedful.errors import SettingError
    from heedful.ops.threads import num_threads as all_threads

    for name, value in {**vars(limits), "threads": threads}.items():
        may_be_zero = name in ("threads", "max_connections")
        if value < 0 or (value == 0 and not may_be_zero):
            least = "0 or more" if may_be_zero else "above 0"
            raise SettingError(f"--{name.replace('_', '-')} is {value}; it must be {least}.")
    if precision not in ("auto", "float32", "bfloat16", "int8"):
        raise SettingError(f"--precision is {precision!r}; it must be auto, float32, bfloat16 or int8.")
    if not 0 <= port < 2**16:
        raise SettingError(f"--port is {port}; it must be from 0 to 65535.")
    from heedful.serve.server import run
    from heedful.serve.server_settings import Limits, ServedFolder, ServerSettings, read_keys

    served = tuple(ServedFolder.parse(model) for model in models)
    terms = read_glossary(glossary)
    settings = ServerSettings(
        served, host, port, Limits(**vars(limits)), read_keys(keys), tuple(cors or ()),
        threads or all_threads(), precision, shortlist, () if terms is None else tuple(terms.terms),
    )  # fmt: skip

    names = ", ".join(model.name for model in served)
    if sys.stdout.isatty():
        print(f"opening {names}", flush=True)

    def print_address(address: str) -> None:
        print(f"{address} serves {names}; {address}/docs describes the API; press Ctrl-C to stop.", flush=True)

    run(settings, keys, print_address)
