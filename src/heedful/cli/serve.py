"""`heedful serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    models: Annotated[list[str], typer.Argument(help="Model folders, each with a name if you like: en-de=runs/x.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 5000,
    keys: Annotated[
        Path | None, typer.Option(help="File of API keys, one a line; HEEDFUL_API_KEYS may hold some too.")
    ] = None,
    cors: Annotated[list[str] | None, typer.Option(help="Origin whose pages may ask; may be given again.")] = None,
    queue: Annotated[int, typer.Option(help="Sentences that may wait for each model.")] = 512,
    max_characters: Annotated[int, typer.Option(help="Most characters of a request.")] = 20_000,
    max_texts: Annotated[int, typer.Option(help="Most texts of a request.")] = 128,
    max_body: Annotated[int, typer.Option(help="Most bytes of a request.")] = 1 << 20,
    max_headers: Annotated[int, typer.Option(help="Most bytes of the headers of a request.")] = 16 << 10,
    max_time: Annotated[float, typer.Option(help="Most seconds for an answer.")] = 60.0,
    max_receive: Annotated[float, typer.Option(help="Most seconds for the body of a request to come in.")] = 20.0,
    max_connections: Annotated[int, typer.Option(help="Most requests of one address at once; 0 for any number.")] = 128,
    drain: Annotated[float, typer.Option(help="Seconds from SIGTERM to the end.")] = 30.0,
    threads: Annotated[int, typer.Option(help="CPU threads of each model; 0 for all cores.")] = 0,
    precision: Annotated[
        str, typer.Option(help="auto (the fastest that this machine has), float32, bfloat16 or int8.")
    ] = "auto",
    shortlist: Annotated[
        bool, typer.Option("--shortlist", help="Translators choose among likely tokens (heedful shortlist).")
    ] = False,
) -> None:
    """Serve models as a web page and an API: translators, GPTs and BERTs, as many as you like.

    For example: heedful serve runs/x; heedful serve en-de=runs/x de-en=runs/y --port 8080

    The API is LibreTranslate's and OpenAI's, see /docs. SIGTERM ends it gracefully, SIGHUP loads the folders again.
    """
    from heedful.errors import SettingError
    from heedful.ops.threads import num_threads as all_threads

    least: dict[str, float] = {
        "queue": queue,
        "max-characters": max_characters,
        "max-texts": max_texts,
        "max-body": max_body,
    }
    least |= {"max-headers": max_headers, "max-time": max_time, "max-receive": max_receive, "drain": drain}
    for name, value in least.items():
        if value <= 0:
            raise SettingError(f"--{name} is {value}; it must be above 0.")
    for name, value in {"threads": threads, "max-connections": max_connections}.items():
        if value < 0:
            raise SettingError(f"--{name} is {value}; it must be 0 or more.")
    if precision not in ("auto", "float32", "bfloat16", "int8"):
        raise SettingError(f"--precision is {precision!r}; it must be auto, float32, bfloat16 or int8.")
    if not 0 <= port < 2**16:
        raise SettingError(f"--port is {port}; it must be from 0 to 65535.")
    try:
        from heedful.serve.server import run
        from heedful.serve.server_settings import Limits, ServedFolder, ServerSettings, read_keys
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "heedful":
            raise
        packages = "starlette uvicorn python-multipart prometheus-client"
        raise SettingError(f"serving needs {error.name}, which is not installed; pip install {packages}.") from None

    limits = Limits(max_body, max_headers, max_characters, max_texts, max_time, max_receive, max_connections, queue)
    served = tuple(ServedFolder.parse(model) for model in models)
    settings = ServerSettings(
        served, host, port, limits, read_keys(keys), tuple(cors or ()), drain,
        threads or all_threads(), precision, shortlist,
    )  # fmt: skip

    def started(address: str) -> None:
        names = ", ".join(model.name for model in served)
        print(f"{address} serves {names}; {address}/docs describes the API; Ctrl-C ends it.", flush=True)

    run(settings, keys, started)
