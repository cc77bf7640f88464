"""Entry point of a worker process. The server imports this module too, so it must not import torch at module level."""

import socket
from pathlib import Path


def run_worker(pipe: socket.socket, folder: Path, threads: int, precision: str, shortlist: bool) -> None:
    """Run a worker in this process."""
    from heedful.serve.worker import run_process

    run_process(pipe, folder, threads, precision, shortlist)
